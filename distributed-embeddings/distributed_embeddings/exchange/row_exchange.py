"""All-to-all of rows with its gradient, and names of collectives that are equal on all ranks."""

import weakref
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

_calls_in_graph = weakref.WeakKeyDictionary()


def traced_graph():
    """Returns the outermost function that is being traced, None in eager mode."""
    if tf.executing_eagerly():
        return None
    graph = tf.compat.v1.get_default_graph()
    while hasattr(getattr(graph, "outer_graph", None), "outer_graph"):
        graph = graph.outer_graph
    return graph


def unique_name(name: str) -> str:
    """Returns a name that is unique among the calls of a graph and equal on all ranks."""
    graph = traced_graph()
    if graph is None:  # eager calls do not overlap
        return name
    _calls_in_graph[graph] = _calls_in_graph.get(graph, 0) + 1
    return f"{name}.{_calls_in_graph[graph]}"


@dataclass(frozen=True)
class RowExchange:
    """Exchange of rows between ranks; the gradient sends their gradients back.

    Attributes:
        comm_dtype: Dtype of exchanged rows; None: that of the rows.
        gradient_anchor: A variable that is trained on every rank, so that TensorFlow computes the
            gradient, which the other ranks wait for, on ranks without rows: a table of this rank,
            from which all its rows come, or an empty variable; None: no gradients.
    """

    world: Any
    comm_dtype: tf.DType | None = None
    gradient_anchor: tf.Variable | None = None

    def send(
        self, rows, sizes, name: str, grad_dtype=None, is_read: bool = True
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Sends rows to all ranks; collective.

        Args:
            rows: [n, width], those for rank 0 first.
            sizes: int32 [world size], rows for each rank.
            grad_dtype: Dtype of exchanged gradients; None: that of the exchanged rows, but bfloat16
                for float32 rows in float16: gradients are means over a batch, and float16 ends at
                6e-8.
            is_read: Whether the rows were read from tables of this rank.

        Returns:
            (received rows [m, width], received sizes int32 [world size]).
        """
        send_dtype = self.comm_dtype or rows.dtype
        if grad_dtype is None:
            narrowed = send_dtype == tf.float16 and rows.dtype == tf.float32
            grad_dtype = tf.bfloat16 if narrowed else send_dtype

        @tf.custom_gradient
        def exchange(rows, anchor):
            received, received_sizes = self.world.all_to_all(tf.cast(rows, send_dtype), sizes, name)

            def gradient(upstream, _):
                upstream = tf.reshape(tf.cast(upstream, grad_dtype), tf.shape(received))
                returned, _ = self.world.all_to_all(upstream, received_sizes, f"{name}.gradient")
                return tf.cast(returned, rows.dtype), tf.zeros_like(anchor)

            return (tf.cast(received, rows.dtype), received_sizes), gradient

        return exchange(rows, self._anchor(is_read))

    def _anchor(self, is_read: bool) -> tf.Tensor:
        """Returns an empty tensor that depends on the anchor, unless the rows do."""
        anchor = self.gradient_anchor
        if anchor is None or (anchor.shape.rank == 2 and is_read):
            return tf.zeros([0])
        if anchor.shape.rank == 2:
            return tf.gather(anchor, tf.zeros([0], tf.int32))
        return tf.convert_to_tensor(anchor)
