"""Rows of a CSV or Parquet file as requests to a served model, some rows at a time."""

import codecs
import contextlib
import csv
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataloading.spec.rules import listing, suggestion
from dataloading.table_input.files import Block, mapping_blocks
from dataloading.table_input.lines import line_blocks, open_quote
from dataloading.table_input.values import BadValue
from dataloading.transcode.raw_spec.raw_spec import CSV, PARQUET, RawChunk, RawSpec
from deployment.predict.columns import Column
from deployment.serving.histories import find_misplaced_padding
from deployment.serving.interface import Interface, feature_at

_KINDS = {".csv": CSV, ".csv.gz": CSV, ".parquet": PARQUET}  # by the end of a name
_ROWS = "rows"  # what the reader's messages call the one mapping that there is
# Advice of the reader's for a feature spec, which there is none of here.
_FOR_SPECS = ", or 'quoting: false' in the chunk where quotation marks mean nothing"

_GZIP = b"\x1f\x8b"
# How files start that are no CSV, and what they are.
_OTHER_STARTS = {
    b"PAR1": "is a Parquet file; let its name end with .parquet",
    b"PK\x03\x04": "is a zip archive or a spreadsheet; write its rows as CSV",
}


class Rows(NamedTuple):
    """Neighbouring rows.

    first_row: counted from 1, a header is not.
    arrays: tensor of a request -> [rows, *dims].
    """

    first_row: int
    arrays: dict[str, np.ndarray]


class RowFile:
    """A file of rows whose columns have the names of a model's features.

    Numericals and single ids are one value a row. Features of more ids are lists, in CSV with `;`
    between the ids: as many as the model takes; fewer, perhaps none, where rows differ (split
    TFRecords); of histories the latest events, the last of them last, in all of a row's equally
    many.

    Args:
      path: ends with .csv, .csv.gz or .parquet; a CSV file has a header.
      interface: of the model.

    Attributes:
      paths: the file.
      ignored: columns that no feature is named after.

    Raises:
      ValueError: it is not there, has no rows, is of another kind, or lacks a column.
    """

    def __init__(self, path: str | Path, interface: Interface):
        self._path = Path(path)
        self._where = f"--input {self._path}"
        self._interface = interface
        self._columns = [Column(feature, interface) for feature in interface.features]
        if not self._path.is_file():
            raise ValueError(f"{self._where}: there is no such file or folder")
        endings = [end for end in _KINDS if self._path.name.lower().endswith(end)]
        if not endings:
            raise ValueError(
                f"{self._where}: its name says no format; allowed: {', '.join(_KINDS)}"
            )
        kind = _KINDS[endings[0]]
        self._is_csv = kind == CSV
        columns, has_rows = self._csv_columns() if self._is_csv else self._parquet_columns()
        names = [feature.name for feature in interface.features]
        self._check_columns(columns, names)
        if not has_rows:
            raise ValueError(f"{self._where}: has {'a header and ' * self._is_csv}no rows")
        self.paths = [self._path]
        self.ignored = [column for column in columns if column not in names]
        chunk = RawChunk(kind, tuple(names), (self._path.name,), header=self._is_csv)
        self._spec = RawSpec(
            features={},
            unused=(),
            sources={_ROWS: (chunk,)},
            channels={},
            metadata={},
            base_directory=self._path.parent,
            origin=self._where,
        )

    def num_rows(self) -> int:
        """Rows of the file; of CSV the lines are counted."""
        with self._in_own_words():
            if not self._is_csv:
                return pq.read_metadata(self._path).num_rows
            return sum(len(block.splitlines()) for block in self._line_blocks()) - 1

    def requests(self, batch_size: int) -> Iterator[Rows]:
        """All rows in order, `batch_size` of them or fewer at a time.

        Raises:
          ValueError: a value is missing or not allowed, or the file cannot be read to its end; the
            message has file, row and column.
        """
        with self._in_own_words():
            for (block,) in mapping_blocks(self._spec, _ROWS, batch_size):
                yield Rows(block.first_row, self._arrays(block))

    def where(self, row: int) -> str:
        """A row, counted from 1 without the header, as messages call it."""
        return f"{self._where}: row {row}" + (f" (line {row + 1})" if self._is_csv else "")

    def _arrays(self, block: Block) -> dict[str, np.ndarray]:
        values = {}
        for column in self._columns:
            name = column.feature.name
            try:
                values[name] = column.values(block.columns[name])
            except BadValue as bad:
                row = block.first_row + bad.index
                if self._is_csv and not self._line(row).strip():
                    raise ValueError(
                        f"{self.where(row)}: is a blank line; needed: a row on each line, also on "
                        "the last: take it out"
                    ) from None
                raise ValueError(
                    f"{self.where(row)}: column '{name}': found {bad.found}; needed: {bad.rule}"
                ) from None
        return request(self._interface, values, block.first_row, self.where)

    def _line(self, row: int) -> bytes:
        """The line of a row of a CSV file, counted from 1 without the header."""
        for block in self._line_blocks():
            lines = block.splitlines()
            if row < len(lines):
                return lines[row]
            row -= len(lines)
        return b""

    def _check_columns(self, columns: list[str], names: list[str]) -> None:
        """Raises ValueError unless each name is that of one column."""
        lacking = [name for name in names if name not in columns]
        if lacking:
            hint = suggestion(lacking[0], [column for column in columns if column not in names])
            if self._is_csv and len(columns) == 1 and (";" in columns[0] or "\t" in columns[0]):
                hint = "; between columns there is a comma"
            raise ValueError(
                f"{self._where}: lacks the columns {listing(lacking)}; needed: one for each "
                f"feature of the model. It has {listing(columns)}{hint}"
            )
        for name in names:
            if columns.count(name) > 1:
                raise ValueError(
                    f"{self._where}: has the column '{name}' {columns.count(name)} times; needed: "
                    "once"
                )

    def _line_blocks(self) -> Iterator[bytes]:
        return line_blocks(self._path, self._where)

    def _csv_columns(self) -> tuple[list[str], bool]:
        """The names in the header, and whether there are rows behind it."""
        with self._in_own_words():
            self._check_start()
            blocks = self._line_blocks()
            start = next(blocks, b"")
            has_more = bool(next(blocks, b""))
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise ValueError(
                f"{self._where}: is UTF-16 text; needed: UTF-8 (`iconv -f UTF-16 -t UTF-8` makes "
                "it such)"
            )
        if not start.strip():
            raise ValueError(f"{self._where}: is empty; needed: a header, then rows")
        header, *rows = start.splitlines()
        if open_quote(header, ","):
            raise ValueError(
                f"{self._where}: its header has a quotation mark that is not closed at the end of "
                f"its field: {header!r:.100}"
            )
        with self._in_own_words():
            names = next(csv.reader([header.decode("utf-8", "replace")]), [])
        return names, bool(rows) or has_more

    def _check_start(self) -> None:
        """Raises ValueError where a CSV file is none, by its first bytes, which are to be
        decompressed where its name says so."""
        with open(self._path, "rb") as file:
            start = file.read(4)
        is_gzip, name = start.startswith(_GZIP), self._path.name
        if is_gzip and not name.endswith(".gz"):
            raise ValueError(
                f"{self._where}: is compressed by gzip; let its name end with .csv.gz, or "
                "decompress it"
            )
        if start and name.endswith(".gz") and not is_gzip:
            raise ValueError(
                f"{self._where}: is not compressed by gzip, as its name says; let it end with .csv"
            )
        if start in _OTHER_STARTS:
            raise ValueError(f"{self._where}: {_OTHER_STARTS[start]}")

    def _parquet_columns(self) -> tuple[list[str], bool]:
        try:
            metadata = pq.read_metadata(self._path)
            return metadata.schema.to_arrow_schema().names, metadata.num_rows > 0
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{self._where}: is no Parquet file ({error})") from None

    @contextlib.contextmanager
    def _in_own_words(self) -> Iterator[None]:
        """Errors of the reader, which knows of mappings and chunks, with this file's name only."""
        try:
            yield
        except (ValueError, OSError, csv.Error) as error:
            # The reader says what the system or the decompression told it.
            cause = error if isinstance(error, OSError) else error.__context__
            if isinstance(error, csv.Error):
                raise ValueError(f"{self._where}: has no header of a CSV file ({error})") from None
            if not isinstance(cause, OSError):
                words = str(error).replace(f": mapping '{_ROWS}': file '{self._path.name}'", "")
                raise ValueError(words.replace(_FOR_SPECS, "")) from None
            if cause.errno is not None:
                raise ValueError(f"{self._where}: {cause.strerror}") from None
            raise ValueError(
                f"{self._where}: is damaged or cut off, and cannot be read to its end ({cause}); "
                "make or copy it anew"
            ) from None


