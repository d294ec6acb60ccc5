"""The fused dot interaction: loads the op's library when it is first needed.

from tensorflow_dot_based_interact.python.ops import dot_based_interact_ops
output = dot_based_interact_ops.dot_based_interact(input, bottom_mlp_output)
"""

import ctypes
import functools
import json
from pathlib import Path
from types import ModuleType

import tensorflow as tf

LIBRARY = Path(__file__).with_name("_dot_based_interact_ops.so")
# Written next to the library by the build.
BUILD = LIBRARY.with_suffix(".json")


class LibraryMissing(ImportError):
    """The op's library is not there, or not one for this TensorFlow."""


def build() -> dict:
    """Returns the settings of the build: {"tensorflow": version, "cuda": [architectures], ...}.

    Raises:
        LibraryMissing: No library, or one for another TensorFlow.
    """
    try:
        settings = json.loads(BUILD.read_text())
        is_whole = LIBRARY.stat().st_size == settings["bytes"]
    except (OSError, ValueError, LookupError, TypeError):
        is_whole = False
    if not is_whole:
        raise LibraryMissing(f"the op's library {LIBRARY} is not built: run `make op`")
    if settings["tensorflow"] != tf.__version__:
        raise LibraryMissing(
            f"the op's library {LIBRARY} was built for TensorFlow {settings['tensorflow']}, this "
            f"is {tf.__version__}: run `make op` again"
        )
    return settings


@functools.cache
def library() -> ModuleType:
    """Returns the loaded op library; LibraryMissing if it cannot be loaded."""
    build()
    try:
        return tf.load_op_library(str(LIBRARY))
    except (tf.errors.NotFoundError, OSError) as error:
        raise LibraryMissing(
            f"the op's library {LIBRARY} cannot be loaded ({error}): run `make op` again"
        ) from error


def cpu_isa() -> str:
    """Returns the instruction set of the CPU kernel: "avx512", "avx2" or "generic"."""
    library()
    name = ctypes.CDLL(str(LIBRARY)).dot_interact_cpu_isa
    name.restype = ctypes.c_char_p
    return name().decode()


def dot_based_interact(
    input: tf.Tensor,
    bottom_mlp_output: tf.Tensor | None,
    layout: str = "joined",
    name: str | None = None,
) -> tf.Tensor:
    """Computes DLRM's dot interaction (Naumov et al., 2019, section 2.1.3) in one fused kernel.

    Dot products are summed in float32 whatever the dtype.

    Args:
        input: [batch, features, dim] float32, float16 or bfloat16. With layout "joined" its row 0
            is the bottom MLP's output.
        bottom_mlp_output: [batch, dim] or [batch, 1, dim], same dtype; None with layout "pairs".
        layout: "joined"; "separate": `bottom_mlp_output` is one more feature, before those of
            `input`, which saves joining them; "pairs": no bottom MLP.
        name: Name of the operation.

    Returns:
        [batch, width], same dtype: the bottom MLP's output (none with "pairs"), the dot products of
        the strictly lower triangle row by row, (1, 0), (2, 0), (2, 1), ..., and zeros to a multiple
        of 8 columns.

    Raises:
        LibraryMissing: The op's library is not built.
        tf.errors.InvalidArgumentError, ValueError (in a graph): Ranks or sizes that do not fit.
    """
    operations = library()
    input = tf.convert_to_tensor(input)
    if bottom_mlp_output is None:
        if layout != "pairs":
            raise ValueError(f"layout {layout!r} needs bottom_mlp_output, got None")
        bottom_mlp_output = tf.zeros([tf.shape(input)[0], 0], input.dtype)
    return operations.dot_based_interact(input, bottom_mlp_output, layout=layout, name=name)


@tf.RegisterGradient("DotBasedInteract")
def _gradient(operation: tf.Operation, upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return library().dot_based_interact_grad(
        *operation.inputs, upstream, layout=operation.get_attr("layout")
    )
