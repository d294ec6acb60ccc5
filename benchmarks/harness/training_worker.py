"""The process of a side that trains one model at a time.

Standard library only: it also runs in the environment of PyTorch.
"""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.worker import serve, timed_ms, timed_steps


def parser_of(description: str) -> argparse.ArgumentParser:
    """A parser with the flags that all such sides have."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    return parser


def serve_training(version: str, make: Callable[..., Any]) -> None:
    """Answers "describe", "start", "steps", "parts" and "products" until the other end closes.

    Args:
        version: of the software.
        make: takes the arguments of "start"; returns a training with `step() -> float`, and
            `parts_ms(count) -> dict` and `products_ms() -> list` where they are requested.
    """
    trainings = {}

    def describe() -> dict:
        return {"version": version}

    def start(**options) -> dict:
        trainings.clear()  # tables and moments of one model at a time are in memory
        trainings["now"] = make(**options)
        return {}

    def steps(count: int) -> dict:
        return timed_steps(trainings["now"].step, count)

    def parts(count: int) -> dict:
        return {"ms": trainings["now"].parts_ms(count)}

    def products() -> dict:
        return {"ms": trainings["now"].products_ms()}

    actions = (describe, start, steps, parts, products)
    serve({action.__name__: action for action in actions})


def timed_in_turn(calls: Mapping[str, Callable[[], object]], count: int) -> dict[str, list[float]]:
    """Milliseconds of each call, `count` times after one that does not count.

    The calls take turns, so that other load of the machine affects all of them equally.
    """
    times = {name: [] for name in calls}
    for number in range(1 + count):
        for name, call in calls.items():
            elapsed_ms = timed_ms(call)
            if number:
                times[name].append(elapsed_ms)
    return times
