"""SIGTERM and SIGINT as a wish that a training fulfils when it can; SIGTERM as an interrupt; or not
heard at all."""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import CodeType, FrameType

# Launchers and terminals may deliver one wish several times.
_SAME_WISH_S = 1.0

# After so long an interrupt that got lost is raised again: objects die in microseconds.
_AGAIN_S = 0.01

# Whether SIGTERM came within the latest `interrupted_by_sigterm`; of a process, as signals are.
_interrupted = False


class StopSignal:
    """While entered, the first SIGTERM or SIGINT is remembered instead of ending the process.

    A second SIGINT, a second or more later, raises KeyboardInterrupt: Ctrl-C twice ends at once.
    SIGTERM stays a wish however often it comes: launchers send it to groups and to processes.
    Leaving restores what was there before, unless others have set a handler of their own meanwhile.

    Attributes:
      name: "SIGTERM" or "SIGINT", None as long as there was none.
    """

    def __init__(self):
        self.name: str | None = None
        self._at = 0.0
        self._before: dict[int, object] = {}

    def __enter__(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *exception):
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._receive:
                # None: a handler that was not installed from Python.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _receive(self, number, frame):
        now = time.monotonic()
        if self.name is None:
            self.name, self._at = signal.Signals(number).name, now
        elif number == signal.SIGINT and now - self._at > _SAME_WISH_S:
            raise KeyboardInterrupt


def ignore_sigterm() -> None:
    """From now on SIGTERM does not disturb this process, which is about to end by itself.

    A launcher sends it to all others as soon as one process has ended, and they have yet to say
    why they end.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextlib.contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """While entered, SIGTERM raises KeyboardInterrupt as Ctrl-C does, so that a command tidies up;
    another one does not disturb the tidying.

    An exception that is raised where an object dies (`__del__`) or in some callbacks is printed by
    Python, and the work goes on. So an interrupt that lands there is raised again, a moment later,
    until it lands where it ends the work. One that somebody else catches and drops, as clauses of
    libraries do that catch everything, `raise_if_interrupted` raises again.
    """
    global _interrupted
    _interrupted = False

    def interrupt(number, frame):
        global _interrupted
        _interrupted = True
        if _is_within(frame, lost.__code__):
            again()
        elif not _handles_interrupt():
            raise KeyboardInterrupt

    def again() -> None:
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)

    def lost(what) -> None:
        # From here, too, an exception would get lost: an alarm raises it behind.
        if issubclass(what.exc_type, KeyboardInterrupt):
            again()
        else:
            hook(what)

    hook, sys.unraisablehook = sys.unraisablehook, lost
    before = {
        number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGALRM)
    }
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            # None: a handler that was not installed from Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        sys.unraisablehook = hook


def raise_if_interrupted() -> None:
    """Raises KeyboardInterrupt where SIGTERM came within `interrupted_by_sigterm`.

    To be called right before a result appears: work that is still going on has lost its interrupt.
    """
    if _interrupted:
        raise KeyboardInterrupt


def _is_within(frame: FrameType | None, code: CodeType) -> bool:
    """Whether a frame, or one that called it, runs some code."""
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def _handles_interrupt() -> bool:
    """Whether an interrupt is on its way out, and `finally` clauses and the like tidy up."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None
