"""SIGTERM as an interrupt: never lost, and never raised during cleanup."""

import contextlib
import os
import signal
import sys
import time

import pytest

from runtime.cluster.signals import interrupted_by_sigterm, raise_if_interrupted

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)


@pytest.fixture(autouse=True)
def nothing_stays():
    """No test leaves a handler, a hook or an alarm behind."""
    before = [signal.getsignal(number) for number in NUMBERS], sys.unraisablehook
    yield
    assert before == ([signal.getsignal(number) for number in NUMBERS], sys.unraisablehook)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


class Terminated:
    """Gets a SIGTERM in its finalizer, from which no exception propagates."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)


def test_interrupt_of_the_work_and_not_of_the_cleanup():
    tidied = []
    with interrupted_by_sigterm(), pytest.raises(KeyboardInterrupt):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        finally:
            for _ in range(3):  # of a launcher that repeats it
                os.kill(os.getpid(), signal.SIGTERM)
            tidied.append("all")
    assert tidied == ["all"]


@pytest.mark.parametrize("times", [1, 3])
def test_interrupt_in_a_finalizer(times, capfd):
    """Python prints exceptions of finalizers and continues."""
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupted_by_sigterm():
        for _ in range(times):
            Terminated()
        time.sleep(60)
    assert time.monotonic() - started < 30
    assert capfd.readouterr().err == ""


def test_interrupt_in_the_recovery_of_lost_interrupts(monkeypatch):
    """An interrupt arrives while the alarm for a lost one is set."""
    setitimer, times = signal.setitimer, []

    def interrupted(which, seconds):
        times.append(seconds)
        if len(times) == 1:
            signal.raise_signal(signal.SIGTERM)
        setitimer(which, seconds)

    with pytest.raises(KeyboardInterrupt), interrupted_by_sigterm():
        monkeypatch.setattr(signal, "setitimer", interrupted)
        Terminated()
        time.sleep(60)
    assert len(times) >= 2


def test_other_exceptions_in_finalizers(monkeypatch):
    class Broken:
        def __del__(self):
            raise ZeroDivisionError

    output = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: output.append(what.exc_type))
    with interrupted_by_sigterm():
        Broken()
    assert output == [ZeroDivisionError]


def test_interrupt_swallowed_by_a_library():
    with interrupted_by_sigterm():
        raise_if_interrupted()
        with pytest.raises(KeyboardInterrupt):
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(60)
            except:  # noqa: E722 - converters have such clauses
                pass
            raise_if_interrupted()
    with interrupted_by_sigterm():
        raise_if_interrupted()  # of the one before


def test_second_interrupt_after_a_swallowed_one():
    with interrupted_by_sigterm():
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(60)


def test_lost_interrupt_after_the_work():
    """The end of the block cancels the alarm that would repeat the interrupt."""
    with interrupted_by_sigterm(), contextlib.suppress(KeyboardInterrupt):
        Terminated()
    time.sleep(0.05)


def test_previous_handlers():
    got = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    try:
        with interrupted_by_sigterm():
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        assert got == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
