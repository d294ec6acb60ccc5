"""Triton's server as a process of ours: started on free ports, waited for, ended with all it made.

    with running("repository", "server.log") as server:
        server.grpc, server.http, server.metrics  # ports on 127.0.0.1

Nothing is reachable from other machines. Where this process ends without a goodbye, Linux tells the
server to end, too.

Stopping takes some seconds, which no flag of the server shortens but by leaving processes behind:
the instances of a model in the Python backend end one after the other, about a second each (those
of several models at a time), the server looks once a second whether all have, and its metrics take
another second to end.
"""

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from deployment.serve.environment import server_program, variables
from deployment.serve.stubs import Stubs
from runtime.files.atomic import write_errors_name

ADDRESS = "127.0.0.1"

_TAIL_LINES = 30  # of the log, in an error
_SHARED_MEMORY = Path("/dev/shm")
_STUBS_END_S = 5.0  # they look for their server several times a second

# What a server says where there is no GPU, and what it is not about.
_HARMLESS = ("pinned_memory_manager", "cuda_memory_manager", "CudaDriverHelper", "NVML", "DCGM")
_PLAIN = re.compile(r"[\w./+,:@%=-]+")  # of a path: nothing that a shell knows
_NOTICE_OR_TABLE = re.compile(r"I\d{4} |[|+]|\s*$")
_NOTE = (
    "note: without a GPU the server complains of CUDA, pinned memory, NVML and DCGM below: "
    "harmless, models on the CPU need none of them\n"
)

