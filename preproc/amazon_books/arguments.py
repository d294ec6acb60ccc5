"""The flags of `python -m preproc.amazon_books`, read once and checked."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from preproc.amazon_books.engines.registry import ENGINES, default_engine
from preproc.amazon_books.negatives import NEGATIVES
from preproc.amazon_books.options import AMAZON, CSV, PARQUET, AmazonOptions
from preproc.arguments import (
    add_machine_flags,
    complete_machine_flags,
    parse_delimiter,
    passed_flags,
    refuse_unread_flags,
)


def parse(argv: list[str] | None = None) -> AmazonOptions:
    """Reads the command line.

    Raises:
        ValueError: see `AmazonOptions`. (argparse itself exits on an unknown flag.)
    """
    flags = passed_flags(_parser(), argv)
    refuse_unread_flags(flags, _unread(flags))
    for name in ("reviews", "meta", "interactions"):
        if name in flags:
            flags[name] = tuple(flags[name])
    for name in ("user_features", "item_features"):
        if name in flags:
            flags[name] = _names(name, flags[name])
    return AmazonOptions(**complete_machine_flags({"engine": default_engine(), **flags}))


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


def _unread(flags: dict) -> Iterator[tuple[str, str]]:
    """Yields the flags that nothing would read, each with what does read it."""
    input_format = flags.get("input_format", AMAZON)
    if input_format == AMAZON:
        yield from ((name, "--input_format csv or parquet") for name in _TABLE_FLAGS)
    else:
        yield from ((name, "--input_format amazon") for name in _AMAZON_FLAGS)
    if input_format != CSV:
        yield "delimiter", "--input_format csv"
    if "reviews" in flags and ("meta" in flags or "no_metadata" in flags):
        yield "amazon_dataset_path", "no --reviews and --meta (or --no_metadata)"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m preproc.amazon_books",
        description="Prepares reviews, or any log of who did what when, for SIM, DIEN and DIN: "
        "histories with negatives, as Parquet files train/ and test/ with a metadata.json. "
        "`python -m preproc.amazon_books.parquet_to_tfrecord` continues from there.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--input_format",
        choices=(AMAZON, CSV, PARQUET),
        help="amazon (the default), or tables of your own: csv (with a header) or parquet",
    )
    add(
        "--output_path",
        type=Path,
        required=True,
        metavar="DIR",
        help="new folder; appears when complete. What a killed run leaves, the next one for the "
        "same folder removes",
    )
    add(
        "--on_bad_line",
        choices=("error", "skip"),
        help="malformed lines and rows without a user, item or time: stop at the first (error, "
        "the default), or leave them out and count them. Tables that are not UTF-8, and values "
        "that are not times, are errors either way",
    )
    add(
        "--engine",
        choices=ENGINES,
        help="what does the work; both give the same rows (default: nvtabular where there is a "
        "GPU with cuDF, else duckdb)",
    )
    add_machine_flags(parser)
    _add_amazon_flags(parser.add_argument_group("--input_format amazon"))
    _add_table_flags(parser.add_argument_group("--input_format csv or parquet"))
    _add_sample_flags(parser.add_argument_group("samples"))
    return parser


def _add_amazon_flags(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--amazon_dataset_path",
        type=Path,
        metavar="DIR",
        help="folder with reviews_*.json and meta_*.json, plain or gzip",
    )
    add(
        "--reviews",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="review files, instead of the folder's",
    )
    add(
        "--meta",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="metadata files, instead of the folder's",
    )
    add(
        "--no_metadata",
        action="store_true",
        help="read no metadata: all items are of one category",
    )


def _add_table_flags(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--interactions",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="tables with a row for each event",
    )
    add("--user_column", metavar="NAME", help="who (default user_id): integers or text")
    add("--item_column", metavar="NAME", help="what (default item_id): integers or text")
    add("--time_column", metavar="NAME", help="when (default time): numbers or ISO timestamps")
    add("--user_features", metavar="A,B", help="columns of --users, or else of --interactions")
    add("--item_features", metavar="A,B", help="columns of --items, or else of --interactions")
    add("--users", type=Path, metavar="FILE", help="table of users, with --user_column")
    add("--items", type=Path, metavar="FILE", help="table of items, with --item_column")
    add(
        "--delimiter",
        type=parse_delimiter,
        metavar="C",
        help="of CSV files: a character, or 'tab' (default ',')",
    )


def _add_sample_flags(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
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
