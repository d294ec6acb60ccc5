"""Failure detector, client side: every rank's connection to the monitor of rank 0.

Horovod reports to the surviving ranks only that it has been shut down. So each rank keeps a TCP
connection to rank 0. After a failed collective every rank that noticed the failure reports it; rank
0 requests a stack sample from all and answers with the ranks that did not report.

Messages are lines of JSON:

    a rank:   {"token", "rank", "host"} once; {"failed": true}; {"sample": StackSample, "request"}
    rank 0:   {"welcome": true} once; {"request"}; {"absent": AbsentRanks}, the last one
"""

import atexit
import contextlib
import errno
import json
import os
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from distributed_embeddings.collectives import rank_names

from runtime.cluster.failure.stack_sample import StackSample, sample_stack

# After a failure Horovod releases every waiting rank within its cycle of some milliseconds.
REPORT_WAIT_S = 3.0
SAMPLE_WAIT_S = 5.0
CONNECT_TIMEOUT_S = 2.0
# A machine that vanished is noticed after 15 + 3 * 5 seconds, without traffic or with it.
_KEEPALIVE = {
    socket.TCP_KEEPIDLE: 15,
    socket.TCP_KEEPINTVL: 5,
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: 30_000,
}
UNREACHABLE = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
UNREACHABLE_MACHINE = "its machine does not answer any more"
FROZEN = "no answer: its process is frozen, or its machine is unreachable"
_MAX_DESCRIBED = 8


class AbsentRanks(NamedTuple):
    """Ranks that did not report a failure."""

    stalled: list[int]  # run, but did not come to the collective
    ended: list[int]  # the process has ended, or its machine is unreachable
    details: Sequence[str] = ()  # on each of the ended ranks, or without them, of the stalled

    def describe(self, timeout_s: float) -> str:
        """Returns an error message; `timeout_s` is that of the collective, 0 if it has none."""
        shown = "; ".join(self.details[:_MAX_DESCRIBED])
        if (more := len(self.details) - _MAX_DESCRIBED) > 0:
            shown += f"; and {more} more"
        if self.ended:
            return f"{rank_names(self.ended)} ended{f' ({shown})' if shown else ''}"
        if not self.stalled:
            return "another process ended, or did not come to a collective"
        waited = f" within {timeout_s:g} seconds (--rank_timeout_s)" if timeout_s else ""
        known = f": {shown}" if shown else ""
        return f"{rank_names(self.stalled)} did not come to a collective{waited}{known}"


class FailureClient:
    """A rank's connection to the `FailureMonitor`; without effect if rank 0 cannot be reached.

    Args:
        address: of the monitor.
        log: log file of this rank, for the error message.
    """

    def __init__(
        self,
        rank: int,
        address: dict[str, Any],
        log: Path | None = None,
        sample: Callable[[], StackSample] = sample_stack,
    ):
        self._sample = sample
        self._socket: socket.socket | None = None
        self._absent: AbsentRanks | None = None
        self._answered, self._sending = threading.Event(), threading.Lock()
        host = f"{socket.gethostname()}, pid {os.getpid()}{f', log {log}' if log else ''}"
        local = ["127.0.0.1"] if address["host"] == socket.gethostname() else []
        for name in local + address["addresses"]:
            greeting = {"token": address["token"], "rank": rank, "host": host}
            if connection := _connect((name, address["port"]), greeting):
                self._socket, lines = connection
                # Before Horovod shuts down, which takes seconds: the others learn it at once.
                atexit.register(self.close)
                threading.Thread(
                    target=self._listen, args=(lines,), name="failure client", daemon=True
                ).start()
                return

    def absent_ranks(self) -> AbsentRanks | None:
        """Reports that a collective failed here, and returns who did not report; None: unknown."""
        if self._socket is None:
            return None
        self._send(failed=True)
        # Rank 0 waits for reports and for samples.
        if not self._answered.wait(max(REPORT_WAIT_S, SAMPLE_WAIT_S) + REPORT_WAIT_S):
            return AbsentRanks([0], [], [FROZEN])
        return self._absent

    def close(self) -> None:
        """Disconnects; the monitor counts this rank as ended."""
        atexit.unregister(self.close)
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _listen(self, lines: BinaryIO) -> None:
        absent = AbsentRanks([], [0])
        try:
            for line in lines:
                message = json.loads(line)
                if "absent" in message:
                    absent = AbsentRanks(*message["absent"])
                    break
                self._send(sample=self._sample(), request=message["request"])
        except OSError as error:
            if error.errno in UNREACHABLE:
                absent = AbsentRanks([], [0], [UNREACHABLE_MACHINE])
        except (ValueError, KeyError, TypeError):
            pass  # not rank 0, or its last message is incomplete
        self._absent = absent
        self._answered.set()

    def _send(self, **message: object) -> None:
        assert self._socket is not None
        with self._sending:
            send(self._socket, message)


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """Sends a message; a peer that has disconnected does not need it."""
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def keep_alive(connection: socket.socket) -> None:
    """Lets the kernel notice a lost machine: `recv` raises TimeoutError then."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _connect(
    address: tuple[str, int], greeting: dict[str, Any]
) -> tuple[socket.socket, BinaryIO] | None:
    """Returns a connection to the monitor and its lines; None if it does not answer."""
    with contextlib.suppress(OSError, ValueError), contextlib.ExitStack() as failed:
        connection = failed.enter_context(socket.create_connection(address, CONNECT_TIMEOUT_S))
        lines = failed.enter_context(connection.makefile("rb"))
        send(connection, greeting)
        if lines.readline():
            connection.settimeout(None)
            keep_alive(connection)
            failed.pop_all()
            return connection, lines
    return None
