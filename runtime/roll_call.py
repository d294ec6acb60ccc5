"""Who is still there, when a collective has failed.

Horovod tells the survivors only that it has been shut down. So each rank keeps a TCP connection to
rank 0, on which nothing is said until a collective fails. Then the ranks that notice it report, and
after a moment all of them hear who did not, and whose connection is closed because it has ended.
"""

import contextlib
import hmac
import json
import math
import secrets
import selectors
import socket
import threading
import time
from typing import NamedTuple

# After a failure Horovod lets go of every waiting rank within its cycle of some milliseconds.
ANSWER_AFTER_S = 3.0
_CONNECT_TIMEOUT_S = 2.0


class Absent(NamedTuple):
    """Ranks that did not report.

    Attributes:
      stuck: they are there, but did not come to the collective.
      ended: their process has ended.
    """

    stuck: list[int]
    ended: list[int]


class Desk:
    """Rank 0's end: a socket and a thread that waits for reports.

    Attributes:
      address: what the other ranks need to find it, as JSON-able values.
    """

    def __init__(self, size: int):
        self._size = size
        self._socket = socket.create_server(("", 0), backlog=size)
        self.address = {
            "host": socket.gethostname(),
            "addresses": _own_addresses(),
            "port": self._socket.getsockname()[1],
            "token": secrets.token_hex(16),
        }
        threading.Thread(target=self._serve, name="roll call", daemon=True).start()

    def _serve(self) -> None:
        rank_of: dict[socket.socket, int] = {}
        reported: set[int] = set()
        ended: set[int] = set()
        answer_at = math.inf
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            while len(reported | ended) < self._size and time.monotonic() < answer_at:
                wait_s = None if answer_at == math.inf else max(0.0, answer_at - time.monotonic())
                for key, _ in selector.select(wait_s):
                    caller = key.fileobj
                    if caller is self._socket:
                        caller = self._welcome(rank_of)
                        if caller is not None:
                            selector.register(caller, selectors.EVENT_READ)
                    elif _receive(caller).get("failed"):
                        reported.add(rank_of[caller])
                        answer_at = min(answer_at, time.monotonic() + ANSWER_AFTER_S)
                    else:
                        ended.add(rank_of.pop(caller))
                        selector.unregister(caller)
        absent = set(range(self._size)) - reported
        # Rank 0 last: this thread ends with its process.
        for caller in sorted(rank_of, key=rank_of.__getitem__, reverse=True):
            _send(caller, stuck=sorted(absent - ended), ended=sorted(absent & ended))

    def _welcome(self, rank_of: dict[socket.socket, int]) -> socket.socket | None:
        """A new connection; None if it is not one of our ranks."""
        caller, _ = self._socket.accept()
        caller.settimeout(_CONNECT_TIMEOUT_S)
        message = _receive(caller)
        if not hmac.compare_digest(
            str(message.get("token")).encode(), self.address["token"].encode()
        ):
            caller.close()
            return None
        rank_of[caller] = message["rank"]
        _send(caller, welcome=True)
        return caller


class Caller:
    """Every rank's end, that of rank 0 too; without a connection where rank 0 cannot be reached."""

    def __init__(self, rank: int, address: dict):
        self._socket: socket.socket | None = None
        self._answer: Absent | None = None
        here = ["127.0.0.1"] if address["host"] == socket.gethostname() else []
        for host in here + address["addresses"]:
            with contextlib.suppress(OSError):
                to = (host, address["port"])
                candidate = socket.create_connection(to, timeout=_CONNECT_TIMEOUT_S)
                _send(candidate, token=address["token"], rank=rank)
                if _receive(candidate):
                    self._socket = candidate
                    return

    def absent(self) -> Absent | None:
        """Reports that a collective failed here and waits for who did not; None if unknown."""
        if self._answer is None and self._socket is not None:
            self._socket.settimeout(2 * ANSWER_AFTER_S)
            _send(self._socket, failed=True)
            try:
                text = self._socket.makefile("rb").readline()
            except TimeoutError:
                self._answer = Absent(stuck=[0], ended=[])
            except OSError:
                self._answer = Absent(stuck=[], ended=[0])
            else:
                self._answer = Absent(**json.loads(text)) if text else Absent([], [0])
        return self._answer


def _own_addresses() -> list[str]:
    """IPv4 addresses of this machine but for loopback."""
    import psutil

    return [
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET and not entry.address.startswith("127.")
    ]


def _send(connection: socket.socket, **message: object) -> None:
    """Sends a message; who has gone does not need it."""
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def _receive(connection: socket.socket) -> dict:
    """The next short message; empty at the end of a connection, or where none of ours is spoken.

    A caller waits for its welcome, so that messages never run together.
    """
    try:
        message = json.loads(connection.recv(1024) or b"{}")
    except (OSError, ValueError):
        return {}
    return message if isinstance(message, dict) else {}
