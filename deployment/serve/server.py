"""Triton's server as a child process.

    with running("repository", "server.log") as server:
        server.grpc, server.http, server.metrics  # ports on 127.0.0.1

Triton's own way to stop accepts requests until the last connection is closed, also an idle one. So
`Server.stop` unloads the models first: it refuses new requests and finishes those in flight.
Stopping takes some seconds: the instances of a model in the Python backend end one after the other,
about a second each, and the server checks for connections once per second.
"""

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from deployment.serve.serving_environment import server_program, variables
from deployment.serve.stubs import is_running, stubs_of
from runtime.files.disk import write_errors_name

LOOPBACK = "127.0.0.1"

_TAIL_LINES = 30  # of the log, in an error message
_SHARED_MEMORY = Path("/dev/shm")
_STUBS_END_S = 5.0  # stubs look for their server several times per second
_CONFIRM_S = 0.5  # between two counts of processes, so that none is of a moment in between
_EXIT_S = 2  # Triton's own limit for ending, once its models are unloaded

_SHELL_SAFE = re.compile(r"[\w./+,:@%=-]+")  # of a path
# Log lines that do not explain a failure: notices, tables, and what is logged without a GPU.
_IRRELEVANT = re.compile(
    r"I\d{4} |[|+]|\s*$|.*(pinned_memory_manager|cuda_memory_manager|CudaDriverHelper|NVML|DCGM)"
)
_NOTE = (
    "note: without a GPU the server complains of CUDA, pinned memory, NVML and DCGM below: "
    "harmless, models on the CPU need none of them\n"
)


class ServerFailed(OSError):
    """The server did not start, or it or a process of a model ended; has the end of the log."""


class StartStopped(Exception):
    """The start was cancelled before the models were loaded; the server has ended."""


class Ports(NamedTuple):
    """Ports of a server on 127.0.0.1; 0 is any free port."""

    http: int = 0
    grpc: int = 0
    metrics: int = 0


