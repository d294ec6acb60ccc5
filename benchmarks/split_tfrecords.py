"""Samples and ids per second of split TFRecords and split binaries, of the same samples.

Split TFRecords have fixed hotness, or the same ids cut into samples of 0 to 2 * `--hotness` ids.
Each pass opens its files again: finding the records and verifying every checksum is part of the
time, as in the first epoch of a training. Shuffled ones are judged, too, but do not decide: the
original only reads in file order.
"""

import functools
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.harness import report
from benchmarks.harness.report import Page, command, spread, table
from benchmarks.loader import measure
from dataloading.formats.raw_binary import RawBinaryDataset
from dataloading.formats.split_tfrecords.dataset import SplitTFRecordsDataset
from dataloading.formats.split_tfrecords.writer import SplitTFRecordsWriter
from dataloading.pipeline.columns import Role
from dataloading.pipeline.ragged import Ragged
from dataloading.spec.feature_spec import CATEGORICAL_CHANNEL, TRAIN, FeatureSpec
from dataloading.synthetic.dataset import synthetic_spec, write_dataset
from dataloading.transcribe import main as transcribe

TARGET = 0.5
BINARIES = "split binaries"
FIXED = "split TFRecords, fixed"
RAGGED = "split TFRecords, ragged"


def write_data_sets(
    folder: Path, num_samples: int, features: int, hotness: int, batch: int
) -> dict:
    """Writes the same ids in three formats; returns (loader class, spec) of each case."""
    spec = synthetic_spec([100_000] * features, hotness)
    binaries = write_dataset(folder / "binaries", spec, {TRAIN: num_samples})
    flags = {"src_dataset_path": "binaries", "dst_dataset_path": "fixed"}
    command = [f"--{name}={folder / path}" for name, path in flags.items()]
    if transcribe([*command, f"--dst_prebatch_size={batch}"]):
        raise SystemExit("transcribing failed")
    fixed = FeatureSpec.from_yaml(folder / "fixed" / "feature_spec.yaml")
    return {
        BINARIES: (RawBinaryDataset, binaries),
        FIXED: (SplitTFRecordsDataset, fixed),
        RAGGED: (SplitTFRecordsDataset, write_ragged(folder / "ragged", fixed, hotness, batch)),
    }


def write_ragged(directory: Path, fixed: FeatureSpec, hotness: int, prebatch: int) -> FeatureSpec:
    """The samples of `fixed`, but with 0 to 2 * hotness ids of each feature."""
    loader = SplitTFRecordsDataset(fixed, TRAIN, prebatch)
    columns = [
        replace(column, width=None) if column.role is Role.CATEGORICAL else column
        for column in loader.columns
    ]
    spec = fixed.to_dict()
    for feature in fixed.channel(CATEGORICAL_CHANNEL):
        spec["feature_spec"][feature]["hotness"] = 2 * hotness
    spec = FeatureSpec.from_dict(spec, directory)
    writer = SplitTFRecordsWriter(
        directory,
        TRAIN,
        spec,
        columns,
        prebatch=prebatch,
        batches_per_file=loader.num_batches,
    )
    generator = np.random.default_rng(0)
    ragged = [number for number, column in enumerate(columns) if column.width is None]
    for start in range(0, loader.num_samples, prebatch):
        arrays = loader.stored_samples(start, min(start + prebatch, loader.num_samples))
        for number in ragged:
            # Pairs of samples share the ids of two samples of fixed hotness.
            pairs = generator.integers(0, 2 * hotness + 1, len(arrays[number]) // 2)
            lengths = np.full(len(arrays[number]), hotness)
            lengths[: 2 * len(pairs)] = np.stack([pairs, 2 * hotness - pairs], 1).ravel()
            arrays[number] = Ragged.from_lengths(arrays[number].ravel(), lengths)
        writer.add(arrays)
    writer.close()
    return spec


def main(argv: Sequence[str] | None = None) -> int:
    parser = report.parser_of(__doc__, rows=1_048_576, features=26, hotness=5, repeats=7)
    parser.add_argument("--batch_size", type=int, default=65_536, help="and rows of a prebatch")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        sizes = (args.rows, args.features, args.hotness, args.batch_size)
        data_sets = write_data_sets(Path(folder), *sizes)
        cases = {
            (name, order): functools.partial(
                kind, spec, TRAIN, args.batch_size, shuffle=order == "shuffled"
            )
            for order in ("in file order", "shuffled")
            for name, (kind, spec) in data_sets.items()
        }
        speeds = measure(cases, args.repeats)
    num_ids = args.features * args.hotness
    facts = (
        f"13 numerical features, {args.features} features of {args.hotness} ids, {args.rows:,} "
        f"rows, batch and prebatch {args.batch_size:,}; median [lowest, highest] of the passes"
    )
    page, rows = Page("Loading split TFRecords", [command("split_tfrecords", args)], [facts]), []
    for (name, order), values in speeds.items():
        share = float(np.median(values) / np.median(speeds[BINARIES, order]))
        ids = f"{np.median(values) * num_ids:.1f}"
        rows.append((name, order, spread(values, ".3f"), ids, f"{share:.2f}"))
        text = f"{name}, {order}: {share:.2f} of {BINARIES}"
        page.judge(text, TARGET, share >= TARGET, decides=order == "in file order")
    columns = ("format", "order", "million samples/s", "million ids/s", f"of {BINARIES}")
    page.add("Passes", *table(columns, rows, num_text=2))
    return page.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
