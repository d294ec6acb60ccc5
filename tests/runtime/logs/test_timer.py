import math

import pytest

from runtime.logs.timer import LatencyTimer, StepTimer


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def _steps(timer, clock, count, seconds, samples=10):
    for _ in range(count):
        clock.now += seconds
        timer.step(samples)


def test_warm_up():
    """A lap, and the mean, begin after the warm-up, also within a lap."""
    clock = Clock()
    timer = StepTimer(warmup_steps=2, clock=clock)
    _steps(timer, clock, 2, seconds=50)
    assert math.isnan(timer.lap()) and math.isnan(timer.mean_throughput())
    _steps(timer, clock, 4, seconds=0.5)
    assert timer.lap() == 40 / 2
    _steps(timer, clock, 1, seconds=3)
    assert timer.lap() == pytest.approx(10 / 3)
    assert timer.mean_throughput() == 50 / 5
    assert timer.elapsed_s == 105
    clock.now += 1
    assert math.isnan(timer.lap())
    across = StepTimer(warmup_steps=1, clock=clock)
    _steps(across, clock, 1, seconds=100)
    _steps(across, clock, 3, seconds=1)
    assert across.lap() == 10


def test_pauses():
    clock = Clock()
    timer = StepTimer(warmup_steps=0, clock=clock)
    _steps(timer, clock, 2, seconds=1)
    with timer.paused():
        clock.now += 1000
    assert timer.lap() == 10
    _steps(timer, clock, 2, seconds=2)
    with pytest.raises(KeyError), timer.paused():
        clock.now += 7
        raise KeyError
    assert timer.lap() == 5
    assert timer.mean_throughput() == pytest.approx(40 / 6)
    assert timer.elapsed_s == 1013


def test_latency_statistics_by_hand():
    clock = Clock()
    timer = LatencyTimer(warmup_steps=2, clock=clock)
    for milliseconds in [9000, 8000, *range(1, 102)]:
        with timer.measure(3):
            clock.now += milliseconds / 1e3
        clock.now += 1  # between requests
    statistics = timer.statistics()
    names = [f"latency_{kind}" for kind in ("mean", "p50", "p90", "p95", "p99")]
    assert list(statistics) == [*names, "throughput", "num_measurements"]
    # 1..101 ms: the percentile q is 1 + q.
    assert list(statistics.values()) == pytest.approx([51, 51, 91, 96, 100, 303 / 5.151, 101])


def test_latency_without_a_measurement_after_the_warm_up():
    timer = LatencyTimer(warmup_steps=3)
    timer.record(0.010, 1)
    with pytest.raises(ValueError, match="1 batches were measured and the first 3 are warm-up"):
        timer.statistics()


def test_statistics_of_an_epoch():
    clock = Clock()
    timer = StepTimer(warmup_steps=1, clock=clock, epochs=True)
    for duration_s in (5, 1, 3):  # the first is warm-up
        _steps(timer, clock, 1, duration_s)
    first = timer.end_epoch()
    assert first["epoch_s"] == 9 and first["throughput"] == pytest.approx(20 / 4)
    assert first["latency_mean"] == pytest.approx(2000)
    with timer.paused():
        clock.now += 100
    _steps(timer, clock, 1, 2)
    second = timer.end_epoch()
    assert second["epoch_s"] == 2 and second["latency_p99"] == pytest.approx(2000)
    assert timer.end_epoch() == {"epoch_s": 0}


def test_wait_for_the_device_in_a_lap():
    """A host that runs ahead: steps of 1 ms to start, 1 s to wait for ten of them."""
    clock = Clock()
    timer = StepTimer(warmup_steps=0, clock=clock, epochs=True)
    for _ in range(5):
        _steps(timer, clock, 10, 0.001, samples=100)
        clock.now += 1
        timer.lap()
    epoch = timer.end_epoch()
    assert epoch["throughput"] == pytest.approx(100 * 50 / 5.05) == timer.mean_throughput()
    assert epoch["latency_mean"] == pytest.approx(101) and epoch["epoch_s"] == pytest.approx(5.05)
