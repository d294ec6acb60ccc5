"""The preparation in titled stages: raw files, events, ids, rows."""

import sys
import time
from pathlib import Path

from dataloading.keys.vocabulary import text_file, write_counted
from dataloading.spec.data_set_files import VOCABULARY_FOLDER
from preproc.amazon_books.engines.interface import NumberedLog
from preproc.amazon_books.engines.numbering import number_log
from preproc.amazon_books.logs.event_log import EventLog
from preproc.amazon_books.logs.reviews import read_reviews
from preproc.amazon_books.logs.tables import read_tables
from preproc.amazon_books.options import AMAZON, AmazonOptions
from preproc.amazon_books.parquet_rows import (
    METADATA_FILE,
    ColumnNames,
    block_rows,
    write_metadata,
    write_split,
)
from preproc.amazon_books.samples import BYTES_PER_USER, splits
from preproc.engines.engine import Engine
from preproc.engines.open_engine import open_engine
from runtime.files.outputs import DATA_SET
from runtime.files.staging import Staging

TOOL = "preproc.amazon_books"
# Memory in addition to the blocks of rows: Python, NumPy, Arrow and DuckDB; measured.
_BASE_BYTES = 192 << 20
_LEAST_BLOCK_BYTES = 4 << 20  # for each thread


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
    with Staging(
        options.output_path, TOOL, DATA_SET, read=_read(options), resumes=False
    ) as staging:
        folder, scratch = staging.data, staging.temp_folder(options.temp_dir)
        name = "spark" if options.engine == "spark" else "duckdb"
        with open_engine(name, scratch, **options.engine_settings()) as engine:
            log = _read_log(options, engine, scratch)
            say(f"staged {log.num_events:,} events; left out {log.num_bad:,} bad lines or rows")
            numbered = number_log(options, engine, log, scratch)
        users = numbered.num_users_before - numbered.num_users
        events = log.num_events - int(numbered.num_events.sum())
        say(
            f"kept {numbered.num_events.sum():,} events of {numbered.num_users:,} users and "
            f"{numbered.num_items:,} items; --min_events {options.min_events} removed {users:,} "
            f"users ({users / numbered.num_users_before:.1%}) with {events:,} events "
            f"({events / log.num_events:.1%})"
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
            _metadata(options, log.num_bad, rows),
        )
        staging.publish()
    return rows


class _Reporter:
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


def _read(options: AmazonOptions) -> list[Path]:
    named = (options.amazon_dataset_path, options.users, options.items)
    files = (*options.reviews, *options.meta, *options.interactions)
    return [*filter(None, named), *files]


def _read_log(options: AmazonOptions, engine: Engine, scratch: Path) -> EventLog:
    if options.input_format == AMAZON:
        return read_reviews(options, engine, scratch)
    return read_tables(options, engine)


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
    block = block_rows(len(columns.item), options.max_history, memory, options.threads)
    rows, numbers = {}, (options.max_history, options.seed, options.negatives)
    for split in splits(log, options.validation_event, *numbers, options.min_training_history):
        sizes = (options.rows_per_file, block, options.threads)
        write_split(split, folder / split.name, columns, *sizes)
        rows[split.name] = split.num_rows
        say(f"{split.name}: {split.num_rows:,} rows")
        del split  # before the next one is made
    return rows


def _metadata(options: AmazonOptions, bad: int, rows: dict[str, int]) -> dict:
    names = ("min_events", "max_history", "min_training_history", "category_list", "negatives")
    settings = {name: getattr(options, name) for name in (*names, "seed")}
    return {"rows": rows, **settings, "bad_lines": bad}
