"""Rank 0's end of the roll call: it hears who has a failed collective, and asks who has not."""

import errno
import hmac
import math
import resource
import secrets
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable

from runtime.cluster.failure import client, stack_sample
from runtime.cluster.failure import messages as stall
from runtime.cluster.failure.client import Connection
from runtime.cluster.failure.stack_sample import Whereabouts

# Rank 0 looks twice before it says who is missing, so far apart.
LOOK_AGAIN_AFTER_S = 2.0
# When every rank has tried each of rank 0's addresses.
ALL_HAVE_CALLED_AFTER_S = 30.0
GREET_WITHIN_S = 10.0
_ENDED = "its process has ended"
# No connection can be taken until something else is closed.
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_LISTEN_AGAIN_AFTER_S = 1.0
_OTHER_DESCRIPTORS = 256  # that rank 0 has open


class Desk:
    """Rank 0's end: a socket and a thread that waits for reports.

    Args:
      size: number of ranks.
      early_s: once rank 0 has stood still for so long, it says which ranks are missing, if that can
        be seen; again after twice, four times, ... as long.
      timeout_s: after which Horovod ends the training; 0: never.
      still_s: gives how long rank 0 has stood still.
      say: prints a sentence.
      end: ends this process, and so the job, where a rank says nothing for timeout_s and Horovod
        would wait for it; None: Horovod does not wait.

    Attributes:
      address: what the other ranks need to find it, as JSON-able values.
    """

    def __init__(
        self,
        size: int,
        early_s: float = math.inf,
        timeout_s: float = 0.0,
        still_s: Callable[[], float] = stack_sample.still_s,
        say: Callable[[str], None] | None = None,
        end: Callable[[], None] | None = None,
    ):
        self._size, self._early_s, self._timeout_s = size, early_s, timeout_s
        self._still_s, self._say, self._end = still_s, say or _to_stderr, end
        _allow_descriptors(size + _OTHER_DESCRIPTORS)
        self._socket = socket.create_server(("", 0), backlog=max(size, 16))
        self.address = {
            "host": socket.gethostname(),
            "addresses": _own_addresses(),
            "port": self._socket.getsockname()[1],
            "token": secrets.token_hex(16),
        }
        self._selector = selectors.DefaultSelector()
        self._listen_again_at = math.inf
        self._say_unreached_at = time.monotonic() + ALL_HAVE_CALLED_AFTER_S
        self._strangers: dict[Connection, float] = {}  # until when each of them must greet
        self._callers: dict[int, Connection] = {}
        self._about: dict[int, str] = {}  # of all that have ever called
        self._gone: dict[int, str] = {}  # how their connections ended
        self._reported: set[int] = set()
        self._first_report_at = math.inf
        self._asked, self._asked_at = 0, 0.0
        self._here: dict[int, Whereabouts] = {}  # answers to the last question
        self._seen: list[dict[int, Whereabouts]] = []  # of the looks of one early report
        self._next_early_s, self._waited_s = early_s, 0.0
        threading.Thread(target=self._serve, name="roll call", daemon=True).start()

    def _serve(self) -> None:
        self._selector.register(self._socket, selectors.EVENT_READ)
        while len(self._reported | set(self._gone)) < self._size and not self._is_time_to_answer():
            for key, _ in self._selector.select(self._pause_s()):
                self._hear(key)
            self._mind_the_door()
            if not self._reported:
                self._say_who_is_not_reached()
                self._watch()
        self._answer()
        self._selector.close()
        self._socket.close()

    def _pause_s(self) -> float | None:
        """How long nothing is to be done unless somebody calls; None: for ever."""
        if self._reported or self._asked_at or self._waited_s:
            return 0.2
        at = (self._listen_again_at, self._say_unreached_at, *self._strangers.values())
        pause_s = max(0.05, min(at) - time.monotonic())
        if self._early_s < math.inf:
            next_early_s = max(0.05, self._next_early_s - self._still_s())
            pause_s = min(pause_s, self._early_s, next_early_s)
        return pause_s if pause_s < math.inf else None

    def _hear(self, key: selectors.SelectorKey) -> None:
        """Takes a new connection, or what has come on one."""
        if key.fileobj is self._socket:
            self._accept()
            return
        caller, how = key.data, _ENDED
        try:
            messages = caller.receive()
        except OSError as error:
            messages = None
            if error.errno in client.UNREACHABLE:
                how = client.UNREACHABLE_MACHINE
        for message in messages or ():
            if caller.rank is None and not self._welcome(caller, message):
                messages = None
                break
            if message.get("failed") and caller.rank not in self._reported:
                self._reported.add(caller.rank)
                self._report_begins()
            if message.get("asked") == self._asked and "here" in message:
                self._here[caller.rank] = Whereabouts(*message["here"])
        if messages is None:
            self._part_with(caller)
            # A rank that got no answer in time has called again, on another connection.
            if self._callers.get(caller.rank) is caller:
                self._gone[caller.rank] = how
                del self._callers[caller.rank]

    def _accept(self) -> None:
        try:
            own, _ = self._socket.accept()
        except OSError as error:  # it may have gone again
            if error.errno in _NO_ROOM:  # the selector would call at once, and again
                self._selector.unregister(self._socket)
                self._listen_again_at = time.monotonic() + _LISTEN_AGAIN_AFTER_S
            return
        try:
            stranger = Connection(own)
        except OSError:
            own.close()
            return
        self._selector.register(own, selectors.EVENT_READ, stranger)
        self._strangers[stranger] = time.monotonic() + GREET_WITHIN_S

    def _mind_the_door(self) -> None:
        """Listens again, and parts with those who do not say who they are."""
        now = time.monotonic()
        if now >= self._listen_again_at:
            self._listen_again_at = math.inf
            self._selector.register(self._socket, selectors.EVENT_READ)
        for stranger in [it for it, until in self._strangers.items() if now >= until]:
            self._part_with(stranger)

    def _part_with(self, caller: Connection) -> None:
        self._strangers.pop(caller, None)
        self._selector.unregister(caller.socket)
        caller.socket.close()

    def _welcome(self, caller: Connection, message: dict) -> bool:
        """Whether a new connection is one of our ranks."""
        token = str(message.get("token")).encode(errors="replace")
        if not hmac.compare_digest(token, self.address["token"].encode()):
            return False
        rank, about = message.get("rank"), message.get("about")
        if type(rank) is not int or not 0 <= rank < self._size or not isinstance(about, str):
            return False
        del self._strangers[caller]
        self._gone.pop(rank, None)
        caller.rank, self._callers[rank], self._about[rank] = rank, caller, about
        caller.send(welcome=True)
        return True

    def _ask(self) -> None:
        """Asks all where they are."""
        self._asked, self._asked_at, self._here = self._asked + 1, time.monotonic(), {}
        for caller in self._callers.values():
            caller.send(asked=self._asked)

    # While nobody reports a failure.

    def _say_who_is_not_reached(self) -> None:
        """Once, when all have had the time to call."""
        if time.monotonic() < self._say_unreached_at:
            return
        self._say_unreached_at = math.inf
        if unreached := [rank for rank in range(self._size) if rank not in self._about]:
            self._say(stall.unreached(unreached, self.address["host"], self.address["port"]))

    def _watch(self) -> None:
        """Says who is missing when rank 0 has waited for long, and when that is over."""
        still_s = self._still_s()
        if still_s < self._early_s:
            if self._waited_s:
                self._say(f"note: the ranks go on after {self._waited_s:.0f} s")
            self._asked_at, self._seen, self._waited_s = 0.0, [], 0.0
            self._next_early_s = self._early_s
            return
        if self._waited_s:
            self._waited_s = still_s
        # A rank whose process has ended is Horovod's to notice, at once; or the run is at its end.
        if still_s < self._next_early_s or _ENDED in self._gone.values():
            return
        if not self._asked_at:
            self._ask()
        asked_for_s = time.monotonic() - self._asked_at
        complete = self._here.keys() >= self._callers.keys() or asked_for_s > client.HERE_AFTER_S
        if not complete or (not self._seen and asked_for_s < LOOK_AGAIN_AFTER_S):
            return
        self._seen.append(self._here)
        if len(self._seen) == 1:
            self._ask()
            return
        self._report_early(still_s)
        self._asked_at, self._seen = 0.0, []
        next_early_s = 2 * self._next_early_s
        if self._next_early_s < self._timeout_s:  # one report is at the time-out
            next_early_s = min(next_early_s, self._timeout_s)
        self._next_early_s = next_early_s

    def _report_early(self, still_s: float) -> None:
        before, now = self._seen
        # Who could never connect may compute as all others do.
        known = sorted(self._about)
        missing = set(stall.missing(before, known)) & set(stall.missing(now, known))
        if missing := sorted(r for r in missing if before.get(r) == now.get(r)):
            about = [self._describe(rank) for rank in missing]
            if self._end and 0 < self._timeout_s <= still_s and not now.keys() & set(missing):
                who = stall.sentence(missing, [], about, self._timeout_s)
                self._say(f"error: the {self._size} processes cannot go on: {who}")
                self._end()
            self._say(stall.early(missing, about, still_s, self._timeout_s))
            self._waited_s = still_s

    # After a failure.

    def _report_begins(self) -> None:
        if self._first_report_at == math.inf:
            self._first_report_at = time.monotonic()
            self._ask()

    def _is_time_to_answer(self) -> bool:
        """Whether all had the time to report, and those that did not to say where they are."""
        since_s = time.monotonic() - self._first_report_at
        silent = self._callers.keys() - self._reported - self._here.keys()
        patience_s = client.ANSWER_AFTER_S
        if silent and not self._gone:
            patience_s = max(patience_s, client.HERE_AFTER_S)
        return since_s > patience_s

    def _answer(self) -> None:
        absent = set(range(self._size)) - self._reported
        ended = sorted(absent & self._gone.keys())
        stuck = sorted(absent - self._gone.keys())
        about = [self._describe(rank) for rank in ended or stuck]
        # Rank 0 last: this thread ends with its process.
        for rank in sorted(self._callers, reverse=True):
            self._callers[rank].send(absent=client.Absent(stuck, ended, about))

    def _describe(self, rank: int) -> str:
        """What is known of a rank that is missing."""
        who = self._about.get(rank, "never seen")
        if rank in self._gone:
            return who if self._gone[rank] == _ENDED else f"{who}: {self._gone[rank]}"
        if rank not in self._callers:
            return f"{who}, not connected to rank 0"
        if rank not in self._here:
            return f"{who}, {stall.silent(self._callers[rank].has_all(), client.HERE_AFTER_S)}"
        others = [here.step for other, here in self._here.items() if other != rank]
        return f"{who}, {stall.where(self._here[rank], others)}"


def _allow_descriptors(number: int) -> None:
    """Raises this process's limit of open files where it is lower, as far as that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = number if hard == resource.RLIM_INFINITY else min(number, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def _own_addresses() -> list[str]:
    """IPv4 addresses of this machine but for loopback."""
    import psutil

    return [
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET and not entry.address.startswith("127.")
    ]


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
