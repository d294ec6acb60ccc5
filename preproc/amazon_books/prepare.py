"""The preparation in titled stages: raw files, staged events, ids, rows."""

import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

from dataloading.keys.vocabulary import text_file, write_counted
from dataloading.spec.output_folder import VOCABULARY_FOLDER
from preproc.amazon_books.engines import open_engine
from preproc.amazon_books.engines.interface import NumberedLog, StagedLog
from preproc.amazon_books.lines.line_files import find_files, pieces
from preproc.amazon_books.lines.metadata_lines import SCHEMA, stage_metadata
from preproc.amazon_books.lines.review_lines import stage_reviews
from preproc.amazon_books.options import AMAZON, AmazonOptions
from preproc.amazon_books.parquet_rows import (
    METADATA_FILE,
    ColumnNames,
    block_rows,
    write_metadata,
    write_split,
)
from preproc.amazon_books.samples import BYTES_PER_USER, splits
from preproc.amazon_books.tables import stage_tables
from preproc.engines.duckdb_session import PreparationSession
from preproc.scratch_folder import scratch_folder
from runtime.files.atomic import atomic_folder

# Memory in addition to the blocks of rows: Python, NumPy, Arrow and DuckDB; measured.
_BASE_BYTES = 192 << 20
_LEAST_BLOCK_BYTES = 4 << 20  # for each thread
_MAX_GROUP_BYTES = 128 << 20  # of a row group, encoded


def prepare(options: AmazonOptions) -> dict[str, int]:
    """Makes the data set `options.output_path`, under that name only when it is whole.

    Returns:
        the number of rows of each split.

    Raises:
        ValueError: options or input are wrong, or the memory limit is too small.
        OSError: no space left, among others.
    """
    columns = _columns(options)
    say = _Reporter()
    with (
        atomic_folder(options.output_path) as folder,
        scratch_folder(options.output_path, folder, options.temp_dir) as scratch,
    ):
        log, bad = _stage(options, scratch)
        num_events = sum(pq.read_metadata(file).num_rows for file in log.events)
        say(f"staged {num_events:,} events; left out {bad:,} bad lines or rows")
        with open_engine(options, scratch) as engine, engine.explained_errors():
            numbered = engine.number(log, options.min_events, scratch)
        for path in {*log.events, *log.users, *log.items}:
            path.unlink()
        say(
            f"kept {numbered.num_events.sum():,} events of {numbered.num_users:,} users and "
            f"{numbered.num_items:,} items; " + _removed(numbered, num_events, options.min_events)
        )
        for name, number in numbered.num_missing.items():
            if number and not options.no_metadata:
                say(f"{number:,} users or items have no {name}; they share one id")
        (folder / VOCABULARY_FOLDER).mkdir()
        for kind, column in (("user", columns.user[0]), ("item", columns.target[0])):
            write_counted(numbered.vocabularies[kind], folder / text_file(column))
        rows = _write_rows(options, numbered, folder, columns, say)
        write_metadata(
            folder / METADATA_FILE,
            columns.titles,
            numbered.cardinalities,
            _metadata(options, bad, rows),
        )
    return rows


def _removed(log: NumberedLog, num_events: int, min_events: int) -> str:
    users = log.num_users_before - log.num_users
    events = num_events - int(log.num_events.sum())
    return (
        f"--min_events {min_events} removed {users:,} users ({users / log.num_users_before:.1%}) "
        f"with {events:,} events ({events / num_events:.1%})"
    )


class _Reporter:
    """Prints finished steps and their duration on stderr."""

    def __init__(self):
        self._last = time.perf_counter()

    def __call__(self, what: str) -> None:
        now = time.perf_counter()
        print(f"{what}, {now - self._last:.1f} s", file=sys.stderr, flush=True)
        self._last = now


def _columns(options: AmazonOptions) -> ColumnNames:
    if options.input_format == AMAZON:
        return ColumnNames(("user_id",), ("item_id", "cat_id"), ("uid", "item", "cat"))
    return ColumnNames(
        user=("user_id", *options.user_features),
        item=("item_id", *options.item_features),
        titles=("uid", *options.user_features, "item", *options.item_features),
    )


# Raw files -> staged events


