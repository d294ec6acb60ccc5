"""SIGTERM and SIGINT: as a stop request to a training, as an interrupt, or ignored."""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

# Launchers and terminals may deliver one request several times.
_SAME_REQUEST_S = 1.0

Handler = Callable[[int, FrameType | None], Any] | int | None

# Whether SIGTERM came within `interrupted_by_sigterm`; per process, as signals are.
_interrupted = False


class StopSignal:
    """While entered, the first SIGTERM or SIGINT is recorded instead of ending the process.

    A second SIGINT, a second or more later, raises KeyboardInterrupt: Ctrl-C twice ends at once.
    Further SIGTERMs change nothing: launchers send them to groups and to processes. Leaving
    restores the previous handlers, except where others have installed one in the meantime.
    """

    def __init__(self) -> None:
        self.name: str | None = None  # "SIGTERM" or "SIGINT"
        self._time = 0.0
        self._previous: dict[int, Handler] = {}

    def __enter__(self) -> "StopSignal":
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            if signal.getsignal(number) == self._receive:
                signal.signal(number, handler or signal.SIG_DFL)  # None: not installed by Python

    def _receive(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.name is None:
            self.name, self._time = signal.Signals(number).name, now
        elif number == signal.SIGINT and now - self._time > _SAME_REQUEST_S:
            raise KeyboardInterrupt


def ignore_sigterm() -> None:
    """Ignores SIGTERM from now on, in a process that is about to end.

    Launchers send it to all other processes when one has ended, before they report why they end.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextlib.contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """While entered, SIGTERM raises KeyboardInterrupt as Ctrl-C does, so that a command cleans up.

    Another SIGTERM does not interrupt the cleanup. An interrupt may be lost: in a finalizer
    (`__del__`), or in a library that catches everything. `raise_if_interrupted` raises it again.
    """
    global _interrupted

    def interrupt(number: int, frame: FrameType | None) -> None:
        global _interrupted
        _interrupted = True
        if not _handles_interrupt():
            raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous or signal.SIG_DFL)  # None: not installed by Python
        _interrupted = False


def raise_if_interrupted() -> None:
    """Raises KeyboardInterrupt if SIGTERM came within `interrupted_by_sigterm`.

    Call it before a result becomes visible: work that still runs then has lost its interrupt.
    """
    if _interrupted:
        raise KeyboardInterrupt


def _handles_interrupt() -> bool:
    """Returns whether an interrupt is propagating while `finally` clauses and the like clean up."""
    error: BaseException | None = sys.exc_info()[1]
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None
