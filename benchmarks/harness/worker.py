"""The process of a side of a benchmark: one JSON line asks, one JSON line answers.

Standard library only: it also runs in the environment of PyTorch.
"""

import argparse
import json
import os
import resource
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def parser_of(description: str) -> argparse.ArgumentParser:
    """A parser with the flags that all training sides have."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--address", required=True, help="socket of the benchmark")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    return parser


def serve(actions: Mapping[str, Callable[..., dict]], address: str, rank: int = 0) -> None:
    """Answers requests until the other end closes. Answers carry the CPU time they took."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        stream = connection.makefile("rw")
        print(json.dumps([rank, os.getpid()]), file=stream, flush=True)
        for line in stream:
            request = json.loads(line)
            start = time.process_time()
            answer = actions[request.pop("action")](**request)
            answer["cpu_s"] = time.process_time() - start
            print(json.dumps(answer), file=stream, flush=True)


def serve_training(version: str, make: Callable[..., Any], address: str, rank: int = 0) -> None:
    """Answers "start", "steps", "call" and "describe" of one training at a time.

    `make` takes the arguments of "start" and returns a training. Its `step()` returns the loss; a
    `read_loss`, if it has one, reads the loss after the measured time of the step. `facts()` are
    part of the description. "call" calls its methods by name.
    """
    trainings = []

    def start(**options) -> dict:
        trainings.clear()  # tables and moments of one model at a time are in memory
        trainings.append(make(**options))
        return {}

    def steps(count: int) -> dict:
        return timed_steps(trainings[0].step, count, getattr(trainings[0], "read_loss", None))

    def call(method: str, **arguments) -> dict:
        return {"result": getattr(trainings[0], method)(**arguments)}

    def describe() -> dict:
        facts = getattr(trainings[0], "facts", dict)()
        return {"version": version, "peak_kib": peak_memory_mib() * 1024, **facts}

    actions = (start, steps, call, describe)
    serve({action.__name__: action for action in actions}, address, rank)


def reset_peak_memory() -> None:
    """Restarts the measurement of `peak_memory_mib`."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_memory_mib() -> float:
    """The largest resident memory of this process since the last reset."""
    status = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def timed_ms(call: Callable[[], object]) -> float:
    """Wall-clock milliseconds of a call."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def timed_steps(
    step: Callable[[], float], count: int, read_loss: Callable[[], float] | None = None
) -> dict:
    """`ms` and `losses` of each step; page `faults`, `user_ms` and `system_ms` per step."""
    times, losses = [], []
    before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(count):
        times.append(timed_ms(lambda: losses.append(step())))
        if read_loss:
            losses[-1] = read_loss()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "ms": times,
        "losses": losses,
        "faults": (after.ru_minflt - before.ru_minflt) / count,
        "user_ms": (after.ru_utime - before.ru_utime) * 1e3 / count,
        "system_ms": (after.ru_stime - before.ru_stime) * 1e3 / count,
    }


def timed_in_turn(
    calls: Mapping[Any, Callable[[], object]],
    count: int,
    warm_up: int = 1,
    alternates: bool = False,
) -> dict[Any, list[float]]:
    """Milliseconds of each call, `count` times after `warm_up` that do not count.

    The calls take turns, so that other load of the machine affects all of them equally; the order
    is the same in all rounds, or falls and rises.
    """
    times = {name: [] for name in calls}
    for number in range(warm_up + count):
        for name in list(calls)[:: -1 if alternates and number % 2 else 1]:
            times[name].append(timed_ms(calls[name]))
    return {name: ms[warm_up:] for name, ms in times.items()}
