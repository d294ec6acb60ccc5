"""Staged folders: Parquet files that tasks wrote, in the order of their names.

The rows of a folder are those of its files in this order, so that a row has a number although no
task counts another one's rows.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from runtime.files.atomic import sync


@dataclass(frozen=True)
class RowGroup:
    """A row group of a staged file, whose first row is number `first_row` of all."""

    path: Path
    row_group: int
    first_row: int
    num_rows: int

    def read(self, columns: Sequence[str]) -> pa.Table:
        with pq.ParquetFile(self.path) as file:
            return file.read_row_group(self.row_group, columns).slice(0, self.num_rows)

    def read_dictionaries(self, columns: Sequence[str]) -> Iterator[pa.DictionaryArray]:
        """Yields columns of text as arrays of num_rows indices and their values."""
        with pq.ParquetFile(self.path, read_dictionary=list(columns)) as file:
            table = file.read_row_group(self.row_group, columns)
        for name in columns:
            values = table.column(name).slice(0, self.num_rows).unify_dictionaries()
            yield values.combine_chunks()


def part_files(folder: Path) -> list[Path]:
    """Returns the files of a folder in the order of their rows."""
    return sorted(folder.glob("part-*.parquet"))


@contextlib.contextmanager
def new_part(folder: Path, number: int) -> Iterator[Path]:
    """Yields a path to write, which becomes the part `number`: whole, also by a repeated task."""
    target = folder / f"part-{number:08d}.parquet"
    new = target.with_name(f"{target.name}.{secrets.token_hex(8)}")
    yield new
    sync(new)
    new.replace(target)


def pieces(folders: Sequence[tuple[Path, int]], num_rows: int | None = None) -> list[RowGroup]:
    """Returns the pieces of folders, each passed with the number of its first row.

    Rows with a number of num_rows or more are left out.
    """
    result = []
    for folder, first_row in folders:
        for path in part_files(folder):
            footer = pq.read_metadata(path)
            for i in range(footer.num_row_groups):
                size = footer.row_group(i).num_rows
                left = size if num_rows is None else min(size, num_rows - first_row)
                if left > 0:
                    result.append(RowGroup(path, i, first_row, left))
                first_row += size
    return result


def new_folder(target: Path) -> Path:
    """Makes the empty folder in which the parts of `target` are written."""
    new = target.with_name(f"{target.name}.new")
    _remove(new)
    new.mkdir()
    return new


def publish(new: Path, target: Path) -> None:
    """Gives a folder the name `target`, in place of what has it."""
    sync(new)
    _remove(target)
    os.rename(new, target)
    sync(target.parent)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
