"""Training throughput of DLRM compared with a plain PyTorch DLRM, in one interleaved run.

    make bench
    python -m benchmarks.dlrm_training --output benchmarks/results/dlrm_training_CPU_YYYYMM.md

Each round also measures the step's matrix products alone, which are the lower bound (the floor) of
a step's time. The exit code is 1 if our side misses its target.
"""

from pathlib import Path

import numpy as np

from benchmarks.dlrm_training import report, workload
from benchmarks.harness import training, workload_files
from benchmarks.harness.report import finish
from benchmarks.harness.training import Case, Side, TrainingMeasurements
from dataloading.spec.feature_spec import CATEGORICAL_CHANNEL, NUMERICAL_CHANNEL, TRAIN, FeatureSpec

OURS = Side("ours (TensorFlow)", "dlrm_training.ours", is_torch=False)
PEER = Side("PyTorch", "dlrm_training.peer")
POOLED_PEER = PEER._replace(name="PyTorch, memory kept", keeps_memory=True)
# One operation at a time, so that each part's time is its own: as fast a step as with more.
TRACED = OURS._replace(name="ours, traced", flags=("--inter_op_threads", "1"))
LOSS_TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-2}


def read_rows(folder: Path) -> workload.DLRMRows:
    """The rows of `workload.make_rows` as arrays, for PyTorch."""
    spec, columns = FeatureSpec.from_yaml(folder / "feature_spec.yaml"), {}
    for chunk in spec.source_spec[TRAIN]:
        values = np.fromfile(
            spec.base_directory / chunk.files[0], spec.dtype(chunk.features[0])
        ).reshape(-1, len(chunk.features))
        columns.update(zip(chunk.features, values.T, strict=True))

    def side_by_side(channel: str, dtype) -> np.ndarray:
        return np.stack([columns[name].astype(dtype) for name in spec.channel(channel)], axis=1)

    return workload.DLRMRows(
        side_by_side(NUMERICAL_CHANNEL, np.float32),
        side_by_side(CATEGORICAL_CHANNEL, np.int64),
        side_by_side("label", np.float32),
    )


def write_rows(folder: Path, case: Case) -> None:
    num_rows = workload.NUM_BATCHES * workload.BATCH_SIZE
    workload.make_rows(folder / "rows", num_rows, workload.TABLE_ROWS)
    workload_files.save_rows(folder / "rows.npz", read_rows(folder / "rows"))


def main() -> None:
    parser = training.parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--warmup_rounds", type=int, default=2, help="rounds that do not count")
    parser.add_argument("--steps", type=int, default=3, help="steps of a side's turn")
    args = training.parse(parser, "bench")
    cases = [
        Case(
            precision,
            (OURS, PEER, POOLED_PEER),
            {"precision": precision},
            LOSS_TOLERANCE[precision],
            args.rounds,
            warmup_steps=args.warmup_rounds * args.steps,
            parts=[TRACED],
            products=(OURS, PEER),
        )
        for precision in workload.PRECISIONS
    ]
    measurements = TrainingMeasurements(OURS.name)
    measurements.measure_all(cases, write_rows, args)
    sides = tuple(side.name for side in (OURS, PEER, POOLED_PEER))
    finish(*report.render(measurements, args, sides), args.output)


if __name__ == "__main__":
    main()
