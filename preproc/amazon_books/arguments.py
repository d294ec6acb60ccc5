"""The flags of `python -m preproc.amazon_books`, read once and checked."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from preproc.amazon_books.engines.engine import ENGINES, default_engine
from preproc.amazon_books.negatives import NEGATIVES, UNIFORM
from preproc.delimiter import check_delimiter, read_delimiter
from preproc.machine_limits import check_limits, memory_limit_bytes

AMAZON, CSV, PARQUET = "amazon", "csv", "parquet"


@dataclass(frozen=True)
class Options:
    """One run; `python -m preproc.amazon_books --help` says what each field does.

    Raises:
        ValueError: a value out of range, or flags that contradict each other.
    """

    output_path: Path
    amazon_dataset_path: Path | None = None
    reviews: tuple[Path, ...] = ()
    meta: tuple[Path, ...] = ()
    no_metadata: bool = False
    input_format: str = AMAZON
    interactions: tuple[Path, ...] = ()
    user_column: str = "user_id"
    item_column: str = "item_id"
    time_column: str = "time"
    user_features: tuple[str, ...] = ()
    item_features: tuple[str, ...] = ()
    users: Path | None = None
    items: Path | None = None
    delimiter: str = ","
    min_events: int = 20
    max_history: int = 100
    validation_event: bool = False
    negatives: str = UNIFORM
    seed: int = 0
    rows_per_file: int = 200_000
    on_bad_line: str = "error"
    engine: str = "duckdb"
    threads: int = 1
    memory_limit_bytes: int = 4 << 30
    temp_dir: Path | None = None  # None: beside the output

    def __post_init__(self):
        for name, least in (("min_events", 2), ("max_history", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"--{name} must be {least} or more, found {getattr(self, name)}")
        if self.seed >= 1 << 64:
            raise ValueError(f"--seed must be below 2^64, found {self.seed}")
        if self.rows_per_file < 2 or self.rows_per_file % 2:
            raise ValueError(
                "--rows_per_file must be even, because rows come in pairs, and 2 or more; found "
                f"{self.rows_per_file}"
            )
        check_limits(self.threads, self.memory_limit_bytes, self.temp_dir)
        check_delimiter(self.delimiter)
        self._check_sources()

    def _check_sources(self):
        if self.input_format != AMAZON:
            if not self.interactions:
                raise ValueError(
                    f"--input_format {self.input_format} needs --interactions: files with a row "
                    "for each event"
                )
        elif self.amazon_dataset_path is None and not (
            self.reviews and (self.meta or self.no_metadata)
        ):
            raise ValueError(
                "--amazon_dataset_path is missing: the folder of reviews_*.json and meta_*.json "
                "(or give --reviews and --meta; or other logs with --input_format csv or parquet)"
            )
        if self.meta and self.no_metadata:
            raise ValueError("--meta and --no_metadata contradict each other; leave one out")
        for name in ("reviews", "meta", "interactions"):
            paths = [path.resolve() for path in getattr(self, name)]
            if len(set(paths)) < len(paths):
                raise ValueError(f"--{name} names a file twice, whose rows would count twice")
        columns = (self.user_column, self.item_column, self.time_column)
        if len(set(columns)) < 3:
            raise ValueError(
                "--user_column, --item_column and --time_column must be three columns, found "
                f"{', '.join(columns)}"
            )
        for name, table in (("user", self.users), ("item", self.items)):
            if table is not None and not getattr(self, f"{name}_features"):
                raise ValueError(
                    f"--{name}s {table} needs --{name}_features: which of its columns to take"
                )


def parse(argv: list[str] | None = None) -> Options:
    """Reads the command line.

    Raises:
        ValueError: see `Options`. (argparse itself exits on an unknown flag.)
    """
    given = {
        name: value
        for name, value in vars(_parser().parse_args(argv)).items()
        if value is not None and value is not False
    }
    _check_read(given)
    for name in ("amazon_dataset_path", "output_path", "users", "items", "temp_dir"):
        if name in given:
            given[name] = Path(given[name])
    for name in ("reviews", "meta", "interactions"):
        if name in given:
            given[name] = tuple(map(Path, given[name]))
    for name in ("user_features", "item_features"):
        if name in given:
            given[name] = _names(name, given[name])
    if "delimiter" in given:
        given["delimiter"] = read_delimiter(given["delimiter"])
    given["memory_limit_bytes"] = memory_limit_bytes(given.pop("memory_limit", None))
    given.setdefault("threads", len(os.sched_getaffinity(0)))
    given.setdefault("engine", default_engine())
    return Options(**given)


def _names(flag: str, text: str) -> tuple[str, ...]:
    """ "a,b" -> ("a", "b")."""
    names = tuple(text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ValueError(
            f"--{flag} {text!r} must be different names of columns with a comma between them"
        )
    return names


# By what reads them.
_AMAZON_FLAGS = ("amazon_dataset_path", "reviews", "meta", "no_metadata")
_TABLE_FLAGS = ("interactions", "user_column", "item_column", "time_column")
_TABLE_FLAGS += ("user_features", "item_features", "users", "items")


def _check_read(given: dict) -> None:
    """Refuses flags that nothing would read."""
    unread = []
    input_format = given.get("input_format", AMAZON)
    if input_format == AMAZON:
        unread += [(name, "--input_format csv or parquet") for name in _TABLE_FLAGS]
    else:
        unread += [(name, "--input_format amazon") for name in _AMAZON_FLAGS]
    if input_format != CSV:
        unread.append(("delimiter", "--input_format csv"))
    if "reviews" in given and ("meta" in given or "no_metadata" in given):
        unread.append(
            ("amazon_dataset_path", "no --reviews and --meta (or --no_metadata), which say it all")
        )
    for name, reader in unread:
        if name in given:
            raise ValueError(f"--{name} is only read with {reader}; leave it out")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m preproc.amazon_books",
        description="Prepares reviews, or any log of who did what when, for SIM, DIEN and DIN: "
        "histories with negatives, as Parquet files train/ and test/ with a metadata.json. "
        "`python -m preproc.amazon_books.parquet_to_tfrecord` goes on from there.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--amazon_dataset_path",
        metavar="DIR",
        help="folder with reviews_*.json and meta_*.json, plain or gzip",
    )
    add(
        "--output_path",
        required=True,
        metavar="DIR",
        help="new folder; appears when complete. What a killed run leaves, the next one for the "
        "same folder removes",
    )
    add("--reviews", nargs="+", metavar="FILE", help="review files, instead of the folder's")
    add("--meta", nargs="+", metavar="FILE", help="metadata files, instead of the folder's")
    add(
        "--no_metadata",
        action="store_true",
        help="read no metadata: all items are of one category",
    )
    add(
        "--input_format",
        choices=(AMAZON, CSV, PARQUET),
        help="amazon (the default), or tables of your own: csv (with a header) or parquet",
    )
    add("--interactions", nargs="+", metavar="FILE", help="tables with a row for each event")
    add("--user_column", metavar="NAME", help="who (default user_id): integers or text")
    add("--item_column", metavar="NAME", help="what (default item_id): integers or text")
    add("--time_column", metavar="NAME", help="when (default time): numbers or ISO timestamps")
    add("--user_features", metavar="A,B", help="columns of --users, or else of --interactions")
    add("--item_features", metavar="A,B", help="columns of --items, or else of --interactions")
    add("--users", metavar="FILE", help="table of users, with --user_column")
    add("--items", metavar="FILE", help="table of items, with --item_column")
    add("--delimiter", metavar="C", help="of CSV files: a character, or 'tab' (default ',')")
    add(
        "--min_events",
        "--shortest_sequence_for_user",
        type=int,
        help="leave out users with fewer events (default 20)",
    )
    add(
        "--max_history", "--max_sequence_length", type=int, help="length of a history (default 100)"
    )
    add(
        "--validation_event",
        action="store_true",
        help="keep each user's event before the last for validation/",
    )
    add(
        "--negatives",
        choices=NEGATIVES,
        help="distribution of negative items: uniform over all items but the positive one (the "
        "default), or in proportion to the items' numbers of events, as the original draws them",
    )
    add("--seed", type=int, help="of the negatives (default 0)")
    add("--rows_per_file", type=int, help="even (default 200000); files are written side by side")
    add(
        "--on_bad_line",
        choices=("error", "skip"),
        help="malformed lines and rows without a user, item or time: stop at the first (error, "
        "the default), or leave them out and count them. Tables that are not UTF-8, and values "
        "that are no time, are errors either way",
    )
    add(
        "--engine",
        choices=ENGINES,
        help="what does the work; both give the same rows (default: nvtabular where there is a "
        "GPU with cuDF, else duckdb)",
    )
    add("--threads", type=int, help="default: every core")
    add("--memory_limit", help="most memory to use, like 8GB (default: 60 %% of the machine's)")
    add("--temp_dir", help="folder for what is needed on the way (default: beside --output_path)")
    return parser
