"""Signals to trainings: the first one requests a stop, a second Ctrl-C forces it. Signals to tools:
an interrupt, which is never lost, and never raised during cleanup."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from runtime.cluster.signals import (
    StopSignal,
    ignore_sigterm,
    interrupted_by_sigterm,
    raise_if_interrupted,
)


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when a test advances them."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(
        "runtime.cluster.signals.time", SimpleNamespace(monotonic=lambda: clock.now)
    )
    return clock


NUMBERS = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture(autouse=True)
def nothing_stays():
    """No test leaves a handler behind; the one before is restored."""
    original = signal.signal(signal.SIGTERM, lambda number, frame: None)
    before = [signal.getsignal(number) for number in NUMBERS]
    yield
    assert before == [signal.getsignal(number) for number in NUMBERS]
    signal.signal(signal.SIGTERM, original)


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_second_ctrl_c(clock, first):
    with pytest.raises(KeyboardInterrupt), StopSignal() as signals:
        assert signals.name is None
        signal.raise_signal(first)
        assert signals.name == first.name
        clock.now += 1.01
        signal.raise_signal(signal.SIGINT)


def test_repeated_signals(clock):
    """A terminal and a launcher deliver Ctrl-C within a second, and SIGTERM at any time."""
    with StopSignal() as signals:
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
            clock.now += 0.3
        for _ in range(5):
            clock.now += 10
            signal.raise_signal(signal.SIGTERM)
        assert signals.name == "SIGINT"


def test_previous_handlers(clock):
    got = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    try:
        with pytest.raises(ZeroDivisionError), StopSignal():
            raise ZeroDivisionError
        signal.raise_signal(signal.SIGTERM)
        assert got == [signal.SIGTERM]
        # Left with an error; the launcher's SIGTERM comes before that was printed.
        with pytest.raises(ZeroDivisionError), StopSignal():
            ignore_sigterm()
            raise ZeroDivisionError
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_ctrl_c_while_waiting():
    """The main thread waits for a thread, as a training does for the end of a slow save."""
    program = """
import os, threading, time
from runtime.cluster.signals import StopSignal
class Loud(StopSignal):
    def _receive(self, number, frame):
        super()._receive(number, frame)
        os.write(1, b"heard\\n")  # print may be interrupted in its own flush
with Loud():
    thread = threading.Thread(target=time.sleep, args=(600,), daemon=True)
    thread.start()
    os.write(1, b"waiting\\n")
    thread.join()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "waiting\n"
        os.kill(process.pid, signal.SIGINT)
        assert process.stdout.readline() == "heard\n"
        time.sleep(1.1)
        assert process.poll() is None
        os.kill(process.pid, signal.SIGINT)
        _, output = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in output


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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupt_in_a_finalizer():
    """Python prints exceptions of finalizers and continues; the result is not published."""
    with pytest.raises(KeyboardInterrupt), interrupted_by_sigterm():
        Terminated()
        raise_if_interrupted()


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
    try:
        raise_if_interrupted()
    except KeyboardInterrupt:
        pytest.fail("an interrupt of earlier work")
    with interrupted_by_sigterm():
        for _ in range(2):  # the first one is swallowed
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(60)
