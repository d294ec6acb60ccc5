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
# Written beside the library by the build.
BUILD = LIBRARY.with_suffix(".json")


class LibraryMissing(ImportError):
    """The op's library is not there, or not one for this TensorFlow."""


def build() -> dict:
    """What the library was built with: {"tensorflow": version, "cuda": [architectures], ...}.

    Raises:
      LibraryMissing: no library, or one for another TensorFlow.
    """
    try:
        found = json.loads(BUILD.read_text())
        whole = LIBRARY.stat().st_size == found["bytes"]
    except (OSError, ValueError, LookupError, TypeError):
        whole = False
    if not whole:
        raise LibraryMissing(f"the op's library {LIBRARY} is not built: run `make op`")
    if found["tensorflow"] != tf.__version__:
        raise LibraryMissing(
            f"the op's library {LIBRARY} was built for TensorFlow {found['tensorflow']}, this is "
            f"{tf.__version__}: run `make op` again"
        )
    return found


@functools.cache
def library() -> ModuleType:
    """The loaded op library.

    Raises:
      LibraryMissing: no library, one for another TensorFlow, or one that cannot be loaded.
    """
    build()
    try:
        return tf.load_op_library(str(LIBRARY))
    except (tf.errors.NotFoundError, OSError) as error:
        raise LibraryMissing(
            f"the op's library {LIBRARY} cannot be loaded ({error}): run `make op` again"
        ) from error


def cpu_isa() -> str:
    """The instruction set that the CPU kernel uses here: "avx512", "avx2" or "generic"."""
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
    """DLRM's dot interaction (Naumov et al., 2019, section 2.1.3), one fused kernel each way.

    Dot products are summed in float32 whatever the dtype.

    Args:
      input: [batch, features, dim] float32, float16 or bfloat16. With layout "joined" its row 0 is
        the bottom MLP's output.
      bottom_mlp_output: [batch, dim] or [batch, 1, dim], same dtype; None with layout "pairs".
      layout: "joined"; "separate": `bottom_mlp_output` is one more feature, before those of
        `input`, which saves joining them; "pairs": no bottom MLP.
      name: of the operation.

    Returns:
      [batch, width], same dtype: the bottom MLP's output (none with "pairs"), the dot products of
      the strictly lower triangle row by row, (1, 0), (2, 0), (2, 1), ..., and zeros to a multiple
      of 8 columns.

    Raises:
      LibraryMissing: the op's library is not there.
      tf.errors.InvalidArgumentError, ValueError (in a graph): ranks or sizes that do not fit.
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
