"""Lines of CSV files that Spark reads, as columns of text; no PySpark here.

Spark's own CSV reader fits columns of other orders, missing and surplus fields and open quotation
marks into rows without an error. Here a line is a row, as in `--engine local`.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from dataloading.spec.rules import listing
from dataloading.table_input.lines import BYTE_ORDER_MARK, open_quote

_DELIMITER = ","
_WRONG_ROW = re.compile(r"CSV parse error: Row #([0-9]+): Expected [0-9]+ columns, got ([0-9]+)")
_ADVICE = "fix the file, or give --input as Parquet"


def column_names(header: bytes, where: str) -> tuple[str, ...]:
    """Returns the column names of a header.

    Raises:
        ValueError: it is not one line of CSV in UTF-8.
    """
    header = header.removeprefix(BYTE_ORDER_MARK)
    _check_text(header, where)
    return tuple(next(csv.reader([header.decode()], delimiter=_DELIMITER), []))


@dataclass(frozen=True)
class CsvLines:
    """Splits the lines of CSV files of the same columns into fields.

    Attributes:
        where: the input, in messages.
        names: all columns of the files, in order.
        used: the columns to return.
    """

    where: str
    names: tuple[str, ...]
    used: tuple[str, ...]

    def columns(self, batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, pa.Array]]:
        """Yields columns of text by name; an empty field without quotation marks is null.

        Args:
            batches: neighbouring lines of files (binary), with the name of the file where they
                belong to its first block, else null; further columns, by name, are passed on.

        Raises:
            ValueError: a file has other columns, or a line has another number of fields, an open
                quotation mark or bytes that are not UTF-8.
        """
        previous = None
        for batch in batches:
            lines, files, *others = batch.columns
            runs = pc.run_end_encode(files)
            start = 0
            for file, stop in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
                if file is not None and file != previous:
                    self._check_header(lines[start].as_py(), file)
                    start += 1
                previous = file
                if start < stop:
                    rows = slice(start, stop)
                    where = self.where if file is None else f"{self.where}: {file}"
                    further = [other[rows] for other in others]
                    yield self._fields(lines[rows].to_pylist(), where) | dict(
                        zip(batch.schema.names[2:], further, strict=True)
                    )
                start = stop

    def _check_header(self, header: bytes, file: str) -> None:
        names = column_names(header, f"{self.where}: {file}")
        if names != self.names:
            raise ValueError(
                f"{self.where}: {file}: expected the columns of the other files, in their order, "
                f"{listing(self.names)}; got {listing(names)}. Write all files with the same "
                "columns, or give --input as Parquet, whose columns are read by name"
            )

    def _fields(self, lines: list[bytes], where: str) -> dict[str, pa.Array]:
        text = b"\n".join([*lines, b""])
        _check_text(text, where)
        if b"" in lines and len(self.names) > 1:  # Arrow reads it as a row of nulls
            raise self._wrong_row(b"", 1, where)
        if text.startswith(BYTE_ORDER_MARK):  # of a field; Arrow takes off one
            text = BYTE_ORDER_MARK + text
        # Other columns may share a name; the reader needs different ones.
        names = [name if name in self.used else f"\0{i}" for i, name in enumerate(self.names)]
        read = pa_csv.ReadOptions(use_threads=False, block_size=len(text), column_names=names)
        parse = pa_csv.ParseOptions(delimiter=_DELIMITER, ignore_empty_lines=False)
        convert = pa_csv.ConvertOptions(
            column_types=dict.fromkeys(self.used, pa.string()),
            include_columns=list(self.used),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        try:
            table = pa_csv.read_csv(pa.py_buffer(text), read, parse, convert)
        except pa.ArrowInvalid as error:
            match = _WRONG_ROW.match(str(error))
            if match is None:
                raise ValueError(f"{where}: is not CSV: {error}; {_ADVICE}") from None
            line = lines[int(match[1]) - 1]
            raise self._wrong_row(line, int(match[2]), where) from None
        if table.num_rows != len(lines):
            raise ValueError(
                f"{where}: expected a row on each line, got {table.num_rows} rows on "
                f"{len(lines)} lines, from {lines[0]!r:.200}; {_ADVICE}"
            )
        return {name: table[name].combine_chunks() for name in self.used}

    def _wrong_row(self, line: bytes, num_fields: int, where: str) -> ValueError:
        return ValueError(
            f"{where}: expected {len(self.names)} fields on each line, as in the header, got "
            f"{num_fields}: {line!r:.200}; {_ADVICE}"
        )


def _check_text(lines: bytes, where: str) -> None:
    try:
        lines.decode()
    except UnicodeDecodeError as error:
        start = lines.rfind(b"\n", 0, error.start) + 1
        line = lines[start:].partition(b"\n")[0]
        raise ValueError(
            f"{where}: expected UTF-8, got {line!r:.200}; convert the file (iconv -t UTF-8)"
        ) from None
    if open_field := open_quote(lines, _DELIMITER):
        raise ValueError(
            f"{where}: expected fields that are quoted as a whole on one line, with quotation "
            f"marks inside them written twice, got {open_field[1]!r:.200}; {_ADVICE}"
        )
