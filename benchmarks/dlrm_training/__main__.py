"""Training throughput of DLRM beside a plain PyTorch DLRM, in one interleaved run.

    make bench
    python -m benchmarks.dlrm_training --output benchmarks/results/dlrm_training_CPU_YYYYMM.md

Both sides live as processes of their own, get the same rows, initial weights and number of
threads, and take turns: a few steps each, in an order that alternates from round to round. Each
round also measures the step's matrix products alone, which are the floor of a step's time. The
exit code is 1 if our side misses its target.
"""

import argparse
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.dlrm_training import report as dlrm_report
from benchmarks.dlrm_training import workload
from benchmarks.harness import interleaved, workload_files
from benchmarks.harness.worker import Worker
from dataloading.spec.feature_spec import CATEGORICAL_CHANNEL, NUMERICAL_CHANNEL, TRAIN, FeatureSpec

OURS, PEER, POOLED_PEER = "ours (TensorFlow)", "PyTorch", "PyTorch, memory kept"

# Relative difference of the losses of both sides in the first steps.
LOSS_TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-2}


def read_rows(folder: Path) -> workload.Rows:
    """The rows of `workload.make_rows` as arrays, for the other side."""
    spec, columns = FeatureSpec.from_yaml(folder / "feature_spec.yaml"), {}
    for chunk in spec.source_spec[TRAIN]:
        values = np.fromfile(
            spec.base_directory / chunk.files[0], spec.dtype(chunk.features[0])
        ).reshape(-1, len(chunk.features))
        columns.update(zip(chunk.features, values.T, strict=True))

    def side_by_side(channel: str, dtype) -> np.ndarray:
        return np.stack([columns[name].astype(dtype) for name in spec.channel(channel)], axis=1)

    return workload.Rows(
        side_by_side(NUMERICAL_CHANNEL, np.float32),
        side_by_side(CATEGORICAL_CHANNEL, np.int64),
        side_by_side("label", np.float32),
    )


def start_ours(folder: Path, threads: int, *options: str) -> Worker:
    """Our side, with the rows of `folder`; not yet a model."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.dlrm_training.ours",
        "--threads",
        str(threads),
        *options,
    ]
    command += ["--weights", f"{folder}/weights.npz", "--dataset_path", f"{folder}/rows"]
    return Worker(OURS, command, {"TF_CPP_MIN_LOG_LEVEL": "2"})


def start_peer(name: str, folder: Path, threads: int, python: str, **environment) -> Worker:
    """The other side, with the rows of `folder`; not yet a model."""
    command = [python, "-m", "benchmarks.dlrm_training.peer", "--threads", str(threads)]
    command += ["--weights", f"{folder}/weights.npz", "--rows", f"{folder}/rows.npz"]
    return Worker(name, command, {"OMP_NUM_THREADS": str(threads), **environment})


def trace_parts(folder: Path, threads: int, steps: int = 10) -> dict[str, list]:
    """Milliseconds of the parts of our step, by precision.

    One operation at a time, so that each part's time is its own: as fast a step as with more.
    """
    side = start_ours(folder, threads, "--inter_op_threads", "1")
    try:
        parts = {}
        for precision in workload.PRECISIONS:
            side.ask("start", precision=precision)
            side.ask("steps", precision=precision, count=3)
            parts[precision] = side.ask("parts", precision=precision, count=steps)["parts"]
        return parts
    finally:
        side.close()


def check_same_training(sides: dict[str, Worker], precision: str, steps: int = 3) -> list[float]:
    """The first losses of our side.

    Raises:
      RuntimeError: another side's losses differ, so that the sides train different things.
    """
    losses = {
        name: side.ask("steps", precision=precision, count=steps)["losses"]
        for name, side in sides.items()
    }
    return interleaved.check_losses(losses, f"in {precision}", LOSS_TOLERANCE[precision])


class Measurements(interleaved.Turns):
    """What was measured of each precision."""

    def __init__(self):
        super().__init__()
        self.product_ms: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
        self.parts: dict[str, list[tuple[str, float]]] = {}

    def measure_round(self, sides: dict[str, Worker], number: int, steps: int) -> None:
        """One turn of everybody, in falling or rising order."""
        for precision in workload.PRECISIONS:
            for side in interleaved.in_turn(sides, number):
                self.measure_turn(side, precision, precision=precision, count=steps)
                if side.name != POOLED_PEER:
                    answer = side.ask("products", precision=precision)
                    self.product_ms[side.name, precision].append(answer["ms"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--warmup_rounds", type=int, default=2, help="rounds that do not count")
    parser.add_argument("--steps", type=int, default=3, help="steps of a side's turn")
    args = interleaved.parse(parser, "bench")
    measurements, sides = Measurements(), {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        num_rows = workload.NUM_BATCHES * workload.BATCH_SIZE
        workload.make_rows(folder / "rows", num_rows, workload.TABLE_ROWS)
        workload_files.save_rows(folder / "rows.npz", read_rows(folder / "rows"))
        peer = (folder, args.threads, args.torch_python)
        try:
            sides[OURS] = start_ours(folder, args.threads)
            sides[PEER] = start_peer(PEER, *peer)
            sides[POOLED_PEER] = start_peer(POOLED_PEER, *peer, **interleaved.KEEP_MEMORY)
            for precision in workload.PRECISIONS:
                sides[OURS].ask("start", precision=precision)
            sides[OURS].ask("save_weights")
            for precision in workload.PRECISIONS:
                for name in (PEER, POOLED_PEER):
                    sides[name].ask("start", precision=precision)
                measurements.first_losses[precision] = check_same_training(sides, precision)
            for number in range(args.warmup_rounds):
                Measurements().measure_round(sides, number, args.steps)
            for number in range(args.rounds):
                measurements.measure_round(sides, number, args.steps)
            versions = {name: side.ask("describe") for name, side in sides.items()}
        finally:
            for side in sides.values():
                side.close()
        measurements.parts = trace_parts(folder, args.threads)
    page, met = dlrm_report.render(measurements, versions, args, (OURS, PEER, POOLED_PEER))
    interleaved.finish(page, met, args.output)


if __name__ == "__main__":
    main()
