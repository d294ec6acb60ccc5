"""Generated clicks whose best reachable AUC is known, on the fly or on disk.

Ids follow a power law, numerical features are standard normal, and labels are drawn from a known
teacher (`dataloading/synthetic/teacher.py`).
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dataloading.pipeline.sample_dataset import LoaderOptions, SampleDataset
from dataloading.spec import feature_spec as fs
from dataloading.spec.data_set_files import SPEC_FILE, check_files_apart
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.synthetic.rows import (
    BLOCK_SAMPLES,
    SPLITS,
    SyntheticSamples,
    stored_spec,
    synthetic_spec,
)
from dataloading.synthetic.teacher import LogitCounts
from runtime.files.outputs import DATA_SET, check_folder
from runtime.files.staging import output_folder

__all__ = ["SyntheticDataset", "synthetic_spec", "write_dataset"]

_TOOL = "dataloading.synthetic"
_OWN_METADATA = ("generator", "seed")  # keys in addition to those of the splits


class SyntheticDataset(SampleDataset):
    """Generated samples of one split; the same ones, in the same order, in every epoch.

    Sample i is a function of (spec, seed, split, i): every batch size, number of ranks and start
    sees the same samples, and so do the files of `write_dataset`. All splits share one teacher and
    differ in their samples.

    Args:
        spec: with the channels `numerical`, `categorical` and `label`, e.g. of `synthetic_spec`; no
            file is needed. The alpha of a feature is 1.1 by default.
        split: `train`, `validation` or `test`.
        num_samples: number of samples, 1 or more.
        options: see `LoaderOptions`. A label follows from all ids of its sample: with
            `global_features` each rank generates the whole global batch.
    """

    def __init__(
        self,
        spec: FeatureSpec,
        split: str,
        batch_size: int,
        *,
        num_samples: int,
        seed: int = 0,
        **options,
    ):
        options = LoaderOptions(batch_size=batch_size, **options)
        if split not in SPLITS:  # a slip of the pen would train on samples of its own
            raise ValueError(f"split is '{split}'; expected {', '.join(SPLITS)}")
        if num_samples < 1:
            raise ValueError(f"generated data of {num_samples} rows; expected 1 or more")
        cached_blocks = 4
        if options.global_features is not None:  # the whole batch is read, then this rank's share
            cached_blocks += options.parallel_reads * -(-batch_size // BLOCK_SAMPLES)
        rows = SyntheticSamples(spec, split, seed, cached_blocks)
        super().__init__(rows, split, options, num_samples=num_samples)

    @functools.cached_property
    def statistics(self) -> LogitCounts:
        """Best AUC, expected AUC and click rate of these samples; generates each of them once."""
        counts = LogitCounts()
        for start in range(0, self.num_samples, BLOCK_SAMPLES):
            arrays, logits = self._reader.block(start // BLOCK_SAMPLES)
            size = min(BLOCK_SAMPLES, self.num_samples - start)
            counts.add(logits[:size], arrays[-1][:size])
        return counts

    @property
    def best_auc(self) -> float:
        return self.statistics.best_auc


def write_dataset(
    directory,
    spec: FeatureSpec,
    num_samples: dict[str, int],
    seed: int = 0,
    layout: FeatureSpec | None = None,
) -> FeatureSpec:
    """Writes generated samples as split binaries with a `feature_spec.yaml`, a block at a time.

    Args:
        directory: new or empty; it appears only when it is whole.
        spec: as for `SyntheticDataset`.
        num_samples: split -> samples, e.g. `{"train": 1000, "test": 100}`; any names.
        layout: `spec` with the split_binary files to write, for each of these splits; a chunk's
            samples are spread evenly over its files, and features in no channel are zeros. None:
            the features of the three channels in the usual layout
            (`docs/reference/file_formats.md`).

    Returns:
        The spec as written. Its metadata holds the seed and, per split, the samples, the click rate
        and the best and the expected AUC (None where all labels are equal).
    """
    directory = Path(directory)
    check_folder(directory, DATA_SET)
    for split, rows in num_samples.items():
        if rows < 1:
            raise ValueError(f"{rows} rows for the split '{split}'; expected 1 or more")
        if split in _OWN_METADATA:
            raise ValueError(
                f"{spec.origin}: source_spec: split '{split}'; the metadata of generated data "
                "has a key of that name: rename the split"
            )
    generators = {split: SyntheticSamples(spec, split, seed) for split in num_samples}
    stored = _usual_layout(spec, num_samples) if layout is None else layout
    check_files_apart(stored.source_spec, stored.origin)
    with output_folder(directory, _TOOL, DATA_SET) as folder:
        metadata = dict(zip(_OWN_METADATA, (_TOOL, seed), strict=True))
        for split, rows in num_samples.items():
            counts = _write_split(folder, stored, split, generators[split], rows)
            best_auc, expected_auc = counts.best_auc, counts.expected_auc
            metadata[split] = {
                "rows": rows,
                "click_rate": counts.click_rate,
                "best_auc": None if math.isnan(best_auc) else best_auc,
                "expected_auc": None if math.isnan(expected_auc) else expected_auc,
            }
        written = dataclasses.replace(stored, metadata=metadata, base_directory=folder)
        written.validate_files()
        written.to_yaml(folder / SPEC_FILE)
    return FeatureSpec.from_yaml(directory / SPEC_FILE)


def _usual_layout(spec: FeatureSpec, splits) -> FeatureSpec:
    channels = {
        channel: list(spec.channel(channel))
        for channel in (fs.NUMERICAL_CHANNEL, fs.CATEGORICAL_CHANNEL, fs.LABEL_CHANNEL)
    }
    used = {feature for names in channels.values() for feature in names}
    features = {name: keys for name, keys in spec.feature_spec.items() if name in used}
    return stored_spec(features, channels, splits, spec.origin)


def _write_split(
    directory: Path, stored: FeatureSpec, split: str, generator: SyntheticSamples, num_samples: int
) -> LogitCounts:
    for file in (file for chunk in stored.source_spec[split] for file in chunk.files):
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).touch()
    counts = LogitCounts()
    for start in range(0, num_samples, BLOCK_SAMPLES):
        size = min(BLOCK_SAMPLES, num_samples - start)
        columns = generator.features(start // BLOCK_SAMPLES)
        for name in stored.feature_spec.keys() - columns.keys():
            columns[name] = np.zeros((BLOCK_SAMPLES, stored.hotness(name)), stored.dtype(name))
        for chunk in stored.source_spec[split]:
            rows = np.concatenate([columns[name] for name in chunk.features], axis=1)[:size]
            for file, first, last in rows_of_files(chunk.files, num_samples):
                with (directory / file).open("ab") as stream:
                    stream.write(rows[max(first - start, 0) : max(last - start, 0)].tobytes())
        arrays, logits = generator.block(start // BLOCK_SAMPLES)
        counts.add(logits[:size], arrays[-1][:size])
    return counts


def rows_of_files(files: Sequence[str], num_samples: int) -> list[tuple[str, int, int]]:
    """Returns (file, first row, last row + 1) of rows that are spread evenly over files."""
    ends = [num_samples * number // len(files) for number in range(len(files) + 1)]
    return list(zip(files, ends[:-1], ends[1:], strict=True))
