"""Content of a data set, and a check that it is complete.

    python -m dataloading.describe data/mine

Reads every value of split binaries, split TFRecords and tensor files, a few megabytes at a time;
DuckDB summarizes them. Events of histories are checked, records of histories are not read.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from config.command import CommandOptions, parse
from config.flag import flag
from dataloading.formats.open_chunk import is_readable, length_faults, open_chunk
from dataloading.formats.split_tfrecords.folder_format import stored_spec
from dataloading.histories.events import Events
from dataloading.interactions.stored import length_of_lists, read_candidate_lists
from dataloading.pipeline.chunk_reader import OpenChunk
from dataloading.pipeline.ragged import Ragged
from dataloading.spec import feature_spec as fs
from dataloading.spec.data_set_files import SPEC_FILE
from dataloading.spec.feature_spec import Chunk, FeatureSpec
from dataloading.spec.history_channels import RANGES_TYPE
from dataloading.spec.locate import find_feature_spec
from dataloading.spec.spans import spans_of
from runtime.cli import exit_status

BROKEN = 1  # exit status where the data set is not whole
_BLOCK_BYTES, _MEMORY_LIMIT = 8 << 20, "1GB"  # of a block that is read; of DuckDB
_LARGEST = float(np.finfo(np.float32).max)
_SCHEMA = pa.schema([("feature", pa.int32()), ("value", pa.float64()), ("is_fault", pa.bool_())])
# Infinities count for min and max, not for the mean.
_SUMMARY = """
    SELECT feature, count(*) AS num_values, count(*) FILTER (is_fault) AS num_faults,
        approx_count_distinct(value) FILTER (NOT is_fault) AS num_used,
        min(value) FILTER (NOT isnan(value)) AS min, avg(value) FILTER (isfinite(value)) AS mean,
        max(value) FILTER (NOT isnan(value)) AS max, count(*) FILTER (value = 0) AS num_zeros,
        count(*) FILTER (isnan(value)) AS num_nan, count(*) FILTER (isinf(value)) AS num_infinite
    FROM stream GROUP BY feature
"""


@dataclass(frozen=True)
class DescribeOptions(CommandOptions):
    """Prints what is in a data set. Exit status 1: it is broken."""

    directory: str = flag(MISSING, f"folder with a {SPEC_FILE}", is_positional=True)
    feature_spec: str = flag(SPEC_FILE, "name of the YAML file in it", metavar="FILE")


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 for a whole data set, 1 for a broken one, 2 without a data set."""

    def work() -> int:
        options = parse(DescribeOptions, argv, "dataloading.describe")
        return describe(find_feature_spec(options.directory, options.feature_spec))

    return exit_status(work)


def describe(path: Path) -> int:
    """Prints what is in the data set of a feature spec; returns 0 for a whole one, else 1."""
    spec = stored_spec(FeatureSpec.from_yaml(path))
    faults: list[str] = []
    for split in spec.source_spec:
        print("\n".join(describe_split(spec, split, faults)))
    if faults:
        print(f"broken: {len(faults)} faults", *faults, sep="\n  ")
        return BROKEN
    chunks = [chunk for chunks in spec.source_spec.values() for chunk in chunks]
    others = {chunk.type for chunk in chunks if not is_readable(spec, chunk)} - {RANGES_TYPE}
    if others:
        print(f"every file is there; those of type {', '.join(sorted(others))} were not checked")
    else:
        print("complete: every file is there, has all its rows, and no value is out of range")
    return 0


def describe_split(spec: FeatureSpec, split: str, faults: list[str]) -> list[str]:
    """Returns a split in lines for people; appends what is wrong with it to `faults`."""
    lines, opened, kind, num_before = [], {}, "", len(faults)
    for index, chunk in enumerate(spec.source_spec[split]):
        names = ", ".join(chunk.features)
        try:
            spec.validate_files(split, [index])
            if chunk.type == RANGES_TYPE:
                opened[index] = events = Events(spec, split, chunk)
                events.ranges(np.arange(events.num_samples))
                lines.append(f"  {names}: ranges of {events.num_events:,} events")
                continue
            if not is_readable(spec, chunk):
                lines.append(f"  {names}: {chunk.type}, rows and values are not checked")
                continue
            opened[index] = stored = open_chunk(spec, split, chunk)
            for name, facts in summarize(spec, chunk, stored).items():
                lines.append(f"  {_feature_line(spec, name, facts, stored)}")
                if facts["num_faults"]:
                    fault = f"{facts['num_faults']} {_rule(spec, name)[0]}"
                    faults.append(f"split '{split}': feature '{name}': {fault}")
                if name in spec.channel_spec.get(fs.LABEL_CHANNEL, ()):
                    kind = f", share of 1 in {name} {facts['mean']:.4f}"
        except ValueError as error:  # with its location
            faults.append(str(error))
    count = next((chunk.num_samples for chunk in opened.values()), None)
    try:
        faults += length_faults(spec, split, opened)
        if count == 0:
            faults.append(f"split '{split}' has no rows")
        if len(faults) == num_before and len(opened) == len(spec.source_spec[split]):
            kind += _candidate_lists(spec, split, count)
    except ValueError as error:  # length.json or a candidate list is invalid
        faults += [str(error)] * (str(error) not in faults)  # of another split
    rows = "rows unknown" if count is None else f"{count:,} rows"
    return [f"{split}: {rows}{kind}, {_size_bytes(spec, split):,} bytes", *lines]


