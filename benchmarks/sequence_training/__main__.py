"""Training throughput of SIM, DIEN and DIN beside plain PyTorch, in one interleaved run.

    make bench-sequence
    python -m benchmarks.sequence_training --output benchmarks/results/sequence_training_CPU_DATE.md

Both sides live as processes of their own, get the same rows, initial weights and number of
threads, and take turns: a few steps each, in an order that alternates from round to round. The exit
code is 1 if our side misses its target.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import interleaved, workload_files
from benchmarks.harness.worker import Worker
from benchmarks.sequence_training import report as sequence_report
from benchmarks.sequence_training import workload

OURS = "ours (TensorFlow)"
LAZY, DENSE = "PyTorch, SparseAdam", "PyTorch, dense Adam"
POOLED = {name: f"{name}, memory kept" for name in (LAZY, DENSE)}
# Only SIM has a target; a DIEN that keeps its memory takes 3 GiB.
SIDES = {"sim": (OURS, LAZY, DENSE, *POOLED.values()), "dien": (OURS, LAZY, DENSE)}
SIDES["din"] = SIDES["dien"]

# Relative difference of the losses of both sides in the first steps. After the first, PyTorch's
# dense Adam has another epsilon, and moves rows that do not occur.
LOSS_TOLERANCE = 2e-3


def start_side(name: str, folder: Path, threads: int, torch_python: str) -> Worker:
    """A side with the rows of `folder`; not yet a model."""
    python = sys.executable if name == OURS else torch_python
    module = "ours" if name == OURS else "peer"
    command = [python, "-m", f"benchmarks.sequence_training.{module}"]
    command += ["--folder", str(folder), "--threads", str(threads)]
    if name == OURS:
        return Worker(name, command, {"TF_CPP_MIN_LOG_LEVEL": "2"})
    command += ["--tables", "dense" if name in (DENSE, POOLED[DENSE]) else "lazy"]
    memory = interleaved.KEEP_MEMORY if name in POOLED.values() else {}
    return Worker(name, command, {"OMP_NUM_THREADS": str(threads), **memory})


def check_same_training(sides: dict[str, Worker], model_type: str, steps: int = 3) -> list[float]:
    """The first losses of our side.

    Raises:
      RuntimeError: another side's losses differ, so that the sides train different things.
    """
    losses = {name: side.ask("steps", count=steps)["losses"] for name, side in sides.items()}
    return interleaved.check_losses(losses, f"of {model_type}", LOSS_TOLERANCE)


class Measurements(interleaved.Turns):
    """What was measured of each model."""

    def __init__(self):
        super().__init__()
        self.parts: dict[str, dict[str, list[float]]] = {}
        self.versions: dict[str, str] = {}

    def measure(self, folder: Path, model_type: str, args) -> None:
        """All rounds of a model, after the sides have shown that they train the same."""
        sides = {}
        try:
            for name in SIDES[model_type]:
                sides[name] = start_side(name, folder, args.threads, args.torch_python)
            for side in sides.values():  # ours first: it draws the weights that the others read
                side.ask("start", model_type=model_type)
            self.first_losses[model_type] = check_same_training(sides, model_type)
            for number in range(args.rounds if model_type == "sim" else args.rounds_of_others):
                for side in interleaved.in_turn(sides, number):
                    self.measure_turn(side, model_type, count=args.steps)
            self.parts[model_type] = sides[OURS].ask("parts", count=max(3, args.steps))["ms"]
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
    parser.add_argument(
        "--models", nargs="+", choices=workload.MODEL_TYPES, default=list(workload.MODEL_TYPES)
    )
    parser.add_argument("--rounds", type=int, default=8, help="turns of every side with SIM")
    parser.add_argument("--rounds_of_others", type=int, default=3, help="with DIEN and DIN")
    parser.add_argument("--steps", type=int, default=2, help="steps of a side's turn")
    parser.add_argument("--batch_size", type=int, default=workload.Sizes.batch_size)
    parser.add_argument("--items", type=int, default=workload.Sizes.items)
    args = interleaved.parse(parser, "bench-sequence")
    sizes = workload.Sizes(batch_size=args.batch_size, items=args.items)
    rows, measurements = workload.make_rows(sizes), Measurements()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        workload_files.save(folder, rows, sizes)
        for model_type in args.models:
            measurements.measure(folder, model_type, args)
    facts = workload.facts(rows, sizes)
    page, met = sequence_report.render(measurements, facts, args, sizes, (OURS, LAZY, DENSE))
    interleaved.finish(page, met, args.output)


if __name__ == "__main__":
    main()
