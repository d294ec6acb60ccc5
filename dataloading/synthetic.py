"""Generated clicks whose best reachable AUC is known, on the fly or on disk.

    python -m dataloading.synthetic --output data/synthetic --rows 100000

Ids follow a power law, numericals are standard normal, and labels are drawn from a known teacher
(`dataloading/teacher.py`).
"""

import argparse
import functools
import math
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dataloading.feature_spec import (
    CATEGORICAL_CHANNEL,
    LABEL_CHANNEL,
    NUMERICAL_CHANNEL,
    TEST,
    TRAIN,
    VALIDATION,
    FeatureSpec,
)
from dataloading.row_dataset import Columns, RowDataset
from dataloading.synthetic_rows import (
    BLOCK_ROWS,
    DEFAULT_ALPHA,
    DEFAULT_CARDINALITIES,
    DEFAULT_NUM_NUMERICAL,
    SyntheticRows,
    stored_spec,
    synthetic_spec,
)
from dataloading.teacher import LogitCounts

__all__ = ["SyntheticDataset", "synthetic_spec", "write_dataset"]


class SyntheticDataset(RowDataset):
    """Generated rows of one split; the same ones, in the same order, in every epoch.

    Row i is a function of (spec, seed, split, i): every batch size, number of ranks and start
    sees the same rows, and so do the files of `write_dataset`. All splits share one teacher and
    differ in their rows.

    Args:
        spec: gives the features of the channels `numerical`, `categorical` and `label`, their
            dtype, cardinality, hotness and alpha (1.1 where it says none); no file is needed.
            `synthetic_spec(...)` makes one from numbers.
        split: `train`, `validation` or `test`.
        batch_size, rank, world_size, global_features, prefetch_batches, parallel_reads: see
            `RowDataset`. A label follows from all ids of its row: with `global_features` each rank
            generates the whole global batch.
        num_rows: or `num_batches`, the number of full global batches.
        seed: of the teacher and of the rows.
    """

    def __init__(
        self,
        spec: FeatureSpec,
        split: str,
        batch_size: int,
        *,
        num_rows: int | None = None,
        num_batches: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        global_features: Sequence[int] | None = None,
        prefetch_batches: int = 2,
        parallel_reads: int = 2,
    ):
        if (num_rows is None) == (num_batches is None):
            raise ValueError(
                f"num_rows is {num_rows} and num_batches is {num_batches}; give one of the two"
            )
        num_rows = num_batches * batch_size if num_rows is None else num_rows
        if num_rows < 1:
            raise ValueError(f"generated data of {num_rows} rows; allowed: 1 or more")
        rows = SyntheticRows(spec, split, seed)
        self._generate = rows.block
        cached = 4
        if global_features is not None:  # the whole batch is read, and then this rank's share
            cached += parallel_reads * -(-batch_size // BLOCK_ROWS)
        self._block = functools.lru_cache(cached)(rows.block)
        super().__init__(
            num_rows,
            batch_size,
            Columns(
                numerical=tuple((dtype, width) for _, dtype, width in rows.numerical),
                categorical=tuple((dtype, hotness) for _, dtype, hotness in rows.categorical),
                label=rows.label[1],
            ),
            rank=rank,
            world_size=world_size,
            global_features=global_features,
            prefetch_batches=prefetch_batches,
            parallel_reads=parallel_reads,
        )

    @functools.cached_property
    def statistics(self) -> LogitCounts:
        """Best AUC, expected AUC and click rate of these rows; generates each of them once."""
        counts = LogitCounts()
        for start in range(0, self.num_rows, BLOCK_ROWS):
            _, _, labels, logits = self._generate(start // BLOCK_ROWS)
            size = min(BLOCK_ROWS, self.num_rows - start)
            counts.add(logits[:size], labels[:size])
        return counts

    @property
    def best_auc(self) -> float:
        """The AUC of the teacher's probabilities on exactly these rows: the best reachable one."""
        return self.statistics.best_auc

    def _read(self, epoch: int, start: int, stop: int, wanted: Sequence[int]) -> list[np.ndarray]:
        first, last = start // BLOCK_ROWS, max(start, stop - 1) // BLOCK_ROWS
        pieces = []
        for index in range(first, last + 1):
            numerical, ids, labels, _ = self._block(index)
            arrays = [*numerical, *ids, labels]
            rows = slice(max(start - index * BLOCK_ROWS, 0), stop - index * BLOCK_ROWS)
            pieces.append([arrays[number][rows] for number in wanted])
        return [np.concatenate(arrays) for arrays in zip(*pieces, strict=True)]


def write_dataset(
    directory, spec: FeatureSpec, num_rows: dict[str, int], seed: int = 0
) -> FeatureSpec:
    """Writes generated rows as split binaries with a `feature_spec.yaml`, a block at a time.

    The folder appears under its name only when it is whole.

    Args:
        directory: new or empty.
        spec: the features of the three channels, as for `SyntheticDataset`; the files get our
            usual layout (`docs/data_format.md`).
        num_rows: split -> rows, e.g. `{"train": 1000, "test": 100}`.

    Returns:
        The spec as written. Its metadata holds the seed and, per split, the rows, the click rate
        and the best and the expected AUC (None where all labels are equal).
    """
    directory = Path(directory)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ValueError(
            f"{directory} exists and is not an empty folder; remove it or choose another"
        )
    for split, rows in num_rows.items():
        if rows < 1:
            raise ValueError(f"{rows} rows for the split '{split}'; allowed: 1 or more")
    generators = {split: SyntheticRows(spec, split, seed) for split in num_rows}
    channels = {
        channel: list(spec.channel(channel))
        for channel in (NUMERICAL_CHANNEL, CATEGORICAL_CHANNEL, LABEL_CHANNEL)
    }
    used = {feature for names in channels.values() for feature in names}
    features = {name: keys for name, keys in spec.feature_spec.items() if name in used}
    stored = stored_spec(features, channels, num_rows)
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        metadata = {"generator": "dataloading.synthetic", "seed": seed}
        for split, rows in num_rows.items():
            (partial / split).mkdir(parents=True)
            counts = _write_split(partial, stored, split, generators[split], rows)
            metadata[split] = {
                "rows": rows,
                "click_rate": counts.click_rate,
                "best_auc": None if math.isnan(counts.best_auc) else counts.best_auc,
                "expected_auc": None if math.isnan(counts.expected_auc) else counts.expected_auc,
            }
        written = FeatureSpec(
            stored.feature_spec, stored.source_spec, stored.channel_spec, metadata, partial
        )
        written.validate_files()
        written.to_yaml(partial / "feature_spec.yaml")
        umask = os.umask(0)
        os.umask(umask)
        partial.chmod(0o777 & ~umask)  # mkdtemp makes folders for the owner alone
        partial.replace(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return FeatureSpec.from_yaml(directory / "feature_spec.yaml")


def _write_split(
    directory: Path, stored: FeatureSpec, split: str, generator: SyntheticRows, num_rows: int
) -> LogitCounts:
    file_of = {chunk.features[0]: chunk.files[0] for chunk in stored.source_spec[split]}
    first_features = [run[0] for run, _, _ in generator.numerical]
    first_features += [feature for feature, _, _ in generator.categorical]
    first_features.append(generator.label[0])
    paths = [directory / file_of[feature] for feature in first_features]
    counts = LogitCounts()
    for path in paths:
        path.touch()
    for start in range(0, num_rows, BLOCK_ROWS):
        numerical, ids, labels, logits = generator.block(start // BLOCK_ROWS)
        size = min(BLOCK_ROWS, num_rows - start)
        for path, array in zip(paths, (*numerical, *ids, labels), strict=True):
            with path.open("ab") as stream:
                stream.write(array[:size].tobytes())
        counts.add(logits[:size], labels[:size])
    return counts


def _numbers(kind):
    def parse(text: str) -> list:
        return [kind(item) for item in text.split(",") if item]

    parse.__name__ = f"comma-separated list of {kind.__name__}"  # argparse names it in errors
    return parse


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m dataloading.synthetic",
        description="Writes generated clicks as split binaries and prints their best AUC.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--output", required=True, help="folder to make; must not hold files")
    parser.add_argument("--rows", type=int, default=1_000_000, help="training rows")
    parser.add_argument("--validation_rows", type=int, default=100_000)
    parser.add_argument("--test_rows", type=int, default=100_000)
    parser.add_argument("--feature_spec", help="take features from this YAML file, not the flags")
    parser.add_argument(
        "--cardinalities",
        type=_numbers(int),
        default=list(DEFAULT_CARDINALITIES),
        help="ids of each categorical feature, comma-separated",
    )
    parser.add_argument(
        "--hotness", type=_numbers(int), default=[1], help="ids per row, one number or one each"
    )
    parser.add_argument(
        "--alpha",
        type=_numbers(float),
        default=[DEFAULT_ALPHA],
        help="exponent of the power law, one number or one each; 0 is uniform",
    )
    parser.add_argument("--num_numerical", type=int, default=DEFAULT_NUM_NUMERICAL)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    try:
        if args.feature_spec:
            spec = FeatureSpec.from_yaml(args.feature_spec)
        else:
            spec = synthetic_spec(args.cardinalities, args.hotness, args.alpha, args.num_numerical)
        num_rows = {TRAIN: args.rows, VALIDATION: args.validation_rows, TEST: args.test_rows}
        written = write_dataset(args.output, spec, num_rows, args.seed)
    except (ValueError, OSError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    for split in num_rows:
        facts = written.metadata[split]
        size_bytes = sum(
            (written.base_directory / file).stat().st_size
            for chunk in written.source_spec[split]
            for file in chunk.files
        )
        print(
            f"{split}: {facts['rows']:,} rows, {size_bytes:,} bytes, click rate "
            f"{facts['click_rate']:.4f}, best reachable AUC {_shown(facts['best_auc'])} (expected "
            f"{_shown(facts['expected_auc'])})"
        )
    print(f"written: {Path(args.output) / 'feature_spec.yaml'}")


def _shown(auc: float | None) -> str:
    return "undefined, all labels are equal" if auc is None else f"{auc:.5f}"


if __name__ == "__main__":
    main()
