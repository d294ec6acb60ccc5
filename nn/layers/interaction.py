"""How features meet: DLRM's dot interaction and DCNv2's low-rank cross layers."""

from types import ModuleType

import numpy as np
import tensorflow as tf

from nn.keras import keras
from nn.layers.dense import Dense
from runtime.hardware.device import derive_seed

# The width of the result is padded to a multiple of this, so that the matrix products of the next
# layer keep to the tile sizes of tensor cores and vector units.
WIDTH_MULTIPLE = 8


# The fused op; plain TensorFlow; plain TensorFlow in few operations, for models that are exported.
CUSTOM, PLAIN, SPLIT = "dot_custom", "dot_tensorflow", "dot_split"


def custom_op() -> ModuleType:
    """The module of the fused op, its library loaded.

    Raises:
      ImportError: it is not installed, or does not fit this TensorFlow; one sentence says which.
    """
    try:
        from tensorflow_dot_based_interact.python.ops import dot_based_interact_ops
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] != "tensorflow_dot_based_interact":
            raise
        raise ImportError("tensorflow-dot-based-interact is not installed: run `make op`") from None
    dot_based_interact_ops.library()
    return dot_based_interact_ops


def choose_dot(wanted: str, device: str) -> tuple[str, str | None]:
    """Which implementation of the dot interaction `--interaction` means on this machine.

    Args:
      wanted: "dot" (the fastest that is there), "dot_custom", "dot_custom_cuda" or
        "dot_tensorflow".
      device: "CPU" or "GPU".

    Returns:
      ("dot_custom" or "dot_tensorflow", why it is not the op that was asked for or None).

    Raises:
      ValueError: "dot_custom_cuda" without a GPU or without the op's GPU kernels.
    """
    if wanted == PLAIN:
        return PLAIN, None
    missing = "there is no GPU"
    if wanted != "dot_custom_cuda" or device == "GPU":
        missing = _missing_on(device)
    if missing is None:
        return CUSTOM, None
    if wanted == "dot_custom_cuda":
        raise ValueError(
            f"--interaction dot_custom_cuda needs the op's GPU kernels, but {missing}; or let the "
            "toolkit choose with --interaction dot"
        )
    return PLAIN, f"--interaction {wanted} is computed by dot_tensorflow, for {missing}"


def _missing_on(device: str) -> str | None:
    """Why the op does not run on a device; None if it does."""
    try:
        operations = custom_op()
    except ImportError as error:
        return str(error)
    if device == "GPU":
        if not operations.build()["cuda"]:
            return "the op was built without GPU kernels: run `make op CUDA=1`"
        try:
            with tf.device("GPU"):
                operations.dot_based_interact(tf.ones([1, 2, 8]), tf.ones([1, 8])).numpy()
        except tf.errors.OpError as error:  # this GPU or its driver is none that it was built for
            return f"its GPU kernels do not run here ({error.message})"
    return None


