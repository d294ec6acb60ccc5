"""Division of the rows of one raw split into train, validation and test.

A row's split depends on its number or its time alone, not on the size of a block or the files.
"""

import argparse
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataloading.engines.duckdb_session import DuckDBSession
from dataloading.keys import split_mix
from dataloading.spec.feature_spec import TEST, TRAIN, VALIDATION
from dataloading.table_input import values as table_values
from dataloading.table_input.duckdb_files import read_parquet
from dataloading.table_input.files import Block
from dataloading.table_input.values import BadValue
from dataloading.transcode.raw_spec import RawSpec

DEFAULT_SHARES = "0.8,0.1,0.1"
_SPLITS = (TRAIN, VALIDATION, TEST)
_TOLERANCE = 1e-6  # of the sum of the shares
_FORMS = (
    "only whole numbers, only finite numbers, or only ISO 8601 dates or times, all with or all "
    "without an offset, such as 2024-05-31, 2024-05-31T23:59:59 or 2024-05-31T23:59:59Z"
)
_RULE = f"expected {_FORMS}"
# Types that the texts of a column of times may have, in the order in which they are tried; exact
# ones first. Numbers beyond 2^53 are exact as int64.
_TIME_TYPES = (
    pa.int64(),
    pa.float64(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns"),
    pa.timestamp("ns", "UTC"),
)


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


class SplitRequest(NamedTuple):
    """Shares of the splits, drawn at random, or in the order of a column of times."""

    shares: dict[str, float]
    seed: int = 0
    column: str | None = None


def parse_split(flags: argparse.Namespace) -> SplitRequest | None:
    """Returns what --split, --split_seed and --split_by_time request; None without them."""
    if flags.split is None and flags.split_by_time is None:
        if flags.split_seed is not None:
            raise ValueError("--split_seed is for --split: expected both flags")
        return None
    if flags.split_seed is not None and flags.split_by_time is not None:
        raise ValueError(
            "--split_seed is for random splits, --split_by_time is not: give one of the two"
        )
    seed = flags.split_seed or 0
    if seed < 0:
        raise ValueError(f"--split_seed is {seed}; expected 0 or more")
    return SplitRequest(parse_shares(flags.split or DEFAULT_SHARES), seed, flags.split_by_time)


class Route(NamedTuple):
    """Destination of the rows of one raw split.

    Attributes:
        source: the raw split.
        targets: splits of the data set, in the order of their numbers.
        numbers: (first row, block of each raw column) -> number of the target of each row; None:
            all rows have the only target.
        remedy: how to get rows into a target that has none.
    """

    source: str
    targets: tuple[str, ...]
    numbers: Callable[[int, dict[str, Block]], np.ndarray] | None = None
    remedy: str = ""

    def parts(
        self, first_row: int, block_of: dict[str, Block]
    ) -> Iterator[tuple[str, np.ndarray | None]]:
        """Yields (target, mask of its rows; None: all) for the rows from `first_row` on, counted
        from 0 in the raw split."""
        if self.numbers is None:
            yield self.targets[0], None
            return
        numbers = self.numbers(first_row, block_of)
        for number, target in enumerate(self.targets):
            yield target, numbers == number


def routes_of(
    spec: RawSpec, request: SplitRequest | None, session: DuckDBSession, write_times: "WriteTimes"
) -> list[Route]:
    """Returns where the rows of each raw split go; `session` is entered to sort times.

    write_times: writes the column of times, for `SplitRequest.column`.

    Raises:
        ValueError: the column does not exist, or a value is missing or not a time.
    """
    if request is None:
        return [Route(split, (split,)) for split in spec.sources]
    column = request.column
    if column is None:
        numbers = functools.partial(random_numbers, request)
        remedy = "a larger share for it, more rows, or another --split_seed"
    else:
        columns = [name for chunk in spec.sources[TRAIN] for name in chunk.features]
        if column not in columns:
            raise ValueError(
                f"--split_by_time {column}: expected a column of {spec.origin}, which has "
                f"{', '.join(columns)}; another column of the files must be listed in "
                "feature_spec and in the chunk's features"
            )
        with session:
            numbers = functools.partial(
                _time_numbers, column, *_time_bounds(request, session, write_times)
            )
        remedy = (
            f"a larger share for it, or a column with more different times than '{column}': rows "
            "of one time are not divided"
        )
    return [Route(TRAIN, tuple(request.shares), numbers, remedy)]


def random_numbers(request: SplitRequest, first_row: int, block_of: dict[str, Block]) -> np.ndarray:
    """Returns the number of the split of each row, drawn by a hash of its number and the seed."""
    bounds = np.cumsum(list(request.shares.values()))[:-1]
    num_rows = next(iter(block_of.values())).num_rows
    key = np.random.SeedSequence(request.seed).generate_state(1, np.uint64)
    numbers = np.arange(first_row, first_row + num_rows, dtype=np.uint64)
    words = split_mix.finalize(numbers * split_mix.INCREMENT + key)
    return np.searchsorted(bounds, (words >> np.uint64(11)) * 2.0**-53, side="right")


def _time_numbers(
    column: str, time_type: pa.DataType, bounds: list, first_row: int, block_of: dict[str, Block]
) -> np.ndarray:
    times = _times(block_of[column].columns[column], time_type)
    return np.searchsorted(np.array(bounds), times, side="left")


class WrittenTimes(NamedTuple):
    """Times of a column up to the first that is not of a type.

    Attributes:
        files: Parquet files with the column `time`.
        num_rows: their number.
        failure: message about the first other one; empty without one.
    """

    files: Sequence[Path]
    num_rows: int
    failure: str = ""


WriteTimes = Callable[[str, pa.DataType], WrittenTimes]  # (column, type) -> times


def _time_bounds(
    request: SplitRequest, session: DuckDBSession, write_times: WriteTimes
) -> tuple[pa.DataType, list]:
    """Returns the type of the texts of the column, and the last time of each split but the last
    one. Reads the column once for each type that it may have."""
    failures = []
    for time_type in _TIME_TYPES:
        times = write_times(request.column, time_type)
        if times.failure:
            failures.append(times)
            continue
        bounds = []
        for share in np.cumsum(list(request.shares.values()))[:-1]:
            offset = max(1, math.floor(share * times.num_rows + 0.5)) - 1
            (bound,) = session.connection.execute(
                f"SELECT time FROM {read_parquet(times.files)} ORDER BY time LIMIT 1 "
                f"OFFSET {offset}"
            ).fetchone()
            bounds.append(bound)
        return time_type, bounds
    raise ValueError(max(failures, key=lambda times: times.num_rows).failure)


def write_block_times(
    rows: Iterable[list[Block]], column: str, time_type: pa.DataType, file: Path
) -> WrittenTimes:
    """Writes the times of rows, which come as `split_blocks` yields them."""
    num_rows = 0
    schema = pa.schema([("time", _stored_type(time_type))])
    with pq.ParquetWriter(file, schema) as writer:
        for blocks in rows:
            block = next(block for block in blocks if column in block.columns)
            try:
                times = _times(block.columns[column], time_type)
            except BadValue as bad:
                failure = block.value_error(f"--split_by_time {column}", bad)
                return WrittenTimes([file], num_rows + bad.index, str(failure))
            writer.write_batch(pa.record_batch([pa.array(times)], schema=schema))
            num_rows += len(times)
    return WrittenTimes([file], num_rows)


def _stored_type(time_type: pa.DataType) -> pa.DataType:
    return time_type if pa.types.is_floating(time_type) else pa.int64()


def _times(column: pa.Array, time_type: pa.DataType) -> np.ndarray:
    """Returns the times of a column of text, numbers, dates or timestamps, as float64 or int64."""
    values = table_values.flat(column, 1)
    if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
        values = values.cast(pa.timestamp("us"), safe=False)
    elif table_values.is_text(values):
        values = table_values.converted(table_values.without_empty(values), time_type, _FORMS)
    elif not table_values.is_number(values):
        raise BadValue(0, f"a {values.type}", _RULE)
    elif not pa.types.is_floating(values.type):
        values = table_values.converted(values, _stored_type(time_type), _FORMS)
    if values.null_count:
        index = values.is_null().to_numpy(zero_copy_only=False).argmax()
        raise BadValue(index, "no value", "every row needs a time: " + _RULE)
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    numbers = values.to_numpy(zero_copy_only=False)
    stored = numbers.astype(np.float64 if pa.types.is_floating(time_type) else np.int64)
    # NaN and infinities, and fractions where whole numbers are tried.
    if (bad := (stored != numbers) | ~np.isfinite(numbers)).any():
        index = np.argmax(bad)
        raise BadValue(index, f"{numbers[index]:g}", _RULE)
    return stored
