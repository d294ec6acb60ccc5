"""Failure detector, rank 0: collects reports of failed collectives and names the absent ranks."""

import hmac
import json
import secrets
import socket
import socketserver
import sys
import threading
from collections.abc import Callable
from typing import Any

from runtime.cluster.failure import connection as client
from runtime.cluster.failure.connection import AbsentRanks, send
from runtime.cluster.failure.stack_sample import StackSample, seconds_since_progress

GREETING_TIMEOUT_S = 10.0
_MAX_GREETING_BYTES = 4096
_CHECK_INTERVAL_S = 1.0


class FailureMonitor:
    """A server on rank 0 to which every rank stays connected.

    Args:
        size: number of ranks.
        timeout_s: seconds without progress (`idle_s`) after which `end_process` may be called.
        end_process: ends this process, and with it the job, when a rank is frozen and Horovod
            would wait for it forever; None: Horovod has a time-out of its own.

    Attributes:
        address: what `FailureClient` needs to connect, as JSON values.
    """

    def __init__(
        self,
        size: int,
        timeout_s: float = 0.0,
        end_process: Callable[[], None] | None = None,
        idle_s: Callable[[], float] = seconds_since_progress,
    ):
        self._size, self._timeout_s, self._idle_s = size, timeout_s, idle_s
        self._end_process = end_process if timeout_s else None
        self._changed = threading.Condition()
        self._connections: dict[int, socket.socket] = {}
        self._hosts: dict[int, str] = {}  # of all that have ever connected
        self._ended: dict[int, str] = {}  # the reason, if it is known
        self._reported: set[int] = set()
        self._request = 0
        self._samples: dict[int, StackSample] = {}  # answers to the last request
        self._server = _Server(("", 0), lambda *request: _Handler(self, *request))
        self.address: dict[str, Any] = {
            "host": socket.gethostname(),
            "addresses": _own_addresses(),
            "port": self._server.server_address[1],
            "token": secrets.token_hex(16),
        }
        for target in (self._server.serve_forever, self._run):
            threading.Thread(target=target, name="failure monitor", daemon=True).start()

    def _run(self) -> None:
        with self._changed:
            interval_s = _CHECK_INTERVAL_S if self._end_process else None
            while not self._reported and len(self._ended) < self._size:
                self._changed.wait(interval_s)
                if self._end_process and self._idle_s() >= self._timeout_s:
                    self._end_if_frozen()
            if self._reported:
                self._collect_reports()
                self._answer()
        self._server.shutdown()
        self._server.server_close()

    def _collect_reports(self) -> None:
        self._request_samples()
        if self._changed.wait_for(self._all_known, client.REPORT_WAIT_S) or self._ended:
            return
        self._changed.wait_for(
            lambda: self._all_known() or not self._silent(),
            max(0.0, client.SAMPLE_WAIT_S - client.REPORT_WAIT_S),
        )

    def _answer(self) -> None:
        absent = set(range(self._size)) - self._reported
        ended = sorted(absent & self._ended.keys())
        stalled = sorted(absent - self._ended.keys())
        details = [self._describe(rank) for rank in ended or stalled]
        # Rank 0 last: this thread ends with its process.
        for rank in sorted(self._connections, reverse=True):
            send(self._connections[rank], {"absent": AbsentRanks(stalled, ended, details)})

    def _end_if_frozen(self) -> None:
        """Ends the job if a rank does not even answer a request for a stack sample."""
        self._request_samples()
        self._changed.wait_for(lambda: not self._silent(), client.SAMPLE_WAIT_S)
        if (silent := sorted(self._silent())) and self._idle_s() >= self._timeout_s:
            absent = AbsentRanks(silent, [], [self._describe(rank) for rank in silent])
            print(
                f"error: the {self._size} processes cannot continue: "
                f"{absent.describe(self._timeout_s)}",
                file=sys.stderr,
                flush=True,
            )
            assert self._end_process is not None
            self._end_process()

    def _request_samples(self) -> None:
        self._request += 1
        self._samples = {}
        for connection in self._connections.values():
            send(connection, {"request": self._request})

    def _silent(self) -> set[int]:
        """Returns connected ranks that neither reported nor answered the last request."""
        return self._connections.keys() - self._reported - self._samples.keys()

    def _all_known(self) -> bool:
        return len(self._reported | self._ended.keys()) == self._size

    def _describe(self, rank: int) -> str:
        if rank not in self._hosts:
            return "never connected to rank 0"
        host = self._hosts[rank]
        if rank in self._ended:
            return f"{host}: {self._ended[rank]}" if self._ended[rank] else host
        if rank not in self._samples:
            return f"{host}, {client.FROZEN}"
        others = [sample.step for other, sample in self._samples.items() if other != rank]
        return f"{host}, {self._samples[rank].describe(others)}"

    # Called by the server's threads, one per connection.

    def welcome(self, connection: socket.socket, message: dict[str, Any]) -> int | None:
        """Registers a rank's connection and returns the rank; None for strangers."""
        token, rank, host = str(message.get("token")), message.get("rank"), message.get("host")
        expected = self.address["token"].encode()
        if not hmac.compare_digest(token.encode(errors="replace"), expected):
            return None
        if type(rank) is not int or not 0 <= rank < self._size or not isinstance(host, str):
            return None
        with self._changed:
            # Within the lock: a client that has its answer is registered before any other event.
            send(connection, {"welcome": True})
            self._connections[rank], self._hosts[rank] = connection, host
            self._ended.pop(rank, None)
        return rank

    def receive(self, rank: int, message: dict[str, Any]) -> None:
        """Handles a message of a rank."""
        with self._changed:
            if message.get("failed"):
                self._reported.add(rank)
            if message.get("request") == self._request:
                self._samples[rank] = StackSample(*message["sample"])
            self._changed.notify_all()

    def disconnect(self, rank: int, connection: socket.socket, reason: str) -> None:
        """Records that a connection has ended, unless the rank has made another one."""
        with self._changed:
            if self._connections.get(rank) is connection:
                del self._connections[rank]
                self._ended[rank] = reason
            self._changed.notify_all()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 1024  # ranks may connect at once


class _Handler(socketserver.StreamRequestHandler):
    """One connection: a greeting with the token, then messages until the rank ends."""

    def __init__(self, monitor: FailureMonitor, *request: Any):
        self._monitor = monitor
        super().__init__(*request)

    def handle(self) -> None:
        monitor, connection = self._monitor, self.request
        connection.settimeout(GREETING_TIMEOUT_S)
        try:
            greeting = json.loads(self.rfile.readline(_MAX_GREETING_BYTES))
            rank = monitor.welcome(connection, greeting) if isinstance(greeting, dict) else None
        except (OSError, ValueError, RecursionError):
            return
        if rank is None:
            return
        reason = ""
        try:
            connection.settimeout(None)
            client.keep_alive(connection)
            for line in self.rfile:
                monitor.receive(rank, json.loads(line))
        except OSError as error:
            reason = client.UNREACHABLE_MACHINE if error.errno in client.UNREACHABLE else ""
        except (ValueError, KeyError, TypeError, AttributeError):
            pass  # a message that was cut off by the end of the process
        monitor.disconnect(rank, connection, reason)


def _own_addresses() -> list[str]:
    import psutil

    return [
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET and not entry.address.startswith("127.")
    ]
