"""Columns of a split that are written next to scores, as original values and in row order."""

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa

from dataloading.formats.open_chunk import open_chunk
from dataloading.histories.dataset import row_reader
from dataloading.pipeline.columns import Column
from dataloading.pipeline.ragged import Ragged, Samples
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.spec.rules import listing, suggestion
from dataloading.spec.spans import spans_of
from dataloading.synthetic.rows import BLOCK_SAMPLES, SyntheticSamples

# Returns the rows start to stop - 1 of a feature.
ReadRows = Callable[[int, int], Samples]
# Returns the original values of ids [n].
Decode = Callable[[np.ndarray], pa.Array]


class KeptColumns:
    """Features of a split by row.

    A feature that has a decoder gives the original values. A feature with several values per row
    gives lists; the padding before a history is left out.

    Args:
        readers: feature -> function that reads rows of it.
        decoders: feature -> what turns its ids into values, of those that have some.
        histories: features whose zeros are padding.

    Attributes:
        fields: (name, type) of each column.
    """

    def __init__(
        self,
        readers: Mapping[str, ReadRows],
        decoders: Mapping[str, Decode],
        histories: Collection[str] = (),
    ):
        self._readers, self._decoders = readers, decoders
        self._histories = frozenset(histories)
        first = {name: read(0, 1) for name, read in readers.items()}
        self.fields = [(name, self._column(name, rows).type) for name, rows in first.items()]

    def read(self, start: int, stop: int) -> list[pa.Array]:
        """Returns the rows start to stop - 1 of each column."""
        return [self._column(name, read(start, stop)) for name, read in self._readers.items()]

    def _column(self, name: str, rows: Samples) -> pa.Array:
        if name in self._histories and not isinstance(rows, Ragged):
            present = rows != 0
            rows = Ragged.from_lengths(rows[present], np.count_nonzero(present, axis=1))
        values = _values(rows)
        if values.dtype == np.float16:
            values = values.astype(np.float32)
        if name in self._decoders:
            column = self._decoders[name](values)
        else:
            column = pa.array(values.astype(values.dtype.newbyteorder("=")))
        if isinstance(rows, Ragged):
            return pa.ListArray.from_arrays(pa.array(rows.row_splits), column)
        if rows.shape[1] == 1:
            return column
        ends = np.arange(0, rows.size + 1, rows.shape[1], dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(ends), column)


def _values(rows: Samples) -> np.ndarray:
    return rows.values if isinstance(rows, Ragged) else np.ravel(rows)


def stored_columns(
    spec: FeatureSpec, split: str, names: Sequence[str], decoders: Mapping[str, Decode]
) -> KeptColumns:
    """Opens features of a split in split binaries, tensors of PyTorch or split TFRecords.

    Features that are in no channel can be kept, too.

    Args:
        decoders: see `KeptColumns`.

    Raises:
        ValueError: the split does not store a feature.
    """
    chunks = spec.source_spec[split]
    spans = spans_of(spec, chunks)
    check_names(names, list(spans), f"{spec.origin}: split '{split}'")
    used = sorted({spans[name].chunk for name in names})
    spec.validate_files(split, used)
    opened = {number: open_chunk(spec, split, chunks[number]) for number in used}

    def reader(name: str) -> ReadRows:
        span = spans[name]

        def read(start: int, stop: int) -> Samples:
            rows = opened[span.chunk].read(range(start, stop))
            return rows if isinstance(rows, Ragged) else rows[:, span.begin : span.end]

        return read

    return KeptColumns({name: reader(name) for name in names}, decoders)


def history_columns(
    spec: FeatureSpec,
    split: str,
    names: Sequence[str],
    histories: Collection[str],
    decoders: Mapping[str, Decode],
) -> KeptColumns:
    """Opens features of a split of histories.

    Args:
        histories, decoders: see `KeptColumns`.

    Raises:
        ValueError: the split does not store a feature.
    """
    stored = [name for chunk in spec.source_spec[split] for name in chunk.features]
    check_names(names, stored, f"{spec.origin}: split '{split}'")
    rows = row_reader(spec, split, names)

    def reader(column: Column) -> ReadRows:
        return lambda start, stop: rows.read(range(start, stop), [column])[0]

    readers = {column.feature: reader(column) for column in rows.columns}
    return KeptColumns(readers, decoders, histories)


def generated_columns(
    spec: FeatureSpec, split: str, names: Sequence[str], seed: int
) -> KeptColumns:
    """Returns features of generated samples (`SyntheticDataset`)."""
    samples = SyntheticSamples(spec, split, seed)
    check_names(names, list(samples.features(0)), "--dataset_type synthetic")

    def reader(name: str) -> ReadRows:
        def read(start: int, stop: int) -> np.ndarray:
            first = start // BLOCK_SAMPLES
            blocks = range(first, max(first + 1, -(-stop // BLOCK_SAMPLES)))
            rows = np.concatenate([samples.features(block)[name] for block in blocks])
            return rows[start - first * BLOCK_SAMPLES : stop - first * BLOCK_SAMPLES]

        return read

    return KeptColumns({name: reader(name) for name in names}, {})


def check_names(names: Sequence[str], known: Sequence[str], where: str) -> None:
    """Raises ValueError if a name of `--predictions_keep` is not that of a stored feature."""
    for name in names:
        if name not in known:
            raise ValueError(
                f"--predictions_keep {name}: expected features of {where}: {listing(known)}"
                + suggestion(name, known)
            )
