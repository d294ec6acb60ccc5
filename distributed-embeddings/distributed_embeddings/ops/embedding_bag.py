"""Embedding bags: several ids per output vector, looked up and combined in one operation."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from distributed_embeddings.ops import kernels
from distributed_embeddings.precision import precise

# Attributes of `Bags` that the operations take for each vector of a sample.
COLUMNS = ("hotness", "row_offsets", "num_rows", "mean")


class Bags(NamedTuple):
    """Ids of a batch, and the vectors that they make of each sample.

    Attributes:
        ids: int32 or int64; [samples, sum of hotness], or ragged [ids].
        hotness: Ids of each vector of a sample; (1,) for ragged ids, whose splits count.
        row_offsets: Row of id 0 for each vector: several tables may share a variable.
        num_rows: Ids of each vector are in [0, num_rows).
        mean: Whether the sum of a vector's rows is divided by their number.
        splits: int64 [samples + 1], where the ids of ragged samples begin; None where fixed.
        weights: float32, factors of the ids' rows, in the shape of `ids`; None for ones.
    """

    ids: tf.Tensor
    hotness: tuple[int, ...]
    row_offsets: tuple[int, ...]
    num_rows: tuple[int, ...]
    mean: tuple[bool, ...]
    splits: tf.Tensor | None = None
    weights: tf.Tensor | None = None

    @classmethod
    def single(cls, ids, num_rows: int, mean: bool = False, splits=None) -> "Bags":
        """Returns bags of one vector: of one id in [0, num_rows), or of ragged ones."""
        return cls(ids, (1,), (0,), (num_rows,), (mean,), splits)

    @property
    def columns(self) -> dict[str, tuple]:
        """The vectors of a sample as the operations take them."""
        return {name: getattr(self, name) for name in COLUMNS}

    @property
    def tensors(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Ids, splits and weights as the operations take them."""
        splits = tf.zeros([0], tf.int64) if self.splits is None else self.splits
        weights = tf.zeros([0], tf.float32) if self.weights is None else self.weights
        return self.ids, splits, weights

    def by_id(self, values: Sequence[int]) -> np.ndarray:
        """Returns one value per id of a sample, [sum of hotness]; a scalar where ragged."""
        if self.splits is not None:
            return np.asarray(values[0])
        return np.repeat(values, self.hotness)

    def checked(self) -> "Bags":
        """Returns the bags; InvalidArgumentError if an id is not in [0, num_rows)."""
        return self._replace(ids=checked(self.ids, self.by_id(self.num_rows)))


# A lookup, and the gradient of its output, [samples, vectors * dim].
Use = tuple[Bags, tf.Tensor]


def splits_of(lengths: tf.Tensor) -> tf.Tensor:
    """Returns int64 [n + 1] splits of ragged samples with the given numbers of ids [n]."""
    ends = tf.cumsum(tf.cast(lengths, tf.int64))
    return tf.concat([tf.zeros([1], tf.int64), ends], axis=0)


def look_up(variable: tf.Variable, bags: Bags, dtype: tf.DType) -> tf.Tensor:
    """Looks up and combines rows with the compiled operation, accumulated in float32.

    Its gradient of the variable is `tf.IndexedSlices` of ascending, distinct rows.

    Args:
        variable: float32, float16 or bfloat16 [rows, dim].
        dtype: float32, float16 or bfloat16 of the output.

    Returns:
        [samples, vectors * dim]; zeros for a bag without ids.

    Raises:
        KernelsMissing: See `kernels.library`.
        tf.errors.InvalidArgumentError: An id is not in [0, num_rows) (CPU; on a GPU it reads
            zeros), or sizes do not fit.
    """
    if variable.trainable:  # for tapes that watch the variables that are read
        tf.gather(variable, tf.zeros([0], tf.int32))
    return kernels.library().resource_embedding_bag(
        variable.handle,
        *bags.tensors,
        ragged=bags.splits is not None,
        **bags.columns,
        table_shape=variable.shape,
        T=variable.dtype,
        Tout=dtype,
    )