def padded_width(width: int) -> int:
    """`width` rounded up to a multiple of `WIDTH_MULTIPLE`."""
    return -(-width // WIDTH_MULTIPLE) * WIDTH_MULTIPLE


def _pair_of_gram_entry(num_features: int) -> np.ndarray:
    """For each entry of the flat Gram matrix the number of its pair; the diagonal is no pair and
    points one past the last."""
    rows, columns = np.tril_indices(num_features, k=-1)
    pairs = np.full((num_features, num_features), len(rows), np.int32)
    pairs[rows, columns] = pairs[columns, rows] = np.arange(len(rows))
    return pairs.reshape(-1)


@tf.custom_gradient
def pairwise_dots(features: tf.Tensor):
    """Dot products of all pairs of features of a row: the strictly lower triangle of X X^T.

    Its gradient is dX = (G + G^T) X where G holds the pairs' gradients in the lower triangle.
    TensorFlow's own gradient would scatter single numbers; here whole runs of memory are copied:
    the triangle is a concatenation of slices, and G + G^T is gathered from the transposed gradient,
    where a pair is a row.

    Args:
      features: [batch, num_features, dim].

    Returns:
      [batch, num_features * (num_features - 1) / 2], row by row: (1,0), (2,0), (2,1), (3,0), ...
    """
    num_features = features.shape[1]
    gram = tf.matmul(features, features, transpose_b=True)
    pairs = tf.concat([gram[:, i, :i] for i in range(num_features)], axis=1)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        by_pair = tf.pad(tf.transpose(upstream), [[0, 1], [0, 0]])
        symmetric = tf.transpose(tf.gather(by_pair, _pair_of_gram_entry(num_features)))
        symmetric = tf.reshape(symmetric, [-1, num_features, num_features])
        return tf.matmul(symmetric, features)

    return pairs, gradient


def triangle_by_split(gram: tf.Tensor) -> list[tf.Tensor]:
    """The strictly lower triangle of [batch, n, n], as runs of columns [batch, 1], [batch, 2], ...

    One operation, where `pairwise_dots` has n: onnxruntime takes some microseconds for each, which
    is most of a small batch's time. In TensorFlow this is the slower way (1.2 times).
    """
    num_features = gram.shape[1]
    flat = tf.reshape(gram, [-1, num_features**2])
    sizes = [num_features]  # of what is left out and what is kept, in turns
    for row in range(1, num_features):
        sizes += [row, num_features - row]
    return tf.split(flat, sizes, axis=1)[1::2]


class DotInteraction(keras.layers.Layer):
    """Pairwise dot products of the features beside the bottom MLP's output (Naumov et al., 2019).

        y = [bottom, x_1 . x_0, x_2 . x_0, x_2 . x_1, ..., 0, ...]

    Zeros pad the width to a multiple of 8.

    Args:
      implementation: "dot_custom", the fused op, "dot_tensorflow", or "dot_split", the same for
        models that are exported: it has no gradient of its own.

    Raises:
      ValueError: another implementation.
      ImportError: the op is not there.
    """

    def __init__(self, implementation: str = PLAIN, *, name: str = "dot", dtype: str = "float32"):
        super().__init__(name=name, dtype=dtype)
        if implementation not in (CUSTOM, PLAIN, SPLIT):
            raise ValueError(
                f"implementation must be {CUSTOM}, {PLAIN} or {SPLIT}, got {implementation}"
            )
        self._pairs = _pairs_by_split if implementation == SPLIT else _pairs_in_one
        self.operation = custom_op().dot_based_interact if implementation == CUSTOM else None

    def call(self, embeddings: tf.Tensor, bottom: tf.Tensor | None) -> tf.Tensor:
        """Combines the features of a row.

        Args:
          embeddings: [batch, num_tables, dim].
          bottom: [batch, dim], the bottom MLP's output; None in a model without numericals.

        Returns:
          [batch, width], width = dim + num_features (num_features - 1) / 2 rounded up to a multiple
          of 8, where num_features = num_tables + 1; without `bottom` the first summand and the
          extra feature are missing.
        """
        if self.operation is not None:
            layout = "pairs" if bottom is None else "separate"
            return self.operation(embeddings, bottom, layout=layout)
        if bottom is None:
            parts = self._pairs(embeddings)
        else:
            features = tf.concat([bottom[:, tf.newaxis, :], embeddings], axis=1)
            parts = [bottom, *self._pairs(features)]
        width = sum(part.shape[1] for part in parts)
        padding = padded_width(width) - width
        if padding:
            rows = tf.shape(embeddings)[0]
            parts.append(tf.zeros([rows, padding], embeddings.dtype))
        return tf.concat(parts, axis=1)


def _pairs_in_one(features: tf.Tensor) -> list[tf.Tensor]:
    return [pairwise_dots(features)]


def _pairs_by_split(features: tf.Tensor) -> list[tf.Tensor]:
    return triangle_by_split(tf.matmul(features, features, transpose_b=True))


class CrossNetwork(keras.layers.Layer):
    """DCNv2's stack of low-rank cross layers (Wang et al., 2021, equation 2).

        x_{l+1} = x_0 * (V_l (U_l x_l) + b_l) + x_l

    `*` is elementwise, U_l is [rank, width], V_l is [width, rank].

    Initial weights are those of `Dense`: Glorot normal U_l and V_l, and b_l from a normal
    distribution of standard deviation sqrt(1 / width). NVIDIA's DCNv2 starts with truncated normal
    U_l and V_l of standard deviation 0.05 and b_l = 0, which at the default sizes (width 3456, rank
    512) is twice as wide. On a sample of Criteo's logs the test AUC after 480 steps did not differ
    by more than between seeds.

    Args:
      num_layers: number of cross layers.
      projection_dim: the rank. Around width / 4 loses little accuracy (section 7 of the paper);
        from width / 2 upwards the factorisation saves no work.
      seed: seed of the initial weights.
      dtype: Keras dtype policy.
    """

    def __init__(
        self, num_layers: int, projection_dim: int, *, seed: int, name: str, dtype: str = "float32"
    ):
        super().__init__(name=name, dtype=dtype)
        self.num_layers = num_layers
        self.projection_dim = projection_dim
        self.seed = seed

    def build(self, input_shape):
        width = int(input_shape[-1])
        seed = derive_seed(self.seed, self.name)
        policy = self.dtype_policy
        self.down = [
            Dense(self.projection_dim, seed=seed, name=f"down_{i}", use_bias=False, dtype=policy)
            for i in range(self.num_layers)
        ]
        self.up = [
            Dense(width, seed=seed, name=f"up_{i}", dtype=policy) for i in range(self.num_layers)
        ]
        super().build(input_shape)

    def call(self, x0: tf.Tensor) -> tf.Tensor:
        """[batch, width] -> [batch, width]."""
        x = x0
        for down, up in zip(self.down, self.up, strict=True):
            x = x0 * up(down(x)) + x
        return x
