"""Division of the rows of one raw mapping into train, validation and test.

    split = RandomSplit(parse_shares("0.8,0.1,0.1"), seed=0)
    part = split.parts(first_row, num_rows, times=None)  # index into split.targets, of each row

Shares of rows, drawn at random or in the order of time. A row's part depends on its number (or its
time) alone, so that neither the size of a block nor the division into files matters.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataloading.spec.feature_spec import TEST, TRAIN, VALIDATION
from dataloading.table_input import values as transcode_values
from dataloading.table_input.duckdb_files import read_parquet
from dataloading.table_input.files import Block, mapping_blocks
from dataloading.table_input.values import BadValue
from dataloading.transcode.raw_spec import RawSpec

_RULE = (
    "times are all whole numbers, all numbers, or all ISO 8601 dates or times, such as 2024-05-31 "
    "or 2024-05-31T23:59:59"
)


class TimeKind(NamedTuple):
    """Kind of the times that the texts of a column stand for.

    parsed: the Arrow type of a text.
    stored: of what is compared.
    """

    parsed: pa.DataType
    stored: pa.DataType


# In the order in which they are tried; exact ones first. Numbers beyond 2^53 are exact as int64.
KINDS = (
    TimeKind(pa.int64(), pa.int64()),
    TimeKind(pa.float64(), pa.float64()),
    TimeKind(pa.timestamp("us"), pa.int64()),
    TimeKind(pa.timestamp("us", "UTC"), pa.int64()),
    TimeKind(pa.timestamp("ns"), pa.int64()),
    TimeKind(pa.timestamp("ns", "UTC"), pa.int64()),
)


def times_of(column: pa.Array, kind: TimeKind) -> np.ndarray:
    """Returns the times of a column of text, numbers, dates or timestamps, as `kind.stored`.

    Raises:
        BadValue: a value is missing or is not of that kind; `index` is its row.
    """
    values = transcode_values.flat(column, 1)
    if pa.types.is_temporal(values.type) and not pa.types.is_time(values.type):
        values = values.cast(pa.timestamp("us"), safe=False)
    elif pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = transcode_values.converted(
            transcode_values.without_empty(values), kind.parsed, _RULE
        )
    elif not transcode_values.is_number(values):
        raise BadValue(0, f"a {values.type}", _RULE)
    elif not pa.types.is_floating(values.type):
        values = transcode_values.converted(values, kind.stored, _RULE)
    if values.null_count:
        index = values.is_null().to_numpy(zero_copy_only=False).argmax()
        raise BadValue(index, "no value", "every row needs a time: " + _RULE)
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    numbers = values.to_numpy(zero_copy_only=False)
    stored = numbers.astype(kind.stored.to_pandas_dtype())
    if (stored != numbers).any():  # NaN, and fractions where whole numbers are tried
        index = np.argmax(stored != numbers)
        raise BadValue(index, f"{numbers[index]:g}", _RULE)
    return stored


DEFAULT_SHARES = "0.8,0.1,0.1"
_SPLITS = (TRAIN, VALIDATION, TEST)
_TOLERANCE = 1e-6  # of the sum of the shares


def parse_shares(text: str) -> dict[str, float]:
    """Returns the shares above 0 of train, validation and test, from text such as 0.8,0.1,0.1."""
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    valid = len(shares) == len(_SPLITS) and all(share >= 0 for share in shares)
    if not valid or abs(sum(shares) - 1) > _TOLERANCE or not shares[0] or shares[0] >= 1:
        raise ValueError(
            f"--split is '{text}'; expected three shares, of train, validation and test, that are "
            f"0 or more and add up to 1, e.g. {DEFAULT_SHARES}; 0 leaves a split out, but not train"
        )
    return {name: share for name, share in zip(_SPLITS, shares, strict=True) if share}


@dataclass(frozen=True)
class RandomSplit:
    """Rows drawn at random, each by a hash of its number and the seed.

    Attributes:
        shares: split -> share of the rows; they add up to 1.
        seed: 0 or more; another seed draws other rows.
    """

    shares: dict[str, float]
    seed: int = 0
    column: None = None

    @property
    def targets(self) -> tuple[str, ...]:
        """The splits, in order."""
        return tuple(self.shares)

    def parts(self, first_row: int, num_rows: int, times: pa.Array | None) -> np.ndarray:
        """Returns the index into `targets` of rows `first_row` to `first_row + num_rows - 1`."""
        bounds = np.cumsum(list(self.shares.values()))[:-1]
        return np.searchsorted(bounds, _uniform(first_row, num_rows, self.seed), side="right")

    def why_empty(self, target: str) -> str:
        """Returns how to get rows into a split that has none."""
        return f"a larger share for '{target}', more rows, or another --split_seed"


def _uniform(first: int, count: int, seed: int) -> np.ndarray:
    """Returns float64 [count] in [0, 1): SplitMix64 of the numbers from `first` on."""
    key = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    words = np.arange(first, first + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + key
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((words ^ (words >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


@dataclass(frozen=True)
class TimeSplit:
    """Rows in the order of a column of times: train has the earliest, test the latest.

    Rows of one time are never divided: they all belong to the earlier split.

    Attributes:
        shares: split -> share of the rows.
        column: name of the raw column.
        kind: what its values are.
        bounds: the last time of each split but the last one.
    """

    shares: dict[str, float]
    column: str
    kind: TimeKind
    bounds: tuple

    @property
    def targets(self) -> tuple[str, ...]:
        """The splits, in order."""
        return tuple(self.shares)

    def parts(self, first_row: int, num_rows: int, times: pa.Array | None) -> np.ndarray:
        """Returns the index into `targets` of each row, from its value of `column`."""
        return np.searchsorted(np.array(self.bounds), times_of(times, self.kind), side="left")

    def why_empty(self, target: str) -> str:
        """Returns how to get rows into a split that has none."""
        return (
            f"a larger share for '{target}', or a column with more different times than "
            f"'{self.column}': rows of one time are not divided"
        )


def time_split(
    spec: RawSpec, shares: dict[str, float], column: str, session, scratch: Path, chunk_size: int
) -> TimeSplit:
    """Returns the split by a column of times; reads the column once for each kind it may have.

    Args:
        spec: the raw data, with the mapping `train` alone.
        session: a `DuckDBSession`, entered, which sorts the times.
        scratch: a folder for the times.
        chunk_size: the most rows to work on at a time.

    Raises:
        ValueError: the column is not there, or a value is missing or not a time.
    """
    file, failures = scratch / "times.parquet", []
    for kind in KINDS:
        try:
            num_rows = _write_times(spec, column, kind, file, chunk_size)
        except _NoTime as failure:
            failures.append(failure)
            continue
        positions = np.cumsum(list(shares.values()))[:-1] * num_rows
        bounds = []
        for position in positions:
            offset = max(1, math.floor(position + 0.5)) - 1
            (bound,) = session.connection.execute(
                f"SELECT time FROM {read_parquet(file)} ORDER BY time LIMIT 1 OFFSET {offset}"
            ).fetchone()
            bounds.append(bound)
        file.unlink()
        return TimeSplit(shares, column, kind, tuple(bounds))
    raise ValueError(str(max(failures, key=lambda failure: failure.row)))


def check_column(spec: RawSpec, column: str) -> None:
    """Raises ValueError where the raw mapping `train` has no such column."""
    columns = [name for chunk in spec.sources[TRAIN] for name in chunk.features]
    if column not in columns:
        raise ValueError(
            f"--split_by_time {column}: expected a column of {spec.origin}, which has "
            f"{', '.join(columns)}; another column of the files must be listed in "
            "feature_spec and in the chunk's features"
        )


class SplitRequest(NamedTuple):
    """The flags of a split.

    Attributes:
        shares: split -> share of the rows.
        seed: of a random split.
        column: of a split by time; None: at random.
    """

    shares: dict[str, float]
    seed: int = 0
    column: str | None = None


class Route(NamedTuple):
    """Destination of the rows of one raw mapping.

    Attributes:
        source: the raw mapping.
        targets: the mappings of the data set that get its rows.
        split: which row goes where; None: all to the only target.
    """

    source: str
    targets: tuple[str, ...]
    split: RandomSplit | TimeSplit | None = None

    def parts(self, first_row: int, block_of: dict[str, Block]):
        """Yields (target, mask of its rows; None: all) for neighbouring rows.

        Args:
            first_row: number of the first one in the raw mapping, from 0.
            block_of: raw column -> its block of these rows.
        """
        if self.split is None:
            yield self.targets[0], None
            return
        times = None
        if self.split.column is not None:
            times = block_of[self.split.column].columns[self.split.column]
        num_rows = next(iter(block_of.values())).num_rows
        parts = self.split.parts(first_row, num_rows, times)
        for number, target in enumerate(self.targets):
            yield target, parts == number


def routes_of(
    spec: RawSpec, request: SplitRequest | None, session, scratch: Path, chunk_size: int
) -> list[Route]:
    """Returns where the rows of each raw mapping go.

    Args:
        session: a `DuckDBSession`, which sorts times; entered here
        if needed.
        scratch: a folder for them.
    """
    if request is None:
        return [Route(mapping, (mapping,)) for mapping in spec.sources]
    if request.column is None:
        split = RandomSplit(request.shares, request.seed)
    else:
        check_column(spec, request.column)
        with session:
            split = time_split(spec, request.shares, request.column, session, scratch, chunk_size)
    return [Route(TRAIN, split.targets, split)]


class _NoTime(Exception):
    """A value that is not a time of one kind; `row` counts the rows up to it."""

    def __init__(self, message: str, row: int):
        super().__init__(message)
        self.row = row


def _write_times(spec: RawSpec, column: str, kind: TimeKind, file: Path, chunk_size: int) -> int:
    """Writes the times of all rows to a Parquet file; returns their number."""
    num_rows = 0
    schema = pa.schema([("time", kind.stored)])
    with pq.ParquetWriter(file, schema) as writer:
        for block in _blocks_of(spec, column, chunk_size):
            try:
                times = times_of(block.columns[column], kind)
            except BadValue as bad:
                row = block.first_row + bad.index
                message = (
                    f"{block.where}: --split_by_time {column}: found {bad.found} in row {row} "
                    f"(rows are counted from 1, a header is not); {bad.rule}"
                )
                raise _NoTime(message, num_rows + bad.index) from None
            writer.write_batch(pa.record_batch([pa.array(times)], schema=schema))
            num_rows += len(times)
    return num_rows


def _blocks_of(spec: RawSpec, column: str, chunk_size: int) -> Iterator[Block]:
    for blocks in mapping_blocks(spec, TRAIN, chunk_size):
        yield next(block for block in blocks if column in block.columns)
