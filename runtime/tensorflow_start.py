"""TensorFlow's start: its log level, its oneDNN kernels, and an import without its log."""

import gc
import os
import platform
import sys
import tempfile


def prepare_tensorflow() -> None:
    """Sets variables that TensorFlow reads when it is imported; those that are set stay.

    - TF_CPP_MIN_LOG_LEVEL is 2. See `import_tensorflow` for lines that are printed in spite of it.
    - TF_ENABLE_ONEDNN_OPTS is 1 on x86. TensorFlow's default is 1 from AVX512-VNNI on only.
      With AVX2, too, its kernels are faster, and its allocator keeps the memory of large tensors,
      which malloc returns to the system at every step.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if platform.machine() in ("x86_64", "AMD64"):
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


def import_tensorflow() -> None:
    """Imports TensorFlow, whose log of the import is printed only if it fails.

    TensorFlow 2.16 and later write lines on their oneDNN kernels to stderr before their log has a
    level, also if these kernels are wanted.

    The garbage collector is off during the import, and then leaves the objects of its modules alone
    (`gc.freeze`): both save time (benchmarks/results/start_up_epyc_202611.md). The freeze holds for
    all objects of the process: garbage of a notebook is collected before, and what the notebook
    still uses then and drops later in reference cycles is never collected.
    """
    if "tensorflow" in sys.modules:
        return
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as log:
        stderr = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            import tensorflow  # noqa: F401
        except BaseException:
            log.seek(0)
            os.write(stderr, log.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            gc.freeze()
            if collects:
                gc.enable()
