"""Throughput of a loop without evaluations and first steps, and latency statistics."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np


class StepTimer:
    """Samples per second between prints and over the run.

        timer = StepTimer(warmup_steps=10)
        for ...:
            train_step()
            timer.step(batch_size)
            if print:
                loss.numpy()                  # wait for the device: step() itself never does
                log(timer.lap())

    The first `warmup_steps` steps (tracing, compilation, page faults) and pauses count neither in a
    lap nor in the mean. If the device runs ahead of the host, call lap() and paused() after waiting
    for it. With `epochs` the time of each step is kept for `end_epoch()`.
    """

    def __init__(
        self,
        warmup_steps: int = 10,
        clock: Callable[[], float] = time.perf_counter,
        epochs: bool = False,
    ):
        self._warmup_steps, self._clock = warmup_steps, clock
        self._start = clock()
        self._steps = 0
        self._paused_s = 0.0
        self._latencies = LatencyTimer(0, clock) if epochs else None
        self._since_lap: list[tuple[float, int]] = []  # duration and samples of a step
        self._epoch_start = 0.0
        self.epoch_samples = 0  # since the last call of `end_epoch`, warm-up included
        self._reset_counts()

    def _reset_counts(self) -> None:
        self._mean_start = self._lap_start = self._last_step = self._active_s()
        self._samples = self._lap_samples = 0

    def _active_s(self) -> float:
        return self.elapsed_s - self._paused_s

    @property
    def elapsed_s(self) -> float:
        """Seconds since the timer was created, pauses and warm-up included."""
        return self._clock() - self._start

    def step(self, num_samples: int) -> None:
        """Counts a step of `num_samples` samples (of all ranks, for a global throughput)."""
        self._steps += 1
        self.epoch_samples += num_samples
        if self._steps <= self._warmup_steps:
            self._reset_counts()
            return
        self._samples += num_samples
        self._lap_samples += num_samples
        now = self._active_s()
        if self._latencies is not None:
            self._since_lap.append((now - self._last_step, num_samples))
        self._last_step = now

    def lap(self) -> float:
        """Returns samples per second since the last lap; NaN if no step counted."""
        now = self._active_s()
        rate = _rate(self._lap_samples, now - self._lap_start)
        waited_s = now - self._last_step  # for the device, which computed these steps
        if self._latencies is not None:
            for duration_s, samples in self._since_lap:
                self._latencies.record(duration_s + waited_s / len(self._since_lap), samples)
        self._since_lap = []
        self._lap_start, self._lap_samples = now, 0
        self._last_step = now if self._samples else self._last_step
        return rate

    def mean_throughput(self) -> float:
        """Returns samples per second from the end of the warm-up to the last step or lap."""
        return _rate(self._samples, self._last_step - self._mean_start)

    def end_epoch(self) -> dict[str, float]:
        """Ends an epoch and a lap; returns measurements since the last call.

        `throughput` and latencies as of `LatencyTimer`, without the warm-up, and `epoch_s`, the
        seconds of all steps without pauses. The latency of a step is the time since the previous
        one; time that `lap` waited for the device is distributed over the steps of the lap.
        """
        assert self._latencies is not None
        self.lap()
        now = self._active_s()
        values = {"epoch_s": now - self._epoch_start}
        if self._latencies.measurements:
            values |= self._latencies.statistics()
            del values["num_measurements"]
        self._epoch_start, self.epoch_samples = now, 0
        self._latencies = LatencyTimer(0, self._clock)
        return values

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the block: evaluation, saving a checkpoint."""
        start = self._clock()
        try:
            yield
        finally:
            self._paused_s += self._clock() - start


class LatencyTimer:
    """Latency of single requests or batches.

        timer = LatencyTimer(warmup_steps=10)
        for batch in batches:
            with timer.measure(batch_size):
                model(batch).numpy()          # without .numpy() only the dispatch is measured
        timer.statistics()

    The first `warmup_steps` measurements do not count.
    """

    def __init__(self, warmup_steps: int = 10, clock: Callable[[], float] = time.perf_counter):
        self._warmup_steps, self._clock = warmup_steps, clock
        self.measurements: list[tuple[float, int]] = []  # seconds and samples

    @contextmanager
    def measure(self, num_samples: int) -> Iterator[None]:
        """Records the time that the block takes; a block that raises is not recorded."""
        start = self._clock()
        yield
        self.record(self._clock() - start, num_samples)

    def record(self, duration_s: float, num_samples: int) -> None:
        """Records a time that was measured elsewhere."""
        self.measurements.append((duration_s, num_samples))

    def statistics(self) -> dict[str, float]:
        """Returns statistics of the measurements after the warm-up; ValueError without any.

        latency_mean, latency_p50, _p90, _p95, _p99 in milliseconds (percentiles interpolated
        linearly), throughput in samples per second of measured time, and num_measurements.
        """
        measured = self.measurements[self._warmup_steps :]
        if not measured:
            raise ValueError(
                f"latency: {len(self.measurements)} batches were measured and the first "
                f"{self._warmup_steps} are warm-up: measure more batches or warm "
                "up with fewer"
            )
        durations_s, samples = np.array(measured).T
        percentiles = (50, 90, 95, 99)
        latencies_ms = np.percentile(durations_s, percentiles) * 1e3
        return {
            "latency_mean": float(durations_s.mean() * 1e3),
            **{f"latency_p{p}": float(x) for p, x in zip(percentiles, latencies_ms, strict=True)},
            "throughput": _rate(int(samples.sum()), float(durations_s.sum())),
            "num_measurements": len(measured),
        }


def _rate(samples: float, seconds: float) -> float:
    return samples / seconds if samples and seconds > 0 else float("nan")


class Speeds:
    """Samples per second of each epoch and each evaluation of a training."""

    def __init__(self) -> None:
        self._train: list[float] = []
        self._eval: list[float] = []
        self._evaluation_s = 0.0

    def evaluated(self, num_samples: int, elapsed_s: float) -> None:
        """Records an evaluation."""
        self._eval.append(_rate(num_samples, elapsed_s))
        self._evaluation_s = elapsed_s

    def of_epoch(self, num_samples: int, epoch_s: float, evaluated: bool) -> dict[str, float]:
        """Records an epoch; returns its throughput and seconds, and those of its evaluation."""
        values = {"epoch_s": epoch_s}
        if num_samples:  # 0 if a resumed run had only the evaluation left
            self._train.append(_rate(num_samples, epoch_s))
            values = {"train_throughput": self._train[-1], **values}
        if evaluated:
            values |= {"eval_throughput": self._eval[-1], "evaluation_s": self._evaluation_s}
        return values

    def summary(self) -> dict[str, float]:
        """Returns `best_` and `mean_` of `train_throughput` and `eval_throughput`, if recorded."""
        values = {}
        for name, rates in (("train_throughput", self._train), ("eval_throughput", self._eval)):
            if rates:
                values[f"best_{name}"] = max(rates)
                values[f"mean_{name}"] = sum(rates) / len(rates)
        return values
