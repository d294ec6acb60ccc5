"""Interface of an engine, which parses days, and counts and looks up columns.

Both engines give the same rows, byte for byte, and vocabularies: rows have numbers, in input order,
and are written by position.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from preproc.criteo.output.binary_files import ColumnFiles
from preproc.criteo.output.data_set import EncodedFiles


@dataclass(frozen=True)
class DayFile:
    """A parsed day: rows first_row, first_row + 1, ... of the log, as `parse_day` left them."""

    path: Path
    num_rows: int
    first_row: int


@dataclass(frozen=True)
class CategoricalColumn:
    """A categorical column: its name, vocabulary, and the files of its ids where it has some.

    The vocabulary is a Parquet file (value, count), in the order of the ids, 1 and up. Values seen
    fewer than `threshold` times have no ids.
    """

    name: str
    threshold: int
    vocabulary: Path
    files: ColumnFiles | None = None


class CriteoEngine(Protocol):
    """A context manager, made from the run's options and a scratch folder of its own.

    Attributes:
        columns_at_once: the engine counts, and writes, all columns in one pass over the log;
            others are passed one column at a time.
    """

    name: str
    columns_at_once: bool

    def parse_day(self, source: Path, target: Path, scratch: Path) -> dict[str, int]:
        """Parses the good lines of a raw file (`raw_lines.py`) into rows, in input order.

        `target` is as in `parts`, with the columns of `encodings`: label (0 or 1), num_0 and so on
        (int64), cat_0 and so on (text); missing values are null.

        Returns:
            rows; bad_lines and first_bad_line (the first line is 1; 0 without bad lines).

        Raises:
            ValueError: damaged gzip data.
        """

    def write_numericals(self, days: Sequence[DayFile], files: EncodedFiles) -> dict[str, int]:
        """Writes all rows; returns how many values of the first file are not 0, by split."""

    def count_columns(
        self, columns: Sequence[CategoricalColumn], days: Sequence[DayFile], num_rows: int
    ) -> list[int]:
        """Makes vocabularies; returns the number of values of each.

        Only values seen `threshold` times or more among the log's first num_rows rows, as far as
        they are in `days`; by falling count, then by value, bytewise.
        """

    def write_columns(
        self, columns: Sequence[CategoricalColumn], days: Sequence[DayFile]
    ) -> list[int]:
        """Writes the ids of all rows, 0 for unknown values; returns the known ones by column."""

    def explained_errors(self) -> AbstractContextManager:
        """Turns the engine's own errors into ValueError, OSError and KeyboardInterrupt."""
