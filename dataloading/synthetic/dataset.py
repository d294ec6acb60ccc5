"""Generated clicks whose best reachable AUC is known, on the fly or on disk.

    python -m dataloading.synthetic --output data/synthetic --rows 100000

Ids follow a power law, numerical features are standard normal, and labels are drawn from a known
teacher (`dataloading/synthetic/teacher.py`).
"""

import functools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dataloading.pipeline.columns import Column, Role
from dataloading.pipeline.sample_dataset import LoaderOptions, SampleDataset
from dataloading.spec.feature_spec import (
    CATEGORICAL_CHANNEL,
    LABEL_CHANNEL,
    NUMERICAL_CHANNEL,
    FeatureSpec,
)
from dataloading.spec.output_folder import SPEC_FILE, check_replaceable
from dataloading.synthetic.rows import (
    BLOCK_ROWS,
    SPLITS,
    SyntheticRows,
    stored_spec,
    synthetic_spec,
)
from dataloading.synthetic.teacher import LogitCounts
from runtime.files.atomic import atomic_folder

__all__ = ["SyntheticDataset", "synthetic_spec", "write_dataset"]

_OWN_METADATA = ("generator", "seed")  # keys in addition to those of the splits


class SyntheticDataset(SampleDataset):
    """Generated samples of one split; the same ones, in the same order, in every epoch.

    Sample i is a function of (spec, seed, split, i): every batch size, number of ranks and start
    sees the same samples, and so do the files of `write_dataset`. All splits share one teacher and
    differ in their samples.

    Args:
        spec: gives the features of the channels `numerical`, `categorical` and `label`, their
            dtype, cardinality, hotness and alpha (default 1.1); no file is needed.
            `synthetic_spec(...)` makes one from numbers.
        split: `train`, `validation` or `test`.
        batch_size: the global batch size.
        num_rows: number of samples; or `num_batches`, the number of full global batches.
        seed: of the teacher and of the samples.
        options: see `LoaderOptions`. A label follows from all ids of its sample: with
            `global_features` each rank generates the whole global batch.
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
        **options,
    ):
        options = LoaderOptions(batch_size=batch_size, **options)
        if (num_rows is None) == (num_batches is None):
            raise ValueError(
                f"num_rows is {num_rows} and num_batches is {num_batches}; give one of the two"
            )
        if split not in SPLITS:  # a slip of the pen would train on samples of its own
            raise ValueError(f"split is '{split}'; allowed: {', '.join(SPLITS)}")
        num_rows = num_batches * batch_size if num_rows is None else num_rows
        if num_rows < 1:
            raise ValueError(f"generated data of {num_rows} rows; allowed: 1 or more")
        rows = SyntheticRows(spec, split, seed)
        self._generate = rows.block
        cached = 4
        if options.global_features is not None:  # the whole batch is read, then this rank's share
            cached += options.parallel_reads * -(-batch_size // BLOCK_ROWS)
        super().__init__(_GeneratedReader(rows, num_rows, cached), split, options)

    @functools.cached_property
    def statistics(self) -> LogitCounts:
        """Best AUC, expected AUC and click rate of these samples; generates each of them once."""
        counts = LogitCounts()
        for start in range(0, self.num_rows, BLOCK_ROWS):
            _, _, labels, logits = self._generate(start // BLOCK_ROWS)
            size = min(BLOCK_ROWS, self.num_rows - start)
            counts.add(logits[:size], labels[:size])
        return counts

    @property
    def best_auc(self) -> float:
        """The AUC of the teacher's probabilities on these samples: the best reachable one."""
        return self.statistics.best_auc