# Before it becomes the server, the child asks Linux for SIGTERM when its parent ends. In Python's
# own `preexec_fn` this might hang, where threads of TensorFlow or gRPC hold locks.
_LAUNCHER = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit("its parent has ended")
os.execv(sys.argv[2], sys.argv[2:])
"""


class ServerFailed(OSError):
    """The server did not start, or it or the process of a model ended by itself; the text has the
    end of the log."""


class StartStopped(Exception):
    """Somebody wanted the server to end before its models were loaded; it has ended."""


class Ports(NamedTuple):
    """Where a server listens on 127.0.0.1; 0 is any free port."""

    http: int = 0
    grpc: int = 0
    metrics: int = 0


class Server:
    """One server on one repository; may be started again, on the same ports, after its end.

    Args:
      repository: folder of models.
      log: file for what the server writes, begun anew at each start.
      ports: free ones are chosen for those that are 0 and where None are given, at the first start;
        later ones have the same.
      tritonserver: the program; None: that of `make serve-setup`.
      ready_s: so long models may take to load.
      stop_s: so long the server may take to end before it is killed.
      stopped: is asked while models load: whether the server is no longer wanted.

    Attributes:
      http, grpc, metrics: its ports.
      url: where gRPC clients find it.
      pid: of the process, None before its start.

    Raises:
      ValueError: there is no such repository or program.
    """

    def __init__(
        self,
        repository: str | Path,
        log: str | Path,
        *,
        ports: Ports | None = None,
        tritonserver: str | Path | None = None,
        ready_s: float = 300.0,
        stop_s: float = 60.0,
        stopped: Callable[[], bool] = lambda: False,
    ):
        self._repository, self._log = Path(repository), Path(log)
        if not self._repository.is_dir():
            raise ValueError(
                f"--model_repository {repository} is not a folder: make one with "
                "python -m deployment.deploy"
            )
        self._wanted = self._ports = ports or Ports()
        self._program = server_program(tritonserver)
        self._ready_s, self._stop_s, self._stopped = ready_s, stop_s, stopped
        self._process: subprocess.Popen | None = None
        self._links: tempfile.TemporaryDirectory | None = None
        # Of memory that the Python backend shares with its stubs, and in the stubs' command lines.
        self._mark = f"triton-{os.getpid()}-{secrets.token_hex(4)}-"
        self._stubs = Stubs(self._mark)

    @property
    def http(self) -> int:
        return self._ports.http

    @property
    def grpc(self) -> int:
        return self._ports.grpc

    @property
    def metrics(self) -> int:
        return self._ports.metrics

    @property
    def url(self) -> str:
        return f"{ADDRESS}:{self.grpc}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Starts the server and returns when all models are ready.

        Must be called by a thread that lives as long as the server shall.

        Raises:
          ServerFailed: it ended before that, or was not ready in time.
          StartStopped: `stopped` said so.
        """
        self.kill()  # what a server left that ended by itself
        for attempt in range(3):
            self._ports = _chosen(self._wanted)
            self._launch()
            try:
                self._wait_until_ready()
            except StartStopped:
                self.kill()  # SIGTERM it would hear when all models are loaded
                raise
            except ServerFailed:
                self.kill()
                # Between our look and the server's another process may have taken a free port.
                if (
                    attempt == 2
                    or self._ports == self._wanted
                    or not self._log_has("already in use")
                ):
                    raise
            else:
                self._wanted = self._ports
                self._stubs.watch()
                return

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def check_alive(self) -> None:
        """Raises ServerFailed where the server, or the process of a model, has ended by itself."""
        if not self.alive():
            raise ServerFailed(f"tritonserver ended by itself{self._status()}{self._tail()}")
        if lost := self._stubs.lost():
            raise ServerFailed(
                f"{'; '.join(lost)}. tritonserver starts none again, and refuses requests that "
                f"come to it: start the server again{self._tail()}"
            )

    def stop(self) -> None:
        """Ends the server: SIGTERM, after `stop_s` SIGKILL; no process and no memory is left.

        At once by SIGKILL where a model has lost a process, for which the server would wait.
        """
        if self._process is None:
            return
        if self._stubs.lost():
            self.kill()
            return
        self._process.terminate()
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(self._stop_s)
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends the server by SIGKILL, as a crash would, and clears up after it."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None
        # Stubs that lost their server end by themselves, and take their shared memory along; one
        # that is in the middle of a computation does so later than anybody wants to wait.
        deadline = time.monotonic() + _STUBS_END_S
        while (stubs := self.stubs()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in stubs:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for region in _SHARED_MEMORY.glob(f"{self._mark}*"):
            region.unlink(missing_ok=True)
        if self._links is not None:
            self._links.cleanup()
            self._links = None

    def stubs(self) -> list[int]:
        """Process ids of the Python backend's stubs, one an instance of a model."""
        return list(self._stubs.found())

    def _launch(self) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        folder = self._program.parent
        options = {
            "model-repository": self._for_a_shell(self._repository, "models"),
            "backend-directory": self._for_a_shell(folder / "backends", "backends"),
            "http-address": ADDRESS,
            "http-port": self.http,
            "grpc-address": ADDRESS,
            "grpc-port": self.grpc,
            "metrics-address": ADDRESS,
            "metrics-port": self.metrics,
            "exit-timeout-secs": int(self._stop_s),
            "backend-config": f"python,shm-region-prefix-name={self._mark}",
        }
        command = [sys.executable, "-c", _LAUNCHER, str(os.getpid()), str(self._program)]
        with write_errors_name(self._log):
            self._log.write_text(_NOTE, encoding="utf-8")
        with open(self._log, "a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [*command, *(f"--{name}={value}" for name, value in options.items())],
                env=variables(folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for us, who then stop the server.
                start_new_session=True,
            )

    def _for_a_shell(self, folder: Path, name: str) -> Path:
        """The folder, by another name where a shell would take it apart.

        The Python backend writes both folders into a command line of a shell, without quotes: with
        a space in one of them no stub starts, and the server waits for it for ever.
        """
        if _PLAIN.fullmatch(str(folder)):
            return folder
        if self._links is None:
            usual = _PLAIN.fullmatch(tempfile.gettempdir())
            self._links = tempfile.TemporaryDirectory(
                prefix="triton-", dir=None if usual else "/tmp"
            )
        link = Path(self._links.name, name)
        link.symlink_to(folder.absolute())
        return link

    def _wait_until_ready(self) -> None:
        # The metrics come last; a server that cannot offer them goes on without.
        awaited = [f"{self.http}/v2/health/ready", f"{self.metrics}/metrics"]
        deadline = time.monotonic() + self._ready_s
        while self.alive():
            # An answer other than 200 is an OSError as well.
            with (
                suppress(OSError),
                _without_proxy().open(f"http://{ADDRESS}:{awaited[0]}", timeout=5),
            ):
                awaited.pop(0)
            if not awaited:
                return
            if self._stopped():
                raise StartStopped
            if self._log_has("failed to start Metrics service"):
                raise ServerFailed(f"tritonserver cannot offer its metrics{self._tail()}")
            if time.monotonic() > deadline:
                raise ServerFailed(
                    f"tritonserver was not ready within {self._ready_s:g} s{self._tail()}"
                )
            time.sleep(0.05)
        raise ServerFailed(f"tritonserver ended while it started{self._status()}{self._tail()}")

    def _status(self) -> str:
        return f" (exit status {self._process.returncode})" if self._process else ""

    def _log_has(self, text: str) -> bool:
        return text in self._log.read_text(errors="replace")

    def _tail(self) -> str:
        """The last lines of the log that may say why: no notices, no tables, nothing harmless."""
        lines = self._log.read_text(errors="replace").splitlines()[1:]
        telling = [
            line
            for line in lines
            if not _NOTICE_OR_TABLE.match(line) and not any(word in line for word in _HARMLESS)
        ]
        said = (telling or lines)[-_TAIL_LINES:] or ["nothing"]
        return "\n  ".join([f"; it says (all of it is in {self._log}):", *said])


@contextmanager
def running(repository: str | Path, log: str | Path, **options) -> Iterator[Server]:
    """A server that is ready, and ended behind the block; Args and Raises as `Server`, `start`."""
    server = Server(repository, log, **options)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _without_proxy() -> urllib.request.OpenerDirector:
    """Returns an opener that ignores `http_proxy`: a proxy does not reach 127.0.0.1."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _chosen(ports: Sequence[int]) -> Ports:
    """The ports, with free ones in place of 0."""
    with socket.socket() as first, socket.socket() as second, socket.socket() as third:
        found = []
        for port, probe in zip(ports, (first, second, third), strict=True):
            if not port:
                # All three are held until the last is found, so that they differ.
                probe.bind((ADDRESS, 0))
                port = probe.getsockname()[1]
            found.append(port)
        return Ports(*found)
