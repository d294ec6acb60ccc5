"""Start of TensorFlow: its oneDNN kernels, and no lines on stderr that help no user."""

import contextlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder

# Parts of lines that TensorFlow writes in spite of its log level, when it is imported (2.16 and
# later) and when XLA first compiles for a CPU (2.15, one of them as an error).
_HIDDEN = (
    "before absl::InitializeLog() is called",
    "oneDNN custom operations are on",
    "SetPriority unimplemented for this stream",
    "Compiled cluster using XLA!",
)


def prepare_tensorflow() -> None:
    """Sets variables of TensorFlow and hides its start lines, if it is not imported yet.

    Variables that are set already keep their values:

    - TF_CPP_MIN_LOG_LEVEL is 2; 0 hides nothing.
    - TF_ENABLE_ONEDNN_OPTS is 1 on x86. TensorFlow's default is 1 from AVX512-VNNI on only.
      With AVX2, too, its kernels are faster, and its allocator keeps the memory of large tensors,
      which malloc returns to the system at every step.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if platform.machine() in ("x86_64", "AMD64"):
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    if _TensorFlowFinder not in sys.meta_path:
        sys.meta_path.insert(0, _TensorFlowFinder)


@contextlib.contextmanager
def without_start_messages() -> Iterator[None]:
    """Removes the start lines of TensorFlow from what is written to stderr in the context.

    Another process does that, so that the last words of a crash are passed on as well.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") == "0":
        yield
        return
    stderr = os.dup(2)
    command = ["sed", "-u", *(f"-e/{text}/d" for text in _HIDDEN)]
    # In a session of its own, which Ctrl-C does not reach.
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=stderr, start_new_session=True
    ) as sed:
        assert sed.stdin is not None
        try:
            os.dup2(sed.stdin.fileno(), 2)
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


class _TensorFlowFinder:
    """Runs `import tensorflow` within `without_start_messages`."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name) if name == "tensorflow" else None
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = without_start_messages()(spec.loader.exec_module)  # type: ignore[method-assign]
        return spec