class _GeneratedReader:
    """Generates samples in blocks, of which the last ones are cached; a `SampleReader`."""

    def __init__(self, rows: SyntheticRows, num_samples: int, cached_blocks: int):
        self.num_samples = num_samples
        self.columns = (
            *(Column(Role.NUMERICAL, names[0], *kind) for names, *kind in rows.numerical),
            *(Column(Role.CATEGORICAL, *kind) for kind in rows.categorical),
            Column(Role.LABEL, *rows.label, 1),
        )
        self._block = functools.lru_cache(cached_blocks)(rows.block)

    def read(self, samples: slice, columns: Sequence[Column]) -> list[np.ndarray]:
        """See `SampleReader`; samples are generated in their order only."""
        start, stop = samples.start, samples.stop
        pieces = []
        for index in range(start // BLOCK_ROWS, max(start, stop - 1) // BLOCK_ROWS + 1):
            numerical, ids, labels, _ = self._block(index)
            arrays = dict(zip(self.columns, [*numerical, *ids, labels], strict=True))
            rows = slice(max(start - index * BLOCK_ROWS, 0), stop - index * BLOCK_ROWS)
            pieces.append([arrays[column][rows] for column in columns])
        return [np.concatenate(arrays) for arrays in zip(*pieces, strict=True)]


def write_dataset(
    directory,
    spec: FeatureSpec,
    num_rows: dict[str, int],
    seed: int = 0,
    layout: FeatureSpec | None = None,
) -> FeatureSpec:
    """Writes generated rows as split binaries with a `feature_spec.yaml`, a block at a time.

    The folder appears under its name only when it is whole.

    Args:
        directory: new or empty.
        spec: the features of the three channels, as for `SyntheticDataset`.
        num_rows: split -> rows, e.g. `{"train": 1000, "test": 100}`; any names but those of the
            keys of the metadata below.
        layout: `spec` with the split_binary files to write, for each of these splits; a chunk's
            rows are spread evenly over its files, and features in no channel are zeros. None: the
            features of the three channels in our usual layout (`docs/data_format.md`).

    Returns:
        The spec as written. Its metadata holds the seed and, per split, the rows, the click rate
        and the best and the expected AUC (None where all labels are equal).
    """
    directory = Path(directory)
    check_replaceable(directory)
    for split, rows in num_rows.items():
        if rows < 1:
            raise ValueError(f"{rows} rows for the split '{split}'; allowed: 1 or more")
        if split in _OWN_METADATA:
            raise ValueError(
                f"{spec.origin}: source_spec: mapping '{split}'; the metadata of generated data "
                "has a key of that name: rename the mapping"
            )
    generators = {split: SyntheticRows(spec, split, seed) for split in num_rows}
    stored = _usual_layout(spec, num_rows) if layout is None else layout
    with atomic_folder(directory) as folder:
        metadata = dict(zip(_OWN_METADATA, ("dataloading.synthetic", seed), strict=True))
        for split, rows in num_rows.items():
            counts = _write_split(folder, stored, split, generators[split], rows)
            metadata[split] = {
                "rows": rows,
                "click_rate": counts.click_rate,
                "best_auc": None if math.isnan(counts.best_auc) else counts.best_auc,
                "expected_auc": None if math.isnan(counts.expected_auc) else counts.expected_auc,
            }
        written = FeatureSpec(
            stored.feature_spec, stored.source_spec, stored.channel_spec, metadata, folder
        )
        written.validate_files()
        written.to_yaml(folder / SPEC_FILE)
    return FeatureSpec.from_yaml(directory / SPEC_FILE)


def _usual_layout(spec: FeatureSpec, splits) -> FeatureSpec:
    channels = {
        channel: list(spec.channel(channel))
        for channel in (NUMERICAL_CHANNEL, CATEGORICAL_CHANNEL, LABEL_CHANNEL)
    }
    used = {feature for names in channels.values() for feature in names}
    features = {name: keys for name, keys in spec.feature_spec.items() if name in used}
    return stored_spec(features, channels, splits, spec.origin)


def _write_split(
    directory: Path, stored: FeatureSpec, split: str, generator: SyntheticRows, num_rows: int
) -> LogitCounts:
    chunks = stored.source_spec[split]
    for chunk in chunks:
        for file in chunk.files:
            (directory / file).parent.mkdir(parents=True, exist_ok=True)
            (directory / file).touch()
    counts = LogitCounts()
    for start in range(0, num_rows, BLOCK_ROWS):
        columns, logits = generator.columns(start // BLOCK_ROWS)
        size = min(BLOCK_ROWS, num_rows - start)
        for chunk in chunks:
            arrays = [
                columns[name]
                if name in columns
                else np.zeros((BLOCK_ROWS, stored.hotness(name)), stored.dtype(name))
                for name in chunk.features
            ]
            rows = np.concatenate(arrays, axis=1)[:size]
            for file, first, last in rows_of_files(chunk.files, num_rows):
                part = rows[max(first - start, 0) : max(last - start, 0)]
                if len(part):
                    with (directory / file).open("ab") as stream:
                        stream.write(part.tobytes())
        labels = columns[generator.label[0]]
        counts.add(logits[:size], labels[:size])
    return counts


def rows_of_files(files: Sequence[str], num_rows: int) -> list[tuple[str, int, int]]:
    """(file, first row, last row + 1) of rows that are spread evenly over files."""
    ends = [num_rows * number // len(files) for number in range(len(files) + 1)]
    return list(zip(files, ends[:-1], ends[1:], strict=True))


def comma_separated(kind):
    """Parses a flag like 1,2,3 for argparse; '' is an empty list, an empty item is an error."""

    def parse(text: str) -> list:
        return [kind(item) for item in text.split(",")] if text else []

    parse.__name__ = f"comma-separated list of {kind.__name__}"  # argparse names it in errors
    return parse
