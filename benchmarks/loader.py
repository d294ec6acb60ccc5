"""Samples per second of the loaders alone: 13 numerical and 26 categorical features, cached.

The files are generated into a temporary folder: 13 float16 numerical features interleaved in one
file, 9 int32, 9 int16 and 8 int8 categoricals, a bool label. The target is for file order.
"""

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.dlrm_training.workload import make_rows
from benchmarks.harness import report
from benchmarks.harness.report import Page, command, spread, table
from dataloading.formats.raw_binary import RawBinaryDataset
from dataloading.spec.feature_spec import TRAIN, FeatureSpec

TARGET_SAMPLES_PER_S = 2_000_000
CARDINALITIES = (100_000,) * 9 + (10_000,) * 9 + (100,) * 8
ORDERED, SHUFFLED = "split binary, file order", "split binary, shuffled"


def passes_per_s(loaders: Mapping[str, RawBinaryDataset], repeats: int) -> dict[str, np.ndarray]:
    """Million samples per second of passes over all rows, in turn; the first does not count."""
    speeds = {name: [] for name in loaders}
    for epoch in range(1 + repeats):
        for name, loader in loaders.items():
            start = time.perf_counter()
            num_samples = sum(batch.labels.shape[0] for batch in loader.dataset(epoch))
            assert num_samples == loader.num_samples
            if epoch:
                speeds[name].append(num_samples / (time.perf_counter() - start) / 1e6)
    return {name: np.asarray(values) for name, values in speeds.items()}


def main(argv: Sequence[str] | None = None) -> int:
    parser = report.parser_of(__doc__, rows=4_000_000, batch_size=65_536, repeats=7)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        make_rows(Path(folder, "rows"), args.rows, CARDINALITIES)
        spec = FeatureSpec.from_yaml(Path(folder, "rows/feature_spec.yaml"))
        loaders = {
            ORDERED: RawBinaryDataset(spec, TRAIN, args.batch_size),
            SHUFFLED: RawBinaryDataset(spec, TRAIN, args.batch_size, shuffle=True),
        }
        speeds = passes_per_s(loaders, args.repeats)
    facts = f"13 numerical features, 26 categoricals, {args.rows:,} rows, batch {args.batch_size:,}"
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