class Server:
    """Server of one repository; may be started again, on the same ports, after its end.

    Args:
        repository: folder of models.
        log: log file of the server, overwritten at each start.
        ports: free ones are chosen for 0 at the first start.
        http_address, grpc_address: 127.0.0.1, or 0.0.0.0 for all addresses of the machine.
        tritonserver: the program; None: that of `make serve-setup`.
        ready_s: limit for loading the models.
        stop_s: limit for ending, before the server is killed; requests in flight have 5 s less.
        stopped: returns whether to cancel the start; called while models load.

    Raises:
        ValueError: the repository or the program does not exist.
    """

    def __init__(
        self,
        repository: str | Path,
        log: str | Path,
        *,
        ports: Ports | None = None,
        http_address: str = LOOPBACK,
        grpc_address: str = LOOPBACK,
        tritonserver: str | Path | None = None,
        ready_s: float = 300.0,
        stop_s: float = 15.0,
        stopped: Callable[[], bool] = lambda: False,
    ):
        self._repository, self._log = Path(repository), Path(log)
        if not self._repository.is_dir():
            raise ValueError(
                f"--model_repository {repository} is not a folder: make one with "
                "python -m deployment.deploy"
            )
        self.http, self.grpc, self.metrics = ports or Ports()
        self._http_address, self._grpc_address = http_address, grpc_address
        self._program = server_program(tritonserver)
        self._ready_s, self._stop_s, self._stopped = ready_s, stop_s, stopped
        self._process: subprocess.Popen | None = None
        self._links: tempfile.TemporaryDirectory | None = None
        # Prefix of the memory that the Python backend shares with its stubs.
        self._shared_memory = f"triton-{os.getpid()}-{secrets.token_hex(4)}-"
        self._stubs: dict[int, str] = {}  # of the server, as of the latest check

    @property
    def url(self) -> str:
        return f"{LOOPBACK}:{self.grpc}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Starts the server, which ends with this thread, and returns when all models are ready.

        Raises:
            ValueError: a port is in use.
            ServerFailed, StartStopped: see there.
        """
        self.kill()  # remains of a server that ended
        self.http, self.grpc, self.metrics = _free_ports(Ports(self.http, self.grpc, self.metrics))
        self._launch()
        try:
            self._wait_until_ready()
        except (ServerFailed, StartStopped):
            self.kill()  # SIGTERM has no effect until all models are loaded
            raise
        self._stubs = stubs_of(self._process.pid)

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def check_alive(self) -> None:
        """Raises ServerFailed if the server, or a process of a model, has ended."""
        if not self.alive():
            raise ServerFailed(f"tritonserver ended unexpectedly{self._status()}{self._tail()}")
        if lost := self._damaged_models():
            raise ServerFailed(
                f"a process of the model {', '.join(lost)} ended unexpectedly, possibly for lack "
                "of memory. tritonserver does not restart it, and refuses its requests: start the "
                f"server again{self._tail()}"
            )

    def stop(self) -> None:
        """Ends the server with all its processes within about `stop_s`.

        Requests in flight finish, new ones are refused. Without this if a model has lost a process,
        for which the server would wait.
        """
        if self._process is None:
            return
        deadline = time.monotonic() + self._stop_s
        try:
            if self.alive() and not self._damaged_models():
                with suppress(OSError, ValueError):
                    self._unload(deadline - 5)
                self._process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(max(0, deadline - time.monotonic()))
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends the server by SIGKILL, and removes its processes and shared memory."""
        if self._process is None:
            return
        stubs = self._stubs | stubs_of(self._process.pid)
        self._process.kill()
        self._process.wait()
        self._process, self._stubs = None, {}
        # Stubs without a server end, and remove their shared memory, after the current batch.
        deadline = time.monotonic() + _STUBS_END_S
        while (left := [pid for pid in stubs if is_running(pid, stubs[pid])]) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.05)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for region in _SHARED_MEMORY.glob(f"{self._shared_memory}*"):
            region.unlink(missing_ok=True)
        if self._links is not None:
            self._links.cleanup()
            self._links = None

    def stubs(self) -> list[int]:
        """Returns the process ids of the Python backend's stubs, one per instance of a model."""
        return list(stubs_of(self._process.pid)) if self._process else []

    def _damaged_models(self) -> list[str]:
        """Returns the models of which fewer processes run than Triton has instances.

        Stubs of models that were loaded again, or unloaded, end as well.
        """
        running = stubs_of(self._process.pid)
        ended = {self._stubs[pid] for pid in self._stubs.keys() - running.keys()}
        damaged = list(filter(self._lacks_instance, sorted(ended)))
        if damaged:
            time.sleep(_CONFIRM_S)
            damaged = list(filter(self._lacks_instance, damaged))
        if not damaged:
            self._stubs = running
        return damaged

    def _lacks_instance(self, model: str) -> bool:
        try:
            config = json.loads(_ask(self.http, f"v2/models/{model}/config"))
        except (OSError, ValueError):  # the model is not ready
            return False
        groups = config.get("instance_group", [])
        num_instances = sum(group["count"] * max(1, len(group.get("gpus", ()))) for group in groups)
        return list(stubs_of(self._process.pid).values()).count(model) < num_instances

    def _unload(self, deadline: float) -> None:
        """Unloads all models, and waits until the requests in flight have their answers."""
        for model in json.loads(_ask(self.http, "v2/repository/index", b"{}")):
            _ask(self.http, f"v2/repository/models/{model['name']}/unload", b"{}")
        while b"UNLOADING" in _ask(self.http, "v2/repository/index", b"{}"):
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)

    def _launch(self) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        folder = self._program.parent
        options = {
            "model-repository": self._shell_safe(self._repository, "models"),
            # All models are loaded at the start, and later those that a client asks to load.
            "model-control-mode": "explicit",
            "load-model": "*",
            "backend-directory": self._shell_safe(folder / "backends", "backends"),
            "http-address": self._http_address,
            "http-port": self.http,
            "grpc-address": self._grpc_address,
            "grpc-port": self.grpc,
            "metrics-address": LOOPBACK,
            "metrics-port": self.metrics,
            "exit-timeout-secs": _EXIT_S,
            "backend-config": f"python,shm-region-prefix-name={self._shared_memory}",
        }
        # The server gets SIGTERM when this process ends. Not by `preexec_fn`, which may hang where
        # threads of TensorFlow or gRPC hold locks.
        command = ["setpriv", "--pdeathsig", "TERM", str(self._program)]
        with write_errors_name(self._log):
            self._log.write_text(_NOTE, encoding="utf-8")
        with open(self._log, "a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [*command, *(f"--{name}={value}" for name, value in options.items())],
                env=variables(folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for this process, which then stops the server.
                start_new_session=True,
            )

    def _shell_safe(self, folder: Path, name: str) -> Path:
        """Returns the folder, or a link to it if its path has characters such as spaces.

        The Python backend passes the path to a shell without quotes: its stub would not start, and
        the server wait forever.
        """
        if _SHELL_SAFE.fullmatch(str(folder)):
            return folder
        if self._links is None:
            self._links = tempfile.TemporaryDirectory(prefix="triton-")
        link = Path(self._links.name, name)
        link.symlink_to(folder.absolute())
        return link

    def _wait_until_ready(self) -> None:
        # The metrics come last.
        pages = [(self.http, "v2/health/ready"), (self.metrics, "metrics")]
        deadline = time.monotonic() + self._ready_s
        while self.alive():
            with suppress(OSError):  # also an answer other than 200
                _ask(*pages[0])
                pages.pop(0)
            if not pages:
                return
            if self._stopped():
                raise StartStopped
            if time.monotonic() > deadline:
                raise ServerFailed(
                    f"tritonserver was not ready within {self._ready_s:g} s{self._tail()}"
                )
            time.sleep(0.05)
        raise ServerFailed(f"tritonserver ended while it started{self._status()}{self._tail()}")

    def _status(self) -> str:
        return f" (exit status {self._process.returncode})" if self._process else ""

    def _tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[1:]
        relevant = [line for line in lines if not _IRRELEVANT.match(line)]
        tail = (relevant or lines)[-_TAIL_LINES:] or ["nothing"]
        return "\n  ".join([f"; its log {self._log} ends with:", *tail])


@contextmanager
def running(repository: str | Path, log: str | Path, **options) -> Iterator[Server]:
    """Yields a server that is ready, and stops it after the block; see `Server`."""
    server = Server(repository, log, **options)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _ask(port: int, page: str, body: bytes | None = None) -> bytes:
    """Returns a page of this machine, which a proxy of the environment does not reach."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(f"http://{LOOPBACK}:{port}/{page}", body)
    with opener.open(request, timeout=5) as answer:
        return answer.read()


def _free_ports(ports: Ports) -> Ports:
    """Returns the ports, with free ones in place of 0; raises ValueError if one is in use."""
    with ExitStack() as probes:  # open until the last port is chosen, so that they differ
        chosen = []
        for name, port in ports._asdict().items():
            probe = probes.enter_context(socket.socket())
            # As servers do: closed connections of an earlier server do not block the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, bool(port))
            try:
                probe.bind((LOOPBACK, port))
            except OSError as error:
                raise ValueError(
                    f"--{name}_port {port}: cannot listen there ({error.strerror}): choose "
                    "another, or 0 for any free one"
                ) from None
            chosen.append(probe.getsockname()[1])
    return Ports(*chosen)
