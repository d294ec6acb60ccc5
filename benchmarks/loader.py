"""Samples per second of the loaders alone: 13 numerical and 26 categorical features, cached.

    python -m benchmarks.loader

The files are generated into a temporary folder: 13 float16 numerical features interleaved in one
file, 9 int32, 9 int16 and 8 int8 categoricals, a bool label. Each case reads all rows once to warm
up and `--repeats` times timed, cases interleaved. The target is for split binaries in file order.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from dataloading.formats.raw_binary import RawBinaryDataset
from dataloading.spec.feature_spec import TRAIN, FeatureSpec
from dataloading.synthetic.dataset import SyntheticDataset, synthetic_spec

TARGET_SAMPLES_PER_S = 2_000_000
CARDINALITIES = (100_000,) * 9 + (10_000,) * 9 + (100,) * 8


def write_rows(directory: Path, num_rows: int) -> FeatureSpec:
    """Split binaries of random bytes that are valid ids; fast to make, nothing to learn."""
    layout = synthetic_spec(CARDINALITIES).to_dict()
    layout["source_spec"] = {TRAIN: layout["source_spec"][TRAIN]}
    spec = FeatureSpec.from_dict(layout, directory)
    generator = np.random.default_rng(0)
    (directory / TRAIN).mkdir()
    for chunk in spec.source_spec[TRAIN]:
        first, dtype = chunk.features[0], spec.dtype(chunk.features[0])
        if dtype.kind == "i":
            values = generator.integers(0, spec.cardinality(first), num_rows, dtype=dtype)
        elif dtype.kind == "b":
            values = generator.random(num_rows) < 0.25
        else:
            values = generator.random((num_rows, len(chunk.features)), np.float32).astype(dtype)
        values.tofile(directory / chunk.files[0])
    return spec


def samples_per_s(loader, epoch: int) -> float:
    """One pass over all rows, each batch handed to Python and dropped."""
    start = time.perf_counter()
    num_rows = sum(batch.labels.shape[0] for batch in loader.dataset(epoch))
    assert num_rows == loader.num_rows
    return num_rows / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--batch_size", type=int, default=65_536)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spec = write_rows(Path(folder), args.rows)
        generated_rows = min(args.rows, 8 * args.batch_size)
        cases = {
            "split binary, file order": RawBinaryDataset(spec, TRAIN, args.batch_size),
            "split binary, shuffled": RawBinaryDataset(spec, TRAIN, args.batch_size, shuffle=True),
            "generated on the fly": SyntheticDataset(
                spec, TRAIN, args.batch_size, num_rows=generated_rows
            ),
        }
        results = {name: [] for name in cases}
        for repeat in range(1 + args.repeats):
            for name, loader in cases.items():
                speed = samples_per_s(loader, epoch=repeat)
                if repeat:
                    results[name].append(speed)
    print(f"13 numerical features, 26 categoricals, {args.rows:,} rows, batch {args.batch_size:,}")
    for name, speeds in results.items():
        print(
            f"{name:26s} median {statistics.median(speeds) / 1e6:6.2f} million samples/s, lowest "
            f"{min(speeds) / 1e6:.2f}, highest {max(speeds) / 1e6:.2f} ({len(speeds)} passes)"
        )
    ordered, shuffled = results["split binary, file order"], results["split binary, shuffled"]
    ratios = [fast / slow for fast, slow in zip(shuffled, ordered, strict=True)]
    print(
        f"shuffled / file order, pass by pass: median {statistics.median(ratios):.2f}, lowest "
        f"{min(ratios):.2f}, highest {max(ratios):.2f}"
    )
    met = statistics.median(results["split binary, file order"]) >= TARGET_SAMPLES_PER_S
    verdict = "met" if met else "MISSED"
    print(f"target of {TARGET_SAMPLES_PER_S / 1e6:.0f} million samples/s: {verdict}")
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
