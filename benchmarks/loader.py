"""Samples per second of the loaders alone: 13 numerical and 26 categorical features, cached.

The files are generated into a temporary folder: 13 float16 numerical features interleaved in one
file, 9 int32, 9 int16 and 8 int8 categoricals, a bool label. The target is for file order.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.harness import report
from benchmarks.harness.report import Page, command, spread, table
from dataloading.formats.raw_binary import RawBinaryDataset
from dataloading.spec.feature_spec import TRAIN, FeatureSpec
from dataloading.synthetic.dataset import SyntheticDataset, synthetic_spec

TARGET_SAMPLES_PER_S = 2_000_000
CARDINALITIES = (100_000,) * 9 + (10_000,) * 9 + (100,) * 8
ORDERED, SHUFFLED = "split binary, file order", "split binary, shuffled"


def write_rows(directory: Path, num_samples: int) -> FeatureSpec:
    """Split binaries of random bytes that are valid ids; fast to make, nothing to learn."""
    layout = synthetic_spec(CARDINALITIES).to_dict()
    layout["source_spec"] = {TRAIN: layout["source_spec"][TRAIN]}
    spec = FeatureSpec.from_dict(layout, directory)
    generator = np.random.default_rng(0)
    (directory / TRAIN).mkdir()
    for chunk in spec.source_spec[TRAIN]:
        first, dtype = chunk.features[0], spec.dtype(chunk.features[0])
        if dtype.kind == "i":
            values = generator.integers(0, spec.cardinality(first), num_samples, dtype=dtype)
        elif dtype.kind == "b":
            values = generator.random(num_samples) < 0.25
        else:
            values = generator.random((num_samples, len(chunk.features)), np.float32).astype(dtype)
        values.tofile(directory / chunk.files[0])
    return spec


def measure(cases: Mapping[str, Callable], repeats: int) -> dict[str, np.ndarray]:
    """Million samples per second of passes over all rows, cases in turn; the first does not count.

    A case makes its loader within the time of a pass.
    """
    speeds = {name: [] for name in cases}
    for epoch in range(1 + repeats):
        for name, make in cases.items():
            start = time.perf_counter()
            loader = make()
            num_samples = sum(batch.labels.shape[0] for batch in loader.dataset(epoch))
            assert num_samples == loader.num_samples
            if epoch:
                speeds[name].append(num_samples / (time.perf_counter() - start) / 1e6)
    return {name: np.asarray(values) for name, values in speeds.items()}


def main(argv: Sequence[str] | None = None) -> int:
    parser = report.parser_of(__doc__, rows=4_000_000, batch_size=65_536, repeats=7)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        spec, batch_size = write_rows(Path(folder), args.rows), args.batch_size
        loaders = {
            ORDERED: RawBinaryDataset(spec, TRAIN, batch_size),
            SHUFFLED: RawBinaryDataset(spec, TRAIN, batch_size, shuffle=True),
            "generated on the fly": SyntheticDataset(
                spec, TRAIN, batch_size, num_samples=min(args.rows, 8 * batch_size)
            ),
        }
        cases = {name: lambda loader=loader: loader for name, loader in loaders.items()}
        speeds = measure(cases, args.repeats)
    facts = f"13 numerical features, 26 categoricals, {args.rows:,} rows, batch {batch_size:,}"
    page = Page("The loader alone", [command("loader", args)], [facts])
    rows = [(name, spread(values, ".2f")) for name, values in speeds.items()]
    rows.append(("shuffled / file order", spread(speeds[SHUFFLED] / speeds[ORDERED], ".2f")))
    page.add("Passes", *table(("case", "million samples/s: median [lowest, highest]"), rows))
    median = float(np.median(speeds[ORDERED])) * 1e6
    text = f"{ORDERED}: {median / 1e6:.2f} million samples/s"
    target = f"{TARGET_SAMPLES_PER_S / 1e6:.0f} million samples/s"
    page.judge(text, target, median >= TARGET_SAMPLES_PER_S)
    return page.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