def plain_look_up(table, bags: Bags, dtype: tf.DType, check: bool = False) -> tf.Tensor:
    """Looks up and combines rows with TensorFlow's operations: the reference of the compiled ones.

    Args:
        table: A variable, which gets a gradient, or a tensor.
        check: Whether an id outside its table raises InvalidArgumentError.
    """
    dim = table.shape[1]
    ids = bags.checked().ids if check else bags.ids
    offsets = bags.by_id(bags.row_offsets)
    if table.shape[0] is not None and table.shape[0] >= 2**31:
        ids = tf.cast(ids, tf.int64)  # with offsets
    if np.any(offsets):
        ids += tf.constant(offsets, ids.dtype)
    rows = tf.gather(table, ids)
    if bags.weights is not None:
        rows = precise(rows) * bags.weights[..., tf.newaxis]
    if bags.splits is not None:
        lengths = bags.splits[1:] - bags.splits[:-1]
        return tf.cast(combine_ragged(rows, lengths, _combiner(bags.mean[0])), dtype)
    # Columns of one kind are combined together.
    runs = [
        (hotness, mean, len(list(run)))
        for (hotness, mean), run in itertools.groupby(zip(bags.hotness, bags.mean, strict=True))
    ]
    outputs = []
    widths = [hotness * count for hotness, _, count in runs]
    parts = tf.split(rows, widths, axis=1) if len(runs) > 1 else [rows]
    for (hotness, mean, count), part in zip(runs, parts, strict=True):
        part = tf.reshape(part, [tf.shape(ids)[0], count, hotness, dim])
        part = tf.cast(combine_fixed(part, _combiner(mean)), dtype)
        outputs.append(tf.reshape(part, [-1, count * dim]))
    return tf.concat(outputs, axis=1) if len(outputs) > 1 else outputs[0]


def _combiner(mean: bool) -> str:
    return "mean" if mean else "sum"


def combine_fixed(rows: tf.Tensor, combiner: str | None) -> tf.Tensor:
    """Pools [..., hotness, dim] to [..., dim], in float32; the result has the dtype of the rows."""
    if rows.shape[-2] == 1:
        return tf.squeeze(rows, -2)
    reduce = tf.reduce_mean if combiner == "mean" and rows.shape[-2] != 0 else tf.reduce_sum
    return tf.cast(reduce(precise(rows), axis=-2), rows.dtype)


def combine_ragged(rows: tf.Tensor, lengths: tf.Tensor, combiner: str) -> tf.Tensor:
    """Pools [sum of lengths, dim] to [batch, dim], in float32; zeros for a sample without ids."""
    batch_size = tf.size(lengths)
    samples = tf.repeat(tf.range(batch_size), lengths)
    total = tf.math.unsorted_segment_sum(precise(rows), samples, batch_size)
    if combiner == "mean":
        total /= tf.cast(tf.maximum(lengths, 1), total.dtype)[:, tf.newaxis]
    return tf.cast(total, rows.dtype)


def checked(ids: tf.Tensor, rows) -> tf.Tensor:
    """Returns the ids; InvalidArgumentError if one is not in [0, rows). Synchronizes with a GPU."""
    rows = tf.constant(rows, tf.int64)
    wide = tf.cast(ids, tf.int64)
    valid = tf.reduce_all(tf.logical_and(wide >= 0, wide < rows))
    message = "an id is not in [0, rows of its table). Ids, and the rows of their tables:"
    assertion = tf.debugging.Assert(valid, [message, ids, rows], summarize=30)
    with tf.control_dependencies([] if assertion is None else [assertion]):
        return tf.identity(ids)


def summed_gradient(
    uses: Sequence[Use], shape: tf.TensorShape, dtype: tf.DType
) -> tf.IndexedSlices:
    """Returns the gradient of a table as distinct, ascending rows, summed in float32."""
    rows, sums = kernels.library().embedding_bag_gradient(
        **_inputs(uses), **_attributes(uses), table_shape=shape, T=dtype
    )
    if shape[0] < 2**31:
        rows = tf.cast(rows, tf.int32)  # what is sent to other ranks
    return tf.IndexedSlices(sums, rows, tf.constant(shape.as_list(), tf.int64))


