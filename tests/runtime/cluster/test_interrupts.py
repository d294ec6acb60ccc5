"""SIGTERM as an interrupt: never lost, never in the way of the tidying."""

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


def test_it_ends_the_work_and_leaves_the_tidying_alone():
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
def test_one_that_lands_where_objects_die_comes_again(times, capfd):
    """There Python prints an exception and continues."""
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupted_by_sigterm():
        for _ in range(times):
            Terminated()
        time.sleep(60)
    assert time.monotonic() - started < 30
    assert capfd.readouterr().err == ""


def test_one_that_lands_where_lost_ones_are_seen_to(monkeypatch):
    """While the first one's alarm is set."""
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


def test_other_exceptions_where_objects_die_are_said_as_ever(monkeypatch):
    class Broken:
        def __del__(self):
            raise ZeroDivisionError

    output = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: output.append(what.exc_type))
    with interrupted_by_sigterm():
        Broken()
    assert output == [ZeroDivisionError]


def test_one_that_a_library_swallows_ends_the_work_before_its_result_appears():
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


def test_a_second_one_ends_work_that_swallowed_the_first():
    with interrupted_by_sigterm():
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(60)


def test_a_lost_one_does_not_outlive_the_work():
    """The alarm that would bring it back goes with the block."""
    with interrupted_by_sigterm(), contextlib.suppress(KeyboardInterrupt):
        Terminated()
    time.sleep(0.05)


def test_handlers_of_before_come_back():
    got = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    try:
        with interrupted_by_sigterm():
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        assert got == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
