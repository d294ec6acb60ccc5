"""Writes parts of a multi-hot data set; each part can be written by any thread, and again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dataloading.spec import feature_spec as fs
from dataloading.spec.data_set_files import SPEC_FILE
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.synthetic.rows import stored_spec
from preproc.criteo.multi_hot.id_tables import Tables
from preproc.criteo.multi_hot.source import SourceData
from runtime.files.disk import allocate, sync, write_errors_name

# Bytes of ids in memory at a time, and of a part.
_BLOCK_BYTES, _PART_BYTES = 8 << 20, 1 << 30


class OutputPart(NamedTuple):
    """Samples `start` to `stop` of a file, relative to the data set, and its features."""

    split: str
    file: str
    features: tuple[str, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class PartWriter:
    """Writes the parts of a data set.

    Attributes:
        source: what is extended.
        data: folder that is written.
        cardinalities, hotness: of the categorical features that are written.
        takes_modulo: whether ids beyond the cardinality are allowed, and taken modulo it.
        tables: of the ids that extend those of the source; None: they are not extended.
    """

    source: SourceData
    data: Path
    cardinalities: Sequence[int]
    hotness: Sequence[int]
    takes_modulo: bool
    tables: Tables | None

    def feature_spec(self, metadata: dict) -> FeatureSpec:
        """Returns the feature spec of the data set."""
        source, values = self.source, next(iter(self.source.splits.values()))
        features = {source.label: {"dtype": "bool"}}
        if source.numerical:
            dtype = np.result_type(*(values[name].dtype for name in source.numerical)).name
            features |= {name: {"dtype": dtype} for name in source.numerical}
        shapes = zip(source.categorical, self.cardinalities, self.hotness, strict=True)
        for name, cardinality, hotness in shapes:
            dtype = fs.smallest_id_dtype(cardinality).name
            features[name] = {"dtype": dtype, "cardinality": cardinality, "hotness": hotness}
        channels = {
            fs.NUMERICAL_CHANNEL: source.numerical,
            fs.CATEGORICAL_CHANNEL: source.categorical,
            fs.LABEL_CHANNEL: [source.label],
        }
        usual = stored_spec(features, channels, source.splits)
        origin = str(self.data / SPEC_FILE)
        return FeatureSpec(features, usual.source_spec, channels, metadata, self.data, origin)

    def parts(self, spec: FeatureSpec) -> list[OutputPart]:
        """Returns all parts, large ones first."""
        parts = []
        for split, chunks in spec.source_spec.items():
            num_samples = self.source.num_samples(split)
            for chunk in chunks:
                per_part = max(1, _PART_BYTES // spec.sample_bytes(chunk))
                for start in range(0, num_samples, per_part):
                    stop = min(num_samples, start + per_part)
                    part = OutputPart(split, chunk.files[0], tuple(chunk.features), start, stop)
                    parts.append(((stop - start) * spec.sample_bytes(chunk), part))
        return [part for _, part in sorted(parts, key=lambda each: -each[0])]

    def create(self, spec: FeatureSpec) -> None:
        """Creates all files."""
        for split, chunks in spec.source_spec.items():
            for chunk in chunks:
                path = self.data / chunk.files[0]
                path.parent.mkdir(parents=True, exist_ok=True)
                allocate(path, self.source.num_samples(split) * spec.sample_bytes(chunk))

    def write(self, spec: FeatureSpec, part: OutputPart) -> None:
        """Writes a part."""
        path = self.data / part.file
        sizes = [(spec.hotness(name), spec.dtype(name).itemsize) for name in part.features]
        row_bytes = sum(width * itemsize for width, itemsize in sizes)
        block = max(1, _BLOCK_BYTES // (8 * sum(width for width, _ in sizes)))
        with write_errors_name(path), path.open("r+b") as file:
            file.seek(part.start * row_bytes)
            for start in range(part.start, part.stop, block):
                stop = min(part.stop, start + block)
                values = [
                    self._values(part.split, name, spec.dtype(name), start, stop)
                    for name in part.features
                ]
                file.write(np.concatenate(values, axis=1).data)
        sync(path)

    def _values(self, split: str, name: str, dtype: np.dtype, start: int, stop: int) -> np.ndarray:
        """Returns samples of a feature in the stored dtype."""
        values = self.source.splits[split][name]
        if name not in self.source.categorical:
            return values.read(dtype, start, stop)
        feature = self.source.categorical.index(name)
        ids, cardinality = values.read(np.int64, start, stop), self.cardinalities[feature]
        if self.takes_modulo:
            ids = ids % cardinality
        if (bad := (ids < 0) | (ids >= cardinality)).any():
            row, position = np.argwhere(bad)[0]
            raise ValueError(
                f"{values.place(start + int(row))}: expected an id from 0 to {cardinality - 1}, "
                f"got {ids[row, position]}"
            )
        if self.tables is not None:
            ids = self.tables.extend(feature, ids[:, 0])
        return ids.astype(dtype)