def _stage(options: AmazonOptions, scratch: Path) -> tuple[StagedLog, int]:
    """The log as Parquet files, and how many bad lines or rows it is without."""
    if options.input_format != AMAZON:
        return stage_tables(options, scratch)
    reviews = options.reviews or _find_files(options, "reviews", "name the files with --reviews")
    meta = options.meta
    if not meta and not options.no_metadata:
        remedy = "name the files with --meta, or put all items in one category with --no_metadata"
        meta = _find_files(options, "meta", remedy)
    events, num_bad = _stage_reviews(options, reviews, scratch)
    items = [scratch / f"meta_{i}.parquet" for i in range(len(meta))]
    for file, target in zip(meta, items, strict=True):
        num_bad += stage_metadata(file, target, options.on_bad_line, options.category_list)
    if not items:
        items = [scratch / "none.parquet"]
        pq.write_table(SCHEMA.empty_table(), items[0])
    feature = f"category in {', '.join(map(str, meta))}"
    return StagedLog(
        events, (), tuple(items), user_features=(), item_features=(feature,), gaps_count=False
    ), num_bad


def _stage_reviews(
    options: AmazonOptions, files: tuple[Path, ...], scratch: Path
) -> tuple[tuple[Path, ...], int]:
    staged, num_bad = [], 0
    with PreparationSession(options, scratch / "duckdb") as session, session.explained_errors():
        for file in files:
            for piece in pieces(file, scratch):
                staged.append(scratch / f"reviews_{len(staged)}.parquet")
                num_bad += stage_reviews(session, file, piece, staged[-1], options.on_bad_line)
    return tuple(staged), num_bad


def _find_files(options: AmazonOptions, kind: str, remedy: str) -> tuple[Path, ...]:
    """Returns the files of the folder and prints their names: all of them are read."""
    folder = options.amazon_dataset_path
    files = find_files(folder, f"{kind}_")
    if not files:
        raise ValueError(
            f"--amazon_dataset_path {folder} holds no {kind}_*.json or {kind}_*.json.gz; {remedy}"
        )
    names = ", ".join(path.name for path in files)
    print(f"{kind}_*.json of {folder}: {names}", file=sys.stderr, flush=True)
    return files


# Ids -> rows


def _write_rows(
    options: AmazonOptions, log: NumberedLog, folder: Path, columns: ColumnNames, say: _Reporter
) -> dict[str, int]:
    ids_bytes = log.num_users * BYTES_PER_USER + sum(
        ids.nbytes for ids in (*log.user_features, *log.item_features)
    )
    memory = options.memory_limit_bytes - _BASE_BYTES - ids_bytes
    if memory < options.threads * _LEAST_BLOCK_BYTES:
        least = _BASE_BYTES + ids_bytes + options.threads * _LEAST_BLOCK_BYTES
        raise ValueError(
            f"{log.num_users:,} users and {log.num_items:,} items need a --memory_limit of "
            f"{least / (1 << 20):.0f} MiB or more with --threads {options.threads}, got "
            f"{options.memory_limit_bytes / (1 << 20):.0f} MiB"
        )
    # Half for the blocks, a quarter each for the pages and the dictionaries of row groups.
    block = block_rows(len(columns.item), options.max_history, memory // 2, options.threads)
    group_bytes = min(memory // options.threads // 4, _MAX_GROUP_BYTES)
    rows = {}
    for split in splits(
        *(log, options.validation_event, options.max_history, options.seed, options.negatives),
        options.min_training_history,
    ):
        sizes = (options.rows_per_file, block, options.threads, group_bytes)
        write_split(split, folder / split.name, columns, *sizes)
        rows[split.name] = split.num_rows
        say(f"{split.name}: {split.num_rows:,} rows")
        del split  # before the next one is made
    return rows


def _metadata(options: AmazonOptions, bad: int, rows: dict[str, int]) -> dict:
    """Returns settings that the data set depends on, on every engine the same."""
    return {
        "rows": rows,
        "min_events": options.min_events,
        "max_history": options.max_history,
        "min_training_history": options.min_training_history,
        "category_list": options.category_list,
        "negatives": options.negatives,
        "seed": options.seed,
        "bad_lines": bad,
    }
