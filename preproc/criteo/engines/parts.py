"""Staged rows: Parquet files, or folders of them whose rows are in the order of their names."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from preproc.criteo.engines.engine_interface import DayFile
from runtime.files.disk import sync


@dataclass(frozen=True)
class RowGroup:
    """A row group of a staged file, whose first row is number `first_row` of all."""

    path: Path
    row_group: int
    first_row: int
    num_rows: int

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Returns the columns, num_rows rows of each."""
        with pq.ParquetFile(self.path) as file:
            rows = file.read_row_group(self.row_group, columns, use_threads=False)
        return rows.slice(0, self.num_rows)

    def read_dictionaries(self, columns: Sequence[str]) -> Iterator[pa.DictionaryArray]:
        """Yields columns of text as arrays of num_rows indices and their values."""
        with pq.ParquetFile(self.path, read_dictionary=list(columns)) as file:
            table = file.read_row_group(self.row_group, columns)
        for name in columns:
            values = table.column(name).slice(0, self.num_rows).unify_dictionaries()
            yield values.combine_chunks()


def row_groups(days: Sequence[DayFile], num_rows: int | None = None) -> list[RowGroup]:
    """Returns the row groups of days, as far as they are among the log's first num_rows rows."""
    result = []
    for day in days:
        first_row = day.first_row
        for path in part_files(day.path):
            footer = pq.read_metadata(path)
            for i in range(footer.num_row_groups):
                size = footer.row_group(i).num_rows
                left = size if num_rows is None else min(size, num_rows - first_row)
                if left > 0:
                    result.append(RowGroup(path, i, first_row, left))
                first_row += size
    return result


def part_files(path: Path) -> list[Path]:
    """Returns a file, or the files of a folder in the order of their rows."""
    return sorted(path.glob("part-*.parquet")) if path.is_dir() else [path]


@contextlib.contextmanager
def new_part(folder: Path, number: int) -> Iterator[Path]:
    """Yields a path to write, which becomes the part `number` of a folder: whole, also if a task
    is repeated."""
    with new_file(folder / f"part-{number:08d}.parquet") as new:
        yield new


@contextlib.contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Yields a path to write, which then takes the name `target`."""
    new = target.with_name(f"{target.name}.{secrets.token_hex(8)}")
    yield new
    sync(new)
    new.replace(target)


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yields an empty folder for parts, which then takes the name `target`."""
    new = target.with_name(f"{target.name}.new")
    for path in (new, target):
        if path.is_dir():
            shutil.rmtree(path)
    new.mkdir()
    yield new
    sync(new)
    target.unlink(missing_ok=True)
    os.rename(new, target)
    sync(target.parent)
