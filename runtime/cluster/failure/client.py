"""Who is still there, when a collective has failed or takes long.

Horovod tells the survivors only that it has been shut down. So each rank keeps a TCP connection to
rank 0, on which nothing is said until rank 0 has waited for long, or a collective has failed. Then
it asks all of them where they are. After a failure the ranks that notice it report, and after a
moment all of them hear who did not, and whose connection is closed because it has ended.

Messages are lines of JSON:

    a rank:   {"token", "rank", "about"}, once; {"here": Whereabouts, "asked": n}; {"failed": true}
    rank 0:   {"welcome": true}, once; {"asked": n}; {"absent": Absent}, the last one
"""

import atexit
import contextlib
import errno
import fcntl
import json
import os
import socket
import sys
import termios
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from runtime.cluster.failure import messages as stall
from runtime.cluster.failure import stack_sample
from runtime.cluster.failure.stack_sample import Whereabouts

# After a failure Horovod lets go of every waiting rank within its cycle of some milliseconds.
ANSWER_AFTER_S = 3.0
# For an answer to the question where a rank is.
HERE_AFTER_S = 5.0
CONNECT_TIMEOUT_S = 2.0
_LONGEST_GREETING = 4096
# A machine that vanished is noticed after 15 + 3 * 5 seconds.
_KEEPALIVE = {socket.TCP_KEEPIDLE: 15, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}
UNREACHABLE = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
UNREACHABLE_MACHINE = "its machine does not answer any more"


class Absent(NamedTuple):
    """Ranks that did not report.

    Attributes:
      stuck: they are there, but did not come to the collective.
      ended: their process has ended, or their machine is gone.
      about: what is known of each of the ended, or where there are none, of the stuck ones.
    """

    stuck: list[int]
    ended: list[int]
    about: Sequence[str] = ()


class Caller:
    """Every rank's end, that of rank 0 too; without a connection where rank 0 cannot be reached.

    A thread of its own answers rank 0 when that asks where this rank is.

    Args:
      rank: this rank.
      address: of the desk.
      log: of this rank.
      look: gives where this process is.
      given_up: called in that thread, with the reason, when the others go on without this rank,
        which did not come to their collective.
    """

    def __init__(
        self,
        rank: int,
        address: dict,
        log: Path | None = None,
        look: Callable[[], Whereabouts] = stack_sample.look,
        given_up: Callable[[str], None] | None = None,
    ):
        self._rank, self._given_up = rank, given_up
        self._socket: socket.socket | None = None
        self._answer: Absent | None = None
        self._answered, self._sending, self._look = threading.Event(), threading.Lock(), look
        about = f"{socket.gethostname()}, pid {os.getpid()}{f', log {log}' if log else ''}"
        here = ["127.0.0.1"] if address["host"] == socket.gethostname() else []
        for host in here + address["addresses"]:
            to, greeting = (host, address["port"]), {"token": address["token"], "rank": rank}
            if connected := _connect(to, **greeting, about=about):
                self._socket, lines = connected
                # Before Horovod's end, which takes seconds: the others shall see it at once.
                atexit.register(self.close)
                threading.Thread(
                    target=self._listen, args=(lines,), name="roll call", daemon=True
                ).start()
                return

    def _listen(self, lines) -> None:
        absent = Absent([], [0])
        try:
            for line in lines:
                message = json.loads(line)
                if "absent" in message:
                    absent = Absent(*message["absent"])
                    break
                try:
                    here = self._look()
                except Exception as error:  # a silent rank would be called frozen
                    here = stack_sample.unknown(error)
                with self._sending:
                    send(self._socket, here=here, asked=message["asked"])
        except OSError as error:
            if error.errno in UNREACHABLE:
                absent = Absent([], [0], [UNREACHABLE_MACHINE])
        except (ValueError, KeyError, TypeError):
            pass  # who says that is not rank 0, or its last message broke off
        self._answer = absent
        self._answered.set()
        if self._given_up is not None and self._rank in absent.stuck:
            self._given_up(f"the others did not wait for rank {self._rank} any longer")

    def absent(self) -> Absent | None:
        """Reports that a collective failed here and waits for who did not; None if unknown."""
        if self._socket is None:
            return None
        with self._sending:
            send(self._socket, failed=True)
        # Rank 0 waits for others, and for what they say.
        if not self._answered.wait(max(ANSWER_AFTER_S, HERE_AFTER_S) + ANSWER_AFTER_S):
            return Absent(stuck=[0], ended=[], about=[stall.silent(None, HERE_AFTER_S)])
        return self._answer

    def close(self) -> None:
        """Leaves: the desk ends when all have."""
        atexit.unregister(self.close)
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def _connect(to: tuple[str, int], **greeting: object) -> tuple[socket.socket, BinaryIO] | None:
    """A connection to the desk and the lines that come on it; None if it is not there."""
    with contextlib.suppress(OSError, ValueError), contextlib.ExitStack() as failed:
        own = failed.enter_context(socket.create_connection(to, timeout=CONNECT_TIMEOUT_S))
        lines = failed.enter_context(own.makefile("rb"))
        send(own, **greeting)
        if lines.readline():
            own.settimeout(None)
            keep_alive(own)
            failed.pop_all()
            return own, lines
    return None


class Connection:
    """A rank's connection, as rank 0 sees it; `rank` is None until it has said who it is."""

    def __init__(self, own: socket.socket):
        own.settimeout(CONNECT_TIMEOUT_S)
        keep_alive(own)
        self.socket, self.rank, self._received = own, None, b""

    def receive(self) -> list[dict] | None:
        """The messages that have come; None at its end, or where none of ours is spoken."""
        received = self.socket.recv(65536)
        if not received:
            return None
        *lines, self._received = (self._received + received).split(b"\n")
        longest = max(map(len, (*lines, self._received)))
        if self.rank is None and longest > _LONGEST_GREETING:
            return None
        try:
            messages = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            return None
        return messages if all(isinstance(message, dict) for message in messages) else None

    def send(self, **message: object) -> None:
        send(self.socket, **message)

    def has_all(self) -> bool:
        """Whether the other machine has confirmed all that was sent to it."""
        queued = fcntl.ioctl(self.socket, termios.TIOCOUTQ, bytes(4))
        return int.from_bytes(queued, sys.byteorder) == 0


def keep_alive(connection: socket.socket) -> None:
    """Lets the kernel notice that the other machine is gone: `recv` raises TimeoutError then."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    whole_ms = 1000 * (15 + 3 * 5)  # the same where something was sent and is not confirmed
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, whole_ms)


def send(connection: socket.socket, **message: object) -> None:
    """Sends a message; who has gone does not need it."""
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")
