"""The process of a side that trains one model at a time.

Standard library only, so that it serves the environment of the PyTorch sides, too.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness.worker import serve, timed_steps


def parser_of(description: str) -> argparse.ArgumentParser:
    """The flags that all such sides have."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    return parser


def serve_training(version: str, make: Callable[..., Any]) -> None:
    """Answers "describe", "start", "steps" and "parts" until the other end closes.

    Args:
      version: of the software.
      make: a training with `step() -> float` and `parts_ms(count) -> dict`, of what "start" gets.
    """
    trainings = {}

    def describe() -> dict:
        return {"version": version}

    def start(**options) -> dict:
        trainings.clear()  # one model at a time has its tables and their moments in memory
        trainings["now"] = make(**options)
        return {}

    def steps(count: int) -> dict:
        return timed_steps(trainings["now"].step, count)

    def parts(count: int) -> dict:
        return {"ms": trainings["now"].parts_ms(count)}

    serve({"describe": describe, "start": start, "steps": steps, "parts": parts})
