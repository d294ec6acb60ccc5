"""CSV and Parquet files as a stream of blocks of rows; nothing is held beyond a block.

Every CSV field comes as bytes, so that what it means, and what is wrong with it, is decided in one
place (`transcode_values.py`) for both formats. Missing is null.
"""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from dataloading import spec_rules
from dataloading.transcode_spec import CSV, RawChunk, RawSpec

# Read at a time; a line must be shorter. Arrow reads up to 32 of them ahead.
_CSV_BLOCK_BYTES = 1 << 20
# What Arrow says of a row that has more or fewer fields; the number counts a header.
_WRONG_ROW = re.compile(
    r"CSV parse error: Row #([0-9]+): Expected ([0-9]+) columns, got ([0-9]+): (.*)", re.DOTALL
)


class Block(NamedTuple):
    """Neighbouring rows of one file.

    columns: feature -> Arrow array.
    where: the file, as messages call it.
    first_row: the number of the first of these rows in the file, counted from 1 without a header.
    """

    columns: dict[str, pa.Array]
    where: str
    first_row: int

    @property
    def num_rows(self) -> int:
        return len(next(iter(self.columns.values())))

    def rows(self, start: int, stop: int | None = None) -> "Block":
        """The rows start to stop - 1 of this block."""
        stop = self.num_rows if stop is None else stop
        columns = {name: column.slice(start, stop - start) for name, column in self.columns.items()}
        return Block(columns, self.where, self.first_row + start)


def mapping_blocks(spec: RawSpec, mapping: str, chunk_size: int) -> Iterator[list[Block]]:
    """The rows of a mapping in order: one block of each chunk, all of the same rows.

    Args:
        chunk_size: the most rows of a block.

    Raises:
        ValueError: a file is missing or not what the spec says, or the chunks of the mapping do
            not have equally many rows.
    """
    chunks = spec.sources[mapping]
    streams = [_chunk_blocks(spec, mapping, chunk, chunk_size) for chunk in chunks]
    blocks = [next(stream, None) for stream in streams]
    num_rows = 0
    while all(blocks):
        size = min(block.num_rows for block in blocks)
        yield [block.rows(0, size) for block in blocks]
        num_rows += size
        blocks = [
            block.rows(size) if block.num_rows > size else next(stream, None)
            for block, stream in zip(blocks, streams, strict=True)
        ]
    if any(blocks):
        short, long = blocks.index(None), next(i for i, block in enumerate(blocks) if block)
        raise ValueError(
            f"{spec.origin}: source_spec: mapping '{mapping}': chunk {short} "
            f"({spec_rules.listing(chunks[short].files)}) has {num_rows} rows and chunk {long} "
            f"({spec_rules.listing(chunks[long].files)}) has more; allowed: equally many in all "
            "chunks of a mapping"
        )
    if not num_rows:
        raise ValueError(f"{spec.origin}: source_spec: mapping '{mapping}' has no rows")


def _chunk_blocks(spec: RawSpec, mapping: str, chunk: RawChunk, chunk_size: int) -> Iterator[Block]:
    for file in chunk.files:
        where = f"{spec.origin}: mapping '{mapping}': file '{file}'"
        path = spec.base_directory / file
        if not path.is_file():
            raise ValueError(f"{where}: there is no such file ({path})")
        read = _csv_batches if chunk.type == CSV else _parquet_batches
        first_row = 1
        try:
            for batch in read(path, chunk, chunk_size, where):
                columns = {name: batch.column(name) for name in chunk.features}
                block = Block(columns, where, first_row)
                for start in range(0, batch.num_rows, chunk_size):
                    yield block.rows(start, min(start + chunk_size, batch.num_rows))
                first_row += batch.num_rows
        except (pa.ArrowException, OSError, csv.Error) as error:
            words = " ".join(str(error).split())
            raise ValueError(
                f"{where}: is not a {chunk.type} file that can be read, after row {first_row - 1}: "
                f"{words:.300}"
            ) from None


def _csv_batches(path: Path, chunk: RawChunk, chunk_size: int, where: str):
    """Record batches of bytes; a quoted field may hold delimiters and line ends."""
    names = _header(path, chunk, where) if chunk.header else list(chunk.features)
    if path.stat().st_size == 0:
        return
    try:
        reader = pa_csv.open_csv(
            path,
            # One thread: rows come in order, and the number of a wrong one is known.
            read_options=pa_csv.ReadOptions(
                use_threads=False,
                block_size=_CSV_BLOCK_BYTES,
                column_names=names,
                skip_rows=int(chunk.header),
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=chunk.delimiter,
                newlines_in_values=True,
                ignore_empty_lines=False,
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(chunk.features, pa.binary()),
                include_columns=list(chunk.features),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
        yield from reader
    except pa.ArrowInvalid as error:
        found = _WRONG_ROW.match(str(error))
        if not found:
            raise
        line, expected, actual, text = found.groups()
        raise ValueError(
            f"{where}: row {int(line) - chunk.header} has {actual} fields, there are {expected} "
            f"columns ({spec_rules.listing(names)}): {text!r:.100} (rows are counted from 1, a "
            f"header is not; fields lie between {chunk.delimiter!r})"
        ) from None


def _header(path: Path, chunk: RawChunk, where: str) -> list[str]:
    """The column names in the first line of a CSV file, perhaps compressed."""
    with pa.input_stream(str(path)) as stream:
        start = stream.read(_CSV_BLOCK_BYTES)
    line = re.split(rb"[\r\n]", start, maxsplit=1)[0].decode("utf-8-sig", "replace")
    names = next(csv.reader([line], delimiter=chunk.delimiter), [])
    for feature in chunk.features:
        if names.count(feature) != 1:
            raise ValueError(
                f"{where}: its header names the column '{feature}' {names.count(feature)} times; "
                f"needed: once. It has {spec_rules.listing(names)}"
                + spec_rules.suggestion(feature, names)
            )
    # Columns that are not read may share a name; the reader wants different ones.
    return [name if name in chunk.features else f"\0{i}" for i, name in enumerate(names)]


def _parquet_batches(path: Path, chunk: RawChunk, chunk_size: int, where: str):
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        for feature in chunk.features:
            if names.count(feature) != 1:
                raise ValueError(
                    f"{where}: has the column '{feature}' {names.count(feature)} times; needed: "
                    f"once. It has {spec_rules.listing(names)}"
                    + spec_rules.suggestion(feature, names)
                )
        yield from file.iter_batches(chunk_size, columns=list(chunk.features), use_threads=False)
