"""Samples and ids per second of split TFRecords and split binaries, of the same rows.

    python -m benchmarks.split_tfrecords

Generated rows (13 numerical features, `--features` features of `--hotness` ids each) are written as
split binaries and transcribed to split TFRecords of fixed hotness. Ragged ones hold the same ids,
cut into rows of 0 to 2 * `--hotness` ids at random. The three take turns, in file order and
shuffled. Each pass opens its files again: finding the records and verifying every checksum is part
of the time, as in the first epoch of a training.

The exit code is 1 where rows in file order, the only ones that the original reads, come at less
than half the samples per second of split binaries, per id. Shuffled ones are judged, too, but do
not decide: a row's place in a record has to be looked up and its bytes are gathered one by one.
"""

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.harness.machine import describe
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


def write_data_sets(folder: Path, num_rows: int, features: int, hotness: int, batch: int) -> dict:
    """Writes the same ids in three formats; returns (loader class, spec) of each case."""
    spec = synthetic_spec([100_000] * features, hotness)
    binaries = write_dataset(folder / "binaries", spec, {TRAIN: num_rows})
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
    """The rows of `fixed` with the ids of each feature cut into rows of 0 to 2 * hotness ids."""
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
    for start in range(0, loader.num_rows, prebatch):
        arrays = loader.stored_rows(start, min(start + prebatch, loader.num_rows))
        for number in ragged:
            # Pairs of rows share what two rows of fixed hotness have.
            pairs = generator.integers(0, 2 * hotness + 1, len(arrays[number]) // 2)
            lengths = np.full(len(arrays[number]), hotness)
            lengths[: 2 * len(pairs)] = np.stack([pairs, 2 * hotness - pairs], 1).ravel()
            arrays[number] = Ragged.from_lengths(arrays[number].ravel(), lengths)
        writer.add(arrays)
    writer.close()
    return spec


def samples_per_s(case: tuple, batch_size: int, shuffle: bool, epoch: int) -> float:
    """One pass over all rows with files that were just opened."""
    kind, spec = case
    start = time.perf_counter()
    loader = kind(spec, TRAIN, batch_size, shuffle=shuffle)
    num_rows = sum(batch.labels.shape[0] for batch in loader.dataset(epoch))
    assert num_rows == loader.num_rows
    return num_rows / (time.perf_counter() - start)


def main(argv: list[str] | None = None) -> int:
    """Returns 0 where the target is met in file order, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--rows", type=int, default=1_048_576)
    parser.add_argument("--features", type=int, default=26)
    parser.add_argument("--hotness", type=int, default=5)
    parser.add_argument("--batch_size", type=int, default=65_536, help="and rows of a prebatch")
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args(argv)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        cases = write_data_sets(
            Path(folder), args.rows, args.features, args.hotness, args.batch_size
        )
        for repeat in range(1 + args.repeats):
            for shuffle in (False, True):
                for name, case in cases.items():
                    speed = samples_per_s(case, args.batch_size, shuffle, repeat)
                    if repeat:  # the first turn fills the page cache
                        results.setdefault((name, shuffle), []).append(speed)
    for name, fact in describe().items():
        print(f"{name}: {fact}")
    ids = args.features * args.hotness
    print(
        f"13 numerical features, {args.features} features of {args.hotness} ids, {args.rows:,} "
        f"rows, batch and prebatch {args.batch_size:,}, median of {args.repeats} passes (lowest to "
        "highest)"
    )
    met = True
    for (name, shuffle), speeds in results.items():
        median = statistics.median(speeds)
        share = median / statistics.median(results[BINARIES, shuffle])
        met = met and (shuffle or share >= TARGET)
        print(
            f"{name:24s} {'shuffled' if shuffle else 'in file order':14s} {median / 1e6:6.3f} "
            f"million samples/s ({min(speeds) / 1e6:.3f} to {max(speeds) / 1e6:.3f}), "
            f"{median * ids / 1e6:7.1f} million ids/s, {share:5.2f} of {BINARIES}: "
            f"{'met' if share >= TARGET else 'NOT met'}"
        )
    print(f"target in file order, {TARGET} of {BINARIES}: {'met' if met else 'NOT met'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
