"""SIGTERM and SIGINT as a wish that a training fulfils when it can; SIGTERM as an interrupt; or not
heard at all."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator

# Launchers and terminals may deliver one wish several times.
_SAME_WISH_S = 1.0


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
    another one does not disturb the tidying."""

    def interrupt(number, frame):
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        # None: a handler that was not installed from Python.
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
