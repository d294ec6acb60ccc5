"""The first SIGTERM or SIGINT requests a stop, a second Ctrl-C forces it."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from runtime.cluster.signals import StopSignal, ignore_sigterm


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when a test advances them."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(
        "runtime.cluster.signals.time", SimpleNamespace(monotonic=lambda: clock.now)
    )
    return clock


@pytest.fixture(autouse=True)
def handlers():
    """No test leaves a handler behind."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    yield
    assert before == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]


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
