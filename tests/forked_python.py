"""Runs Python programs in processes forked from one that has imported TensorFlow.

Importing TensorFlow and Horovod takes 4 s of a core, which tests of whole commands would spend
dozens of times. A program sees what `python` gives it: arguments, environment, folder, standard
streams, exit status, signals, `__main__`. Different: libraries of `PRELOADED` are in `sys.modules`,
and pictures of runs are empty files.

    python -m tests.forked_python SOCKET    (the server, see `running`)

Only the standard library is imported here: `SHIM` starts with every command.
"""

import atexit
import contextlib
import importlib
import json
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PRELOADED = (
    *("tensorflow", "tensorflow.keras.layers", "horovod.tensorflow", "pyarrow.parquet", "yaml"),
    *("psutil", "duckdb", "tqdm", "ibis", "ibis.backends.duckdb", "onnx", "xxhash"),
)
# Takes the place of `python` on PATH. Not for servers: a signal would end this process alone.
# `tf.keras` is Keras 2, as in all programs that import distributed_embeddings before they use it.
SHIM = """#!/bin/sh
'''exec' {quoted} -IS "$0" "$@"
'''
import os, sys
if "deployment.serve" in sys.argv:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
sys.path.append({root!r})
from tests import forked_python
process = forked_python.Program({socket!r}, sys.argv[1:], os.getcwd(), os.environ, (0, 1, 2))
sys.exit(process.wait())
"""


class Program:
    """A Python program that the server at `path` runs.

    Args:
        path: of the server's socket.
        arguments: those of `python`: a script, `-m module`, `-c code` or `-`, and its arguments.
        streams: descriptors of its standard input, output and error.
    """

    def __init__(
        self,
        path: str | Path,
        arguments: Sequence[str],
        folder: str,
        environment: Mapping[str, str],
        streams: Sequence[int],
    ):
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(str(path))
        request = json.dumps([[*arguments], folder, {**environment}]).encode()
        header = len(request).to_bytes(4, "little")
        socket.send_fds(self._connection, [header], [*streams])
        self._connection.sendall(request)

    def wait(self, timeout_s: float | None = None) -> int:
        """Returns the exit status; negative: the signal that killed it, as in `subprocess`.

        Raises:
            TimeoutError: it still runs; it is killed when this object is closed.
        """
        self._connection.settimeout(timeout_s)
        with self._connection.makefile() as answers:
            return int(answers.readline())

    def close(self) -> None:
        """Kills the program if it still runs."""
        self._connection.close()


@contextlib.contextmanager
def running(path: Path) -> Iterator[None]:
    """Serves at `path` until the context ends."""
    command = [sys.executable, "-m", __name__, str(path)]
    server = subprocess.Popen(
        command,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert server.stdout.readline() == b"ready\n"
        yield
    finally:
        server.kill()
        server.communicate()


def install_shim(folder: Path, path: Path) -> None:
    """Writes `folder / "python"`, which runs programs by the server at `path`.

    Args:
        folder: is created.
        path: of the server's socket.
    """
    root = str(Path(__file__).resolve().parents[1])
    folder.mkdir()
    text = SHIM.format(
        python=sys.executable,
        quoted=shlex.quote(sys.executable),
        root=root,
        socket=str(path),
    )
    (folder / "python").write_text(text)
    (folder / "python").chmod(0o755)


def serve(path: str) -> None:
    """Forks a process per connection, without end."""
    from runtime.logs import plots
    from runtime.tensorflow_start import prepare_tensorflow
    from tests import disk, no_pictures

    prepare_tensorflow()
    os.fsync = disk.checked
    plots.draw = no_pictures.touch
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a test may have ignored it for this process
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # none of them becomes a zombie
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            with connection:
                _supervise(connection)
            os._exit(0)
        connection.close()


def _supervise(connection: socket.socket) -> None:
    """Runs one program, sends its status, and kills it if the other end closes before."""
    header, streams, _, _ = socket.recv_fds(connection, 4, 3)
    with connection.makefile("rb") as requests:
        arguments, folder, environment = json.loads(requests.read(int.from_bytes(header, "little")))
    program = os.fork()
    if program == 0:
        connection.close()
        _run(arguments, folder, environment, streams)
    for descriptor in streams:
        os.close(descriptor)
    handle = os.pidfd_open(program)
    while True:
        ready, _, _ = select.select([handle, connection], [], [])
        if handle in ready:
            break
        os.kill(program, signal.SIGKILL)  # nothing but the end comes from there
        connection.close()
        os.waitpid(program, 0)
        return
    status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    with contextlib.suppress(OSError):
        connection.sendall(f"{status}\n".encode())


def _run(arguments: list[str], folder: str, environment: dict, streams: Sequence[int]) -> None:
    """Becomes the program; does not return."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.orig_argv = [sys.executable, *arguments]
    sys.path[0:1] = []  # of the server
    sys.path[0:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    status = 0
    try:
        _execute(arguments)
    except SystemExit as exit_:
        status = exit_.code
        if isinstance(status, str):
            print(status, file=sys.stderr)
        status = status if isinstance(status, int) else int(status is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status & 0xFF)


def _execute(arguments: list[str]) -> None:
    first, *rest = arguments
    if first == "-u":
        os.environ["PYTHONUNBUFFERED"] = "1"
        sys.stdout.reconfigure(line_buffering=True)
        first, *rest = arguments = rest
    if first == "-m":
        name, *rest = rest
        sys.argv = [name, *rest]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return
    if first in ("-c", "-"):
        code, *rest = (sys.stdin.read(), *rest) if first == "-" else rest
        sys.argv = [first, *rest]
        sys.path.insert(0, "")
        exec(compile(code, "<string>", "exec"), vars(sys.modules["__main__"]))
        return
    sys.argv = arguments
    sys.path.insert(0, os.path.dirname(os.path.abspath(first)))
    runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    serve(sys.argv[1])
