"""Columns of raw files that hold the same rows."""

from dataclasses import dataclass

CSV = "csv"
PARQUET = "parquet"
JSON = "json"


@dataclass(frozen=True)
class SourceChunk:
    """Columns of files; the rows of the first file come first.

    Attributes:
        type: `csv` (any delimiter), `parquet`, or `json` (one object per line).
        files: absolute paths, or URIs that Spark reads.
        columns: names of the columns to read; None for all of them. Of CSV files without a header,
            the names of all columns, in order.
        header: whether the first line of each CSV file names its columns.
        delimiter: of CSV files.
        quoting: whether fields of CSV files may be quoted; otherwise quotation marks are
            characters like others.
        partitions: columns whose values are in the names of folders, `column=value/`.
    """

    type: str
    files: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    header: bool = True
    delimiter: str = ","
    quoting: bool = True
    partitions: tuple[str, ...] = ()
