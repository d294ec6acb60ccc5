"""The compiled operations of the package distributed-embeddings-kernels, where it is installed."""

import contextlib
import functools
import json
from collections.abc import Iterator
from types import ModuleType

import tensorflow as tf

_disabled: list[bool] = []  # one for each entered `disabled`

DTYPES = (tf.float32, tf.float16, tf.bfloat16)
MAX_ROWS = 2**32


class KernelsMissing(ImportError):
    """The package is not installed, or does not fit this TensorFlow."""


def build() -> dict:
    """Returns the settings of the build: "tensorflow" (version), "cuda" (architectures), "library".

    Raises:
        KernelsMissing: The package is not installed, or was built for another TensorFlow.
    """
    try:
        from distributed_embeddings_kernels import LIBRARY
    except ImportError:
        raise KernelsMissing(
            "the package distributed-embeddings-kernels is not installed"
        ) from None
    try:
        settings = json.loads(LIBRARY.with_suffix(".json").read_text())
        is_whole = LIBRARY.stat().st_size == settings["bytes"]
    except (OSError, ValueError, LookupError) as error:
        raise KernelsMissing(f"{LIBRARY} cannot be loaded: {error}") from error
    if not is_whole:
        raise KernelsMissing(f"{LIBRARY} is not the whole library that was built")
    if settings["tensorflow"] != tf.__version__:
        raise KernelsMissing(
            f"distributed-embeddings-kernels was built for TensorFlow {settings['tensorflow']}, "
            f"this is {tf.__version__}"
        )
    return {**settings, "library": str(LIBRARY)}


@functools.cache
def library() -> ModuleType:
    """Returns the loaded operations.

    Raises:
        KernelsMissing: See `build`.
    """
    path = build()["library"]
    try:
        operations = tf.load_op_library(path)
    except (OSError, tf.errors.NotFoundError) as error:
        raise KernelsMissing(f"{path} cannot be loaded: {error}") from error
    if not hasattr(operations, "embedding_bag_fill"):
        raise KernelsMissing(f"{path} is of an earlier version of this package: build it again")
    return operations


@functools.cache
def _gpu_problem() -> str | None:
    """Returns why a GPU cannot run the operations; None if it can."""
    if not build()["cuda"]:
        return "distributed-embeddings-kernels was built without GPU kernels (`make op CUDA=1`)"
    try:
        with tf.init_scope(), tf.device("GPU"):
            table = tf.Variable(tf.ones([3, 8]), trainable=False)
            sums = library().resource_embedding_bag(
                *(table.handle, tf.constant([[0, 2]]), tf.zeros([0], tf.int64), tf.zeros([0])),
                **dict(ragged=False, hotness=[2], row_offsets=[0], num_rows=[3], mean=[False]),
                **dict(table_shape=table.shape, T=table.dtype, Tout=tf.float32),
            )
            sums.numpy()
    except tf.errors.OpError as error:  # not built for this GPU or its driver
        return f"the GPU cannot run distributed-embeddings-kernels ({error.message})"
    return None


def reason_for_fallback() -> str | None:
    """Returns why TensorFlow's own operations are used instead; None if the compiled ones are."""
    if _disabled:
        return "the compiled operations are disabled"
    try:
        library()
    except KernelsMissing as error:
        return str(error)
    return _gpu_problem() if tf.config.get_visible_devices("GPU") else None


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    """Returns a context in which layers use TensorFlow's own operations."""
    _disabled.append(True)
    try:
        yield
    finally:
        _disabled.pop()


def support(variable) -> bool:
    """Returns whether the compiled operations can look rows of a variable up."""
    return (
        isinstance(variable, tf.Variable)
        and hasattr(variable, "handle")
        and variable.dtype in DTYPES
        and variable.shape.rank == 2
        and variable.shape[1] > 0
        and variable.shape[0] <= MAX_ROWS
        and reason_for_fallback() is None
    )
