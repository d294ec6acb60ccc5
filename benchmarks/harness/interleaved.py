"""Sides that train the same and take turns: what the training benchmarks share."""

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import numpy as np

from benchmarks.harness import machine
from benchmarks.harness.worker import Worker

# glibc hands each large tensor's memory back to the system, and every step pays for getting it
# again, page by page. PyTorch allocates through glibc; TensorFlow keeps what it has.
KEEP_MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1000000000000"
}


def parse(parser: argparse.ArgumentParser, make_target: str) -> argparse.Namespace:
    """Reads the command line, with the flags of all benchmarks that have a PyTorch side.

    Args:
      make_target: makes the environment of that side.
    """
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--torch_python", default=".venv-torch/bin/python")
    parser.add_argument("--output", type=Path, help="Markdown page to write")
    args = parser.parse_args()
    if not Path(args.torch_python).exists():
        parser.error(
            f"--torch_python {args.torch_python} does not exist: `make {make_target}` makes that "
            "environment from requirements/torch.txt"
        )
    return args


def check_losses(losses: Mapping[str, list[float]], what: str, tolerance: float) -> list[float]:
    """The first losses of the first side.

    Args:
      losses: of each side.
      what: they are of, for the error.
      tolerance: relative difference from the first side's.

    Raises:
      RuntimeError: another side's losses differ, so that the sides train different things.
    """
    first, *_ = losses
    for name, values in losses.items():
        if not np.allclose(values, losses[first], rtol=tolerance, atol=0):
            raise RuntimeError(
                f"the sides do not train the same model: first losses {what}: "
                f"{first} {losses[first]}, {name} {values}"
            )
    return losses[first]


def in_turn(sides: Mapping[str, Worker], number: int) -> list[Worker]:
    """Everybody, in falling or rising order from round to round."""
    order = list(sides.values())
    return order if number % 2 else order[::-1]


class Turns:
    """What was measured of (side, what it trains), a value a round; the rounds of all lists
    correspond.

    Attributes:
      step_ms: median of the turn.
      faults: page faults a step.
      foreign_cpu: cores that other processes kept busy meanwhile, of all turns.
      first_losses: of our side, by what is trained.
    """

    def __init__(self):
        self.step_ms: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.faults: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.foreign_cpu: list[float] = []
        self.first_losses: dict[str, list[float]] = {}

    def measure_turn(self, side: Worker, what: str, **request) -> None:
        """Steps of one side.

        Args:
          what: it trains.
          request: arguments of its "steps".
        """
        before = machine.busy_cpu_s()
        answer = side.ask("steps", **request)
        busy_s = machine.busy_cpu_s() - before
        self.step_ms[side.name, what].append(float(np.median(answer["ms"])))
        self.faults[side.name, what].append(answer["faults"])
        self.foreign_cpu.append((busy_s - answer["cpu_s"]) / (sum(answer["ms"]) / 1e3))


def finish(page: str, met: bool, output: Path | None) -> NoReturn:
    """Prints a page, writes it where it is wanted, and exits with 1 if a target is missed."""
    print(page)
    if output:
        output.write_text(page)
    sys.exit(0 if met else 1)
