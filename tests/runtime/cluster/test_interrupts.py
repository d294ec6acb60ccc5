"""SIGTERM as an interrupt: never lost, and never raised during cleanup."""

import os
import signal
import time

import pytest

from runtime.cluster.signals import interrupted_by_sigterm, raise_if_interrupted

NUMBERS = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture(autouse=True)
def nothing_stays():
    """No test leaves a handler behind; the one before is restored."""
    original = signal.signal(signal.SIGTERM, lambda number, frame: None)
    before = [signal.getsignal(number) for number in NUMBERS]
    yield
    assert before == [signal.getsignal(number) for number in NUMBERS]
    signal.signal(signal.SIGTERM, original)


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
