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
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks import machine, sequence_report
from benchmarks import sequence_workload as workload
from benchmarks.dlrm_training import KEEP_MEMORY
from benchmarks.worker import Worker

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
    module = "tf_sequence" if name == OURS else "torch_sequence"
    command = [python, "-m", f"benchmarks.{module}", "--threads", str(threads)]
    command += ["--rows", f"{folder}/rows.npz", "--sizes", f"{folder}/sizes.json"]
    command += ["--folder", str(folder)]
    if name == OURS:
        return Worker(name, command, {"TF_CPP_MIN_LOG_LEVEL": "2"})
    command += ["--tables", "dense" if name in (DENSE, POOLED[DENSE]) else "lazy"]
    memory = KEEP_MEMORY if name in POOLED.values() else {}
    return Worker(name, command, {"OMP_NUM_THREADS": str(threads), **memory})


def check_same_training(sides: dict[str, Worker], model_type: str, steps: int = 3) -> list[float]:
    """The first losses of our side.

    Raises:
      RuntimeError: another side's losses differ, so that the sides train different things.
    """
    losses = {
        name: side.ask("steps", model_type=model_type, count=steps)["losses"]
        for name, side in sides.items()
    }
    for name, values in losses.items():
        if not np.allclose(values, losses[OURS], rtol=LOSS_TOLERANCE, atol=0):
            raise RuntimeError(
                f"the sides do not train the same model: first losses of {model_type}: "
                f"{OURS} {losses[OURS]}, {name} {values}"
            )
    return losses[OURS]


class Measurements:
    """What was measured, a value a round; the rounds of all lists correspond."""

    def __init__(self):
        self.step_ms: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.faults: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.first_losses: dict[str, list[float]] = {}
        self.parts: dict[str, dict[str, list[float]]] = {}
        self.versions: dict[str, str] = {}
        self.foreign_cpu: list[float] = []  # cores that other processes kept busy meanwhile

    def measure_round(
        self, sides: dict[str, Worker], model_type: str, number: int, steps: int
    ) -> None:
        """One turn of everybody, in falling or rising order."""
        order = list(sides.items())
        for name, side in order if number % 2 else order[::-1]:
            before = machine.busy_cpu_s()
            answer = side.ask("steps", model_type=model_type, count=steps)
            busy_s = machine.busy_cpu_s() - before
            self.step_ms[name, model_type].append(float(np.median(answer["ms"])))
            self.faults[name, model_type].append(answer["faults"])
            self.foreign_cpu.append((busy_s - answer["cpu_s"]) / (sum(answer["ms"]) / 1e3))

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
                self.measure_round(sides, model_type, number, args.steps)
            parts = sides[OURS].ask("parts", model_type=model_type, count=max(3, args.steps))
            self.parts[model_type] = parts["ms"]
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
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=workload.Sizes.batch_size)
    parser.add_argument("--items", type=int, default=workload.Sizes.items)
    parser.add_argument("--torch_python", default=".venv-torch/bin/python")
    parser.add_argument("--output", type=Path, help="Markdown page to write")
    args = parser.parse_args()
    if not Path(args.torch_python).exists():
        parser.error(
            f"--torch_python {args.torch_python} does not exist: `make bench-sequence` makes that "
            "environment from benchmarks/requirements-torch.txt"
        )
    sizes = workload.Sizes(batch_size=args.batch_size, items=args.items)
    rows, measurements = workload.make_rows(sizes), Measurements()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        workload.save_sizes(folder / "sizes.json", sizes)
        workload.save_rows(folder / "rows.npz", rows)
        for model_type in args.models:
            measurements.measure(folder, model_type, args)
    facts = workload.facts(rows, sizes)
    page, met = sequence_report.render(measurements, facts, args, sizes, (OURS, LAZY, DENSE))
    print(page)
    if args.output:
        args.output.write_text(page)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