def summarize(spec: FeatureSpec, chunk: Chunk, stored: OpenChunk) -> dict[str, dict]:
    """Returns the columns of `_SUMMARY` by feature, of those that have values.

    Raises:
        ValueError: a damaged record.
    """
    failures: list[ValueError] = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for name, values in _blocks(spec, chunk, stored):
                feature = np.full(len(values), chunk.features.index(name), np.int32)
                values = values.astype(np.float64)
                arrays = feature, values, _rule(spec, name)[1](values)
                yield pa.record_batch([pa.array(array) for array in arrays], _SCHEMA)
        except ValueError as error:  # DuckDB would report its text only
            failures.append(error)

    with duckdb.connect(config={"memory_limit": _MEMORY_LIMIT}) as connection:
        stream = pa.RecordBatchReader.from_batches(_SCHEMA, batches())
        result = connection.register("stream", stream).execute(_SUMMARY)
        names = [column[0] for column in result.description]
        facts = {row[0]: dict(zip(names, row, strict=True)) for row in result.fetchall()}
    if failures:
        raise failures[0]
    return {name: facts[i] for i, name in enumerate(chunk.features) if i in facts}


def _blocks(spec: FeatureSpec, chunk: Chunk, stored: OpenChunk) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the values of a chunk by feature, flat, a block of rows at a time."""
    spans = spans_of(spec, [chunk])
    block_rows = max(1, _BLOCK_BYTES // spec.sample_bytes(chunk))
    for start in range(0, stored.num_samples, block_rows):
        rows = stored.read(range(start, min(start + block_rows, stored.num_samples)))
        if isinstance(rows, Ragged):
            yield chunk.features[0], rows.values
            continue
        for name, span in spans.items():
            yield name, rows[:, span.begin : span.end].ravel()


def _rule(spec: FeatureSpec, name: str) -> tuple[str, Callable[[np.ndarray], np.ndarray]]:
    """Returns the faults that a loader refuses in a feature, for people, and their mask."""
    if name in spec.channel_spec.get(fs.LABEL_CHANNEL, ()):
        return "labels other than 0 and 1", lambda values: (values != 0) & (values != 1)
    if name in spec.channel_spec.get(fs.NUMERICAL_CHANNEL, ()):
        rule = "numerical values that are not finite in float32"
        return rule, lambda values: ~(np.abs(values) <= _LARGEST)  # true for NaN
    if "cardinality" in spec.feature_spec[name]:
        end = spec.cardinality(name)
        return f"ids outside of [0, {end})", lambda values: (values < 0) | (values >= end)
    return "", lambda values: np.zeros(len(values), bool)


def _feature_line(spec: FeatureSpec, name: str, facts: dict, stored: OpenChunk) -> str:
    channel = next((c for c, names in spec.channel_spec.items() if name in names), "no channel")
    hotness = spec.hotness(name)
    width = f" x {hotness}" if hotness > 1 else ""
    if stored.ragged:
        width = f" x 0 to {hotness}, {stored.num_values / stored.num_samples:.3g} on the average"
    line = f"{name} ({channel}, {spec.dtype(name)}{width}): "
    if "cardinality" in spec.feature_spec[name]:
        line += f"cardinality {spec.cardinality(name):,}, about {facts['num_used']:,} ids in use, "
    for key, digits in (("min", 12), ("mean", 6), ("max", 12)):
        line += f"{key} unknown, " if facts[key] is None else f"{key} {facts[key]:.{digits}g}, "
    line += f"zeros {facts['num_zeros'] / facts['num_values']:.1%}"
    if facts["num_nan"] or facts["num_infinite"]:
        line += f", NaN {facts['num_nan']:,}, infinite {facts['num_infinite']:,}"
    return line


def _candidate_lists(spec: FeatureSpec, split: str, num_rows: int) -> str:
    """Returns the number of candidate lists, for people; raises ValueError for a broken list."""
    if not {fs.USER_CHANNEL, fs.ITEM_CHANNEL} <= spec.channel_spec.keys():
        return ""
    length = length_of_lists(spec, split)
    if length is None:
        return ""
    read_candidate_lists(spec, split)
    return f", {num_rows // length:,} candidate lists of {length:,}"


def _size_bytes(spec: FeatureSpec, split: str) -> int:
    files = {spec.base_directory / file for c in spec.source_spec[split] for file in c.files}
    return sum(path.stat().st_size for path in files if path.is_file())


if __name__ == "__main__":
    sys.exit(main())