def update(
    variable: tf.Variable,
    slots: Sequence[tf.Variable],
    optimizer: str,
    scalars: tf.Tensor,
    uses: Sequence[Use],
    **attributes: bool,
) -> tf.Operation | None:
    """Sums the gradients of each row in float32 and moves each row once.

        sgd              w = kept w - rate g
        adagrad          a += g^2;  w = kept w - rate g / (sqrt(a) + epsilon)
        rowwise_adagrad  a_row += mean(g^2), then as adagrad
        lazy_adam, adam  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
                         w = kept w - rate m / (sqrt(v) + epsilon)
        momentum         m = beta1 m - rate g;  w = kept w + m
        nesterov         m = beta1 m - rate g;  w = kept w + beta1 m - rate g
        rmsprop          v = beta2 v + (1 - beta2) g^2;  s = rate g / (sqrt(v) + epsilon)
                         w = kept w - s; with a slot m: m = beta1 m + s;  w = kept w - m

    "adam", and any kind with `all_rows`, moves every row; otherwise those with an id move.

    Args:
        variable: float32, float16 or bfloat16 [rows, dim].
        slots: adagrad a; adam m, v; momentum, nesterov m; rmsprop v, or v, m: float32 [rows, dim],
            of "rowwise_adagrad" a [rows].
        scalars: float32 [6]: factor on all gradients, rate, kept, epsilon, beta1, beta2.
        uses: All lookups of the step.
        attributes: On a CPU only: `all_rows` moves every row, by g = 0 where none occurs;
            `epsilon_in_root` takes sqrt(x + epsilon) in place of sqrt(x) + epsilon.
    """
    return kernels.library().resource_embedding_bag_update(
        table=variable.handle,
        slots=[slot.handle for slot in slots],
        scalars=scalars,
        optimizer=optimizer,
        **_inputs(uses),
        **_attributes(uses),
        **attributes,
        T=variable.dtype,
    )


def _inputs(uses: Sequence[Use]) -> dict[str, list[tf.Tensor]]:
    ids, splits, weights = zip(*(bags.tensors for bags, _ in uses), strict=True)
    if len({tensor.dtype for tensor in ids}) > 1:
        ids = tuple(tf.cast(tensor, tf.int64) for tensor in ids)
    gradients = [gradient for _, gradient in uses]
    if len({gradient.dtype for gradient in gradients}) > 1:
        gradients = [precise(gradient) for gradient in gradients]
    return {
        "ids": list(ids),
        "splits": list(splits),
        "weights": list(weights),
        "gradients": gradients,
    }


def _attributes(uses: Sequence[Use]) -> dict[str, Any]:
    all_bags = [bags for bags, _ in uses]
    return {
        "num_columns": [len(bags.hotness) for bags in all_bags],
        "ragged": [bags.splits is not None for bags in all_bags],
        **{name: [v for bags in all_bags for v in bags.columns[name]] for name in COLUMNS},
    }


@tf.RegisterGradient("ResourceEmbeddingBag")
def _gradient(operation: tf.Operation, upstream: tf.Tensor):
    _, ids, splits, weights = operation.inputs
    columns = [tuple(operation.get_attr(name)) for name in COLUMNS]
    bags = Bags(ids, *columns, splits if operation.get_attr("ragged") else None, weights)
    shape = tf.TensorShape(operation.get_attr("table_shape"))
    slices = summed_gradient([(bags, upstream)], shape, operation.get_attr("T"))
    return slices, None, None, None


def filled(shape: Sequence[int], value: float, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """Returns the first values of a table or of its state in an optimizer, on the current device.

    Where the compiled operations are installed, a large tensor of a CPU lies in huge pages, if
    Linux has them (`/sys/kernel/mm/transparent_hugepage/enabled`: `always` or `madvise`): a row
    that lies anywhere costs a walk of the page table less often.
    """
    dtype = tf.as_dtype(dtype)
    tensor = tf.constant(value, dtype)
    on_gpu = tf.config.get_visible_devices("GPU")
    if on_gpu or dtype not in kernels.DTYPES or kernels.reason_for_fallback():
        return tf.fill(shape, tensor)
    return kernels.library().embedding_bag_fill(tensor, shape=shape)
