"""Training throughput of NeuMF beside plain PyTorch, in one interleaved run.

    make bench-ncf
    python -m benchmarks.ncf_training --output benchmarks/results/ncf_training_CPU_DATE.md

Both sides live as processes of their own, get the same rows in memory, initial weights and number
of threads, and take turns: a few steps each, in an order that alternates from round to round. The
exit code is 1 if our side misses its target.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import interleaved, workload_files
from benchmarks.harness.worker import Worker
from benchmarks.ncf_training import report as ncf_report
from benchmarks.ncf_training import workload

OURS, OURS_LOW = "ours (TensorFlow)", "ours, bfloat16"
LAZY, DENSE = "PyTorch, SparseAdam", "PyTorch, dense Adam"
POOLED = f"{DENSE}, memory kept"
SIDES = (OURS, LAZY, DENSE, POOLED, OURS_LOW)

# Relative difference of the losses of both sides in the first steps. Adam makes a step of full
# length of the sign of a gradient that rounding decides, and the dense one moves rows that do not
# occur.
LOSS_TOLERANCE = 2e-3


def start_side(name: str, folder: Path, threads: int, torch_python: str) -> Worker:
    """A side with the rows of `folder`; not yet a model."""
    shared = ["--folder", str(folder), "--threads", str(threads)]
    if name in (OURS, OURS_LOW):
        dtype = "float32" if name == OURS else "mixed_bfloat16"
        command = [
            sys.executable,
            "-m",
            "benchmarks.ncf_training.ours",
            *shared,
            "--dtype",
            dtype,
        ]
        return Worker(name, command, {"TF_CPP_MIN_LOG_LEVEL": "2"})
    tables = "lazy" if name == LAZY else "dense"
    command = [
        torch_python,
        "-m",
        "benchmarks.ncf_training.peer",
        *shared,
        "--tables",
        tables,
    ]
    memory = interleaved.KEEP_MEMORY if name == POOLED else {}
    return Worker(name, command, {"OMP_NUM_THREADS": str(threads), **memory})


def check_same_training(sides: dict[str, Worker], shape: str, steps: int = 3) -> list[float]:
    """The first losses of our side without dropout, whose units each side draws in its own way.

    Raises:
      RuntimeError: a peer's losses differ, so that the sides train different things.
    """
    losses = {}
    for name, side in sides.items():  # ours first: it draws the weights that the others read
        side.ask("start", dropout=0.0)
        losses[name] = side.ask("steps", count=steps)["losses"]
    compared = {name: values for name, values in losses.items() if name != OURS_LOW}
    return interleaved.check_losses(compared, f"with {shape}", LOSS_TOLERANCE)


class Measurements(interleaved.Turns):
    """What was measured of each data set."""

    def __init__(self):
        super().__init__()
        self.parts: dict[tuple[str, str], dict[str, list[float]]] = {}
        self.facts: dict[str, dict[str, float]] = {}
        self.versions: dict[str, str] = {}

    def measure(self, folder: Path, shape: str, args) -> None:
        """All rounds with a data set, after the sides have shown that they train the same."""
        sizes = workload.of_shape(shape, args.batch_size)
        rows = workload.make_rows(sizes)
        self.facts[shape] = workload.facts(rows, sizes)
        workload_files.save(folder, rows, sizes)
        sides = {}
        try:
            for name in SIDES:
                sides[name] = start_side(name, folder, args.threads, args.torch_python)
            self.first_losses[shape] = check_same_training(sides, shape)
            for side in sides.values():
                side.ask("start", dropout=sizes.dropout)
                side.ask("steps", count=2)  # to warm up
            for number in range(args.rounds):
                for side in interleaved.in_turn(sides, number):
                    self.measure_turn(side, shape, count=args.steps)
            for name in (OURS, DENSE):
                self.parts[name, shape] = sides[name].ask("parts", count=args.steps + 2)["ms"]
            self.versions |= {name: side.ask("describe")["version"] for name, side in sides.items()}
        finally:
            for side in sides.values():
                side.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    shapes = tuple(workload.SHAPES)
    parser.add_argument("--shapes", nargs="+", choices=shapes, default=list(shapes))
    parser.add_argument("--rounds", type=int, default=6, help="turns of every side")
    parser.add_argument("--steps", type=int, default=1, help="steps of a side's turn")
    parser.add_argument("--batch_size", type=int, default=workload.Sizes.batch_size)
    args = interleaved.parse(parser, "bench-ncf")
    measurements = Measurements()
    for shape in args.shapes:
        with tempfile.TemporaryDirectory() as folder:
            measurements.measure(Path(folder), shape, args)
    page, met = ncf_report.render(measurements, args, (OURS, LAZY, DENSE))
    interleaved.finish(page, met, args.output)


if __name__ == "__main__":
    main()
