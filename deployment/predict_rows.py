"""Rows of a CSV or Parquet file as requests to a served model, some rows at a time."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataloading import transcode_values
from dataloading.spec_rules import listing, suggestion
from dataloading.transcode_files import Block, mapping_blocks
from dataloading.transcode_lines import line_blocks
from dataloading.transcode_spec import CSV, PARQUET, RawChunk, RawSpec
from dataloading.transcode_values import SEPARATOR, BadValue
from deployment.serving.interface import UNKNOWN_IS_ZERO, Feature, Interface

_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_ROWS = "rows"  # what the reader's messages call the one mapping that there is


class Rows(NamedTuple):
    """Neighbouring rows of the file.

    first_row: counted from 1, a header is not.
    arrays: tensor of a request -> [rows, *dims].
    """

    first_row: int
    arrays: dict[str, np.ndarray]


class RowFile:
    """A file of rows whose columns have the names of a model's features.

    Numericals and single ids are one value a row. Features of more ids are lists, in CSV with `;`
    between the ids: as many as the model takes; fewer, perhaps none, where rows differ (split
    TFRecords); of a history the latest, last.

    Args:
      path: ends with .csv, .csv.gz or .parquet; a CSV file has a header.
      interface: of the model.

    Attributes:
      ignored: columns that no feature is named after.

    Raises:
      ValueError: it is not there, empty, of another kind, or lacks a column.
    """

    def __init__(self, path: str | Path, interface: Interface):
        self._path = Path(path)
        self._interface = interface
        self._columns = [_Column(feature, interface) for feature in interface.features]
        kind = self._path.name.lower().removesuffix(".gz").rpartition(".")[2]
        if kind not in (CSV, PARQUET):
            raise ValueError(f"--input {path}: its name says no format; allowed: .csv, .parquet")
        if not self._path.is_file():
            raise ValueError(f"--input {path}: there is no such file")
        self._is_csv = kind == CSV
        columns = self._csv_header() if self._is_csv else self._parquet_columns()
        names = [feature.name for feature in interface.features]
        lacking = [name for name in names if name not in columns]
        if lacking:
            raise ValueError(
                f"--input {path}: lacks the columns {listing(lacking)}; needed: one for each "
                f"feature of the model. It has {listing(columns)}" + suggestion(lacking[0], columns)
            )
        self.ignored = [column for column in columns if column not in names]
        chunk = RawChunk(kind, tuple(names), (self._path.name,), header=self._is_csv)
        self._spec = RawSpec(
            features={},
            unused=(),
            sources={_ROWS: (chunk,)},
            channels={},
            metadata={},
            base_directory=self._path.parent,
            origin=str(path),
        )

    def num_rows(self) -> int:
        """Rows of the file; of CSV the lines are counted."""
        if not self._is_csv:
            return pq.read_metadata(self._path).num_rows
        lines = (len(block.splitlines()) for block in line_blocks(self._path, str(self._path)))
        return sum(lines) - 1

    def requests(self, batch_size: int) -> Iterator[Rows]:
        """All rows in order, `batch_size` of them or fewer at a time.

        Raises:
          ValueError: there are no rows, or a value is missing or not allowed; the message has file,
            row and column.
        """
        for (block,) in mapping_blocks(self._spec, _ROWS, batch_size):
            yield Rows(block.first_row, self._arrays(block))

    def where(self, row: int) -> str:
        """A row, counted from 1 without the header, as messages call it."""
        return f"{self._path}: row {row}" + (f" (line {row + 1})" if self._is_csv else "")

    def _arrays(self, block: Block) -> dict[str, np.ndarray]:
        arrays = {
            tensor.name: np.empty((block.num_rows, int(np.prod(tensor.dims))), tensor.dtype)
            for tensor in self._interface.inputs
        }
        for column in self._columns:
            feature = column.feature
            try:
                values = column.values(block.columns[feature.name])
            except BadValue as bad:
                raise ValueError(
                    f"{self.where(block.first_row + bad.index)}: column '{feature.name}': found "
                    f"{bad.found}; needed: {column.needed}"
                ) from None
            arrays[feature.input][:, feature.start : feature.start + feature.count] = values
        return {
            tensor.name: arrays[tensor.name].reshape(-1, *tensor.dims)
            for tensor in self._interface.inputs
        }

    def _csv_header(self) -> list[str]:
        start = next(line_blocks(self._path, str(self._path)), b"")
        if not start.strip():
            raise ValueError(f"--input {self._path}: is empty; needed: a header, then rows")
        line = start.splitlines()[0].decode("utf-8", "replace")
        return next(csv.reader([line]), [])

    def _parquet_columns(self) -> list[str]:
        try:
            return pq.read_schema(self._path).names
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"--input {self._path}: is no Parquet file ({error})") from None


class _Column:
    """How the values of one feature are written, and become columns of a request."""

    def __init__(self, feature: Feature, interface: Interface):
        self.feature = feature
        self._unknown_is_zero = interface.unknown_ids == UNKNOWN_IS_ZERO
        # Vectors side by side are of a history: right-aligned, with id 0 in front.
        self._is_history = feature.count > 1 and any(
            look_up.combiner is None
            for look_up in interface.lookups
            if (look_up.input, look_up.start) == (feature.input, feature.start)
        )
        self._fill = 0 if self._is_history else -1
        self._is_of_any_length = self._is_history or feature.padded

    @property
    def needed(self) -> str:
        """What a row's value must be, for messages."""
        feature = self.feature
        if feature.cardinality is None:
            return "a finite number (write 0 or a mean for a missing value)"
        ids = "whole numbers of 0 or more"
        if not self._unknown_is_zero:
            ids = f"whole numbers from 0 to {feature.cardinality - 1}"
        if feature.count == 1 and not self._is_of_any_length:
            return f"an id as in training, of the {ids}"
        most = "at most " if self._is_of_any_length else ""
        return (
            f"{most}{feature.count} ids as in training, {ids}, as a list (in CSV with "
            f"'{SEPARATOR}' between them)"
        )

    def values(self, column: pa.Array) -> np.ndarray:
        """Float32 numericals or int64 ids [rows, count].

        Raises:
          BadValue: `index` is a row.
        """
        count = self.feature.count
        if self._is_of_any_length:
            return self._aligned(column)
        flat = transcode_values.flat(column, count)
        try:
            if self.feature.cardinality is None:
                return transcode_values.numericals(flat, np.float32).reshape(-1, count)
            return self._ids(flat).reshape(-1, count)
        except BadValue as bad:
            bad.index //= count
            raise

    def _ids(self, values: pa.Array) -> np.ndarray:
        cardinality = self.feature.cardinality
        if not self._unknown_is_zero:
            return transcode_values.ids(values, cardinality)
        ids = transcode_values.ids(values, None)
        return np.where(ids < cardinality, ids, 0)

    def _aligned(self, column: pa.Array) -> np.ndarray:
        """The same of lists of up to `count` ids, in a CSV file also none."""
        count = self.feature.count
        if pa.types.is_binary(column.type):
            # Nothing between two separators of a CSV file is a list of no ids.
            texts = pc.fill_null(column.cast(pa.string()), "")
            column = pc.split_pattern(texts, SEPARATOR)
            column = pc.if_else(pc.equal(texts, ""), pa.scalar([], column.type), column)
        if not any(is_kind(column.type) for is_kind in _LISTS):
            raise BadValue(0, f"one {column.type}", "")
        if column.null_count:
            raise BadValue(pc.index(column.is_null(), True).as_py(), "no list", "")
        lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
        if lengths.max(initial=0) > count:
            row = np.argmax(lengths > count)
            raise BadValue(row, f"{lengths[row]} values", "")
        ends = np.cumsum(lengths)
        try:
            ids = self._ids(column.flatten())
        except BadValue as bad:
            bad.index = int(np.searchsorted(ends, bad.index, side="right"))
            raise
        aligned = np.full((len(lengths), count), self._fill, np.int64)
        places = np.arange(count)
        first = (count - lengths)[:, None] if self._is_history else 0
        aligned[(places >= first) & (places < first + lengths[:, None])] = ids
        return aligned