def request(
    interface: Interface,
    values: Mapping[str, np.ndarray],
    first_row: int,
    where: Callable[[int], str],
) -> dict[str, np.ndarray]:
    """Tensor -> [rows, *dims] of neighbouring rows.

    Args:
      interface: of the model.
      values: feature -> [rows, count], finite or in its range.
      first_row: the number of the first.
      where: how messages call a row of such a number.

    Raises:
      ValueError: a zero in a history is no padding.
    """
    num_rows = len(next(iter(values.values())))
    arrays = {
        tensor.name: np.empty((num_rows, int(np.prod(tensor.dims))), tensor.dtype)
        for tensor in interface.inputs
    }
    for feature in interface.features:
        columns = slice(feature.start, feature.start + feature.count)
        arrays[feature.input][:, columns] = values[feature.name]
    arrays = {
        tensor.name: arrays[tensor.name].reshape(-1, *tensor.dims) for tensor in interface.inputs
    }
    for name in interface.histories:
        _check_padding(interface, name, arrays[name], first_row, where)
    return arrays


def _check_padding(
    interface: Interface,
    name: str,
    ids: np.ndarray,
    first_row: int,
    where: Callable[[int], str],
) -> None:
    """Raises ValueError where a history has a 0 behind an id, or a row's have different numbers of
    ids."""
    bad = find_misplaced_padding(ids)
    if bad is None:
        return
    column, first = (
        feature_at(interface.features, name, number * ids.shape[2]).name
        for number in (bad.feature, 0)
    )
    row = where(first_row + bad.row)
    if bad.is_behind_id:
        raise ValueError(
            f"{row}: column '{column}': found a 0 behind an id; needed: no 0 between the ids of a "
            "history, where it is padding: leave events without an item out"
        )
    found, expected = np.count_nonzero(ids[bad.row, [bad.feature, 0]], axis=1)
    raise ValueError(
        f"{row}: column '{column}': found {found} ids, and {expected} in '{first}' (zeros in front "
        "are none); needed: equally many in all histories of a row, those of the same events"
    )
