"""All-to-alls of table-wise sharded tables: ids to the ranks that own them, vectors back.

Vectors are exchanged in units of the greatest common width (granularity), counted in int32, so that
an exchange holds up to 2^31 units, not elements. Every receiver knows the size of what it receives
from the plan and from the sizes of what it received before: nothing is gathered to agree on sizes.
"""

import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from distributed_embeddings.exchange.requests import Ids, Requests

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


class TableWise:
    """Exchange for tables of which one rank holds all rows (of some columns).

    Attributes:
        own: Requests of this rank.
        granularity: Elements of a unit of exchanged vectors.
    """

    def __init__(self, exchange: RowExchange, requests: Sequence[Requests]):
        self._exchange, self._world = exchange, exchange.world
        self._requests = list(requests)
        self.own = self._requests[self._world.rank]
        widths = [r.width for rank in self._requests for r in rank.pooled]
        self.granularity = math.gcd(*[width for width in widths if width]) or 1

    def send_ids(
        self, ids: Mapping[int, Ids], name: str
    ) -> tuple[tf.Tensor | None, list[Ids], tf.Tensor]:
        """Sends the ids of this rank's samples, by feature, to the owners of the tables.

        Returns:
            (fixed ids of this rank's lookups and all ranks' samples [global batch, num_ids], None
            without any; ragged ids of each lookup; samples of each rank, int32 [world size]).
        """
        parts, sizes = [], []
        for requests in self._requests:
            fixed, ragged = requests.select(ids)
            flat = [] if fixed is None else [tf.reshape(fixed, [-1])]
            flat += [tf.reshape(feature_ids.values, [-1]) for feature_ids in ragged]
            parts += flat
            sizes.append(tf.add_n([tf.size(part) for part in flat]) if flat else tf.constant(0))
        received, id_sizes = self._world.all_to_all(
            tf.concat(parts, axis=0), tf.stack(sizes), f"{name}.ids"
        )
        lengths = length_sizes = None
        if any(requests.ragged for requests in self._requests):
            lengths, length_sizes = self._send_lengths(ids, name)
        if self.own.ragged:
            return self._unpack(received, lengths, length_sizes // len(self.own.ragged))
        if not self.own.fixed:
            return None, [], tf.zeros([self._world.size], tf.int32)
        num_ids = self.own.num_ids
        return tf.reshape(received, [-1, num_ids]), [], id_sizes // num_ids

    def _send_lengths(self, ids: Mapping[int, Ids], name: str):
        parts = [ids[r.feature].lengths for rank in self._requests for r in rank.ragged]
        batch_size = tf.size(parts[0])
        sizes = tf.stack([len(rank.ragged) * batch_size for rank in self._requests])
        return self._world.all_to_all(tf.concat(parts, axis=0), sizes, f"{name}.lengths")

    def _unpack(self, ids, lengths, batch_sizes):
        """Sorts ids that were received rank by rank into one run per lookup."""
        ranks, count, num_ids = self._world.size, len(self.own.ragged), self.own.num_ids
        lengths = tf.split(lengths, tf.repeat(batch_sizes, count), num=ranks * count)
        sizes = []
        for rank in range(ranks):
            sizes.append(batch_sizes[rank] * num_ids)
            sizes += [tf.reduce_sum(part) for part in lengths[rank * count : (rank + 1) * count]]
        runs = tf.split(ids, tf.stack(sizes), num=ranks * (count + 1))
        fixed = None
        if self.own.fixed:
            fixed = tf.reshape(tf.concat(runs[:: count + 1], axis=0), [-1, num_ids])
        ragged = [
            Ids(tf.concat(runs[1 + i :: count + 1], axis=0), tf.concat(lengths[i::count], axis=0))
            for i in range(count)
        ]
        return fixed, ragged, batch_sizes

    def return_vectors(self, pooled: tf.Tensor | None, batch_sizes, dtype, name: str):
        """Sends pooled vectors back to the ranks of their samples.

        Args:
            pooled: [global batch, width of this rank's pooled lookups]; None without any.
            batch_sizes: int32 [world size], samples of each rank.

        Returns:
            [units, granularity], by rank, then by sample; None if no rank has pooled lookups.
        """
        if not any(requests.pooled for requests in self._requests):
            return None
        is_read = pooled is not None
        if not is_read:
            pooled = tf.zeros([0, self.granularity], dtype)
        rows = tf.reshape(pooled, [-1, self.granularity])
        sizes = batch_sizes * (self.own.width // self.granularity)
        received, _ = self._exchange.send(rows, sizes, f"{name}.vectors", is_read=is_read)
        return tf.ensure_shape(received, [None, self.granularity])

    def in_order(self, received: tf.Tensor, batch_size: tf.Tensor) -> tf.Tensor:
        """Concatenates the result of `return_vectors` to [batch, width], in feature order.

        One gather of units, and one in the gradient, which is a permutation.
        """
        units_of_rank = [requests.width // self.granularity for requests in self._requests]
        columns = {}  # (feature, column_start) -> (rank, unit within the rank's row) of its units
        for rank, requests in enumerate(self._requests):
            first = 0
            for r in requests.pooled:
                count = r.width // self.granularity
                columns[r.feature, r.shard.column_start] = [(rank, first + i) for i in range(count)]
                first += count
        units = [unit for key in sorted(columns) for unit in columns[key]]
        total = len(units)
        dtype = tf.int32
        samples = tf.range(batch_size)[:, tf.newaxis]
        index = (
            batch_size * tf.constant([sum(units_of_rank[:rank]) for rank, _ in units], dtype)
            + samples * tf.constant([units_of_rank[rank] for rank, _ in units], dtype)
            + tf.constant([unit for _, unit in units], dtype)
        )
        # The inverse, rank by rank: the position of each unit in the output.
        position = {unit: i for i, unit in enumerate(units)}
        inverse = [
            samples * total + tf.constant([position[rank, i] for i in range(count)], dtype)
            for rank, count in enumerate(units_of_rank)
            if count
        ]
        inverse = tf.concat([tf.reshape(part, [-1]) for part in inverse], axis=0)
        received = tf.reshape(received, [-1, self.granularity])
        return tf.reshape(_permute(received, index, inverse), [-1, total * self.granularity])

    def by_feature(self, received: tf.Tensor, batch_size: tf.Tensor) -> dict[int, tf.Tensor]:
        """Splits pooled vectors (see `in_order`) by feature, [batch, vectors, dim] each."""
        sizes = [batch_size * (r.width // self.granularity) for r in self._requests]
        blocks = tf.split(received, sizes, axis=0)
        slices: dict[int, list] = {}
        for requests, block in zip(self._requests, blocks, strict=True):
            if not requests.pooled:
                continue
            for r, part in requests.split(tf.reshape(block, [-1, requests.width])):
                part = tf.reshape(part, [-1, r.signature.vectors, r.shard.columns])
                slices.setdefault(r.feature, []).append((r.shard.column_start, part))
        return {f: _concat_columns(parts) for f, parts in slices.items()}

    def return_uncombined(
        self, own: Sequence[tuple[tf.Tensor, tf.Tensor]], batch_sizes, counts, dtype, name: str
    ) -> dict[int, tf.Tensor]:
        """Sends vectors of ragged ids without combiner back to the ranks of their samples.

        Args:
            own: For each of this rank's uncombined lookups its vectors [ids of all ranks, columns]
                and the ids per sample, int32 [global batch].
            batch_sizes: int32 [world size], samples of each rank.
            counts: Number of this rank's ids of each feature.

        Returns:
            Vectors [n, dim] of each feature.
        """
        uncombined = [r for requests in self._requests for r in requests.uncombined]
        if not uncombined:
            return {}
        granularity, size = math.gcd(*(r.shard.columns for r in uncombined)), self._world.size
        outgoing: list[list[tf.Tensor]] = [[] for _ in range(size)]
        sizes = tf.zeros([size], tf.int32)
        for rows, lengths in own:
            runs = tf.split(lengths, batch_sizes, num=size)
            units_per_row = rows.shape[1] // granularity
            units = tf.stack([tf.reduce_sum(run) for run in runs]) * units_per_row
            parts = tf.split(tf.reshape(rows, [-1, granularity]), units, num=size)
            for rank, part in enumerate(parts):
                outgoing[rank].append(part)
            sizes += units
        parts = [part for of_rank in outgoing for part in of_rank]
        rows = tf.concat(parts, axis=0) if parts else tf.zeros([0, granularity], dtype)
        received, _ = self._exchange.send(rows, sizes, f"{name}.uncombined", is_read=bool(parts))
        received = tf.ensure_shape(received, [None, granularity])
        units = tf.stack([counts[r.feature] * (r.shard.columns // granularity) for r in uncombined])
        slices: dict[int, list] = {}
        parts = tf.split(received, units, num=len(uncombined))
        for r, part in zip(uncombined, parts, strict=True):
            rows = tf.reshape(part, [-1, r.shard.columns])
            slices.setdefault(r.feature, []).append((r.shard.column_start, rows))
        return {f: _concat_columns(parts) for f, parts in slices.items()}


def _concat_columns(slices: list[tuple[int, tf.Tensor]]) -> tf.Tensor:
    if len(slices) == 1:
        return slices[0][1]
    return tf.concat([part for _, part in sorted(slices, key=lambda item: item[0])], axis=-1)


def _permute(rows, index, inverse):
    """Returns rows[index]; the gradient is a gather as well, by `inverse`."""

    @tf.custom_gradient
    def permute(rows):
        def gradient(upstream):
            return tf.gather(tf.reshape(upstream, tf.shape(rows)), inverse)

        return tf.gather(rows, index), gradient

    return permute(rows)
