"""The flags of `python -m preproc.movielens`, read once and checked."""

import argparse
from pathlib import Path

from dataloading.spec.output_folder import check_apart
from preproc.arguments import (
    add_machine_flags,
    complete_machine_flags,
    parse_delimiter,
    passed_flags,
)
from preproc.movielens.options import MovieLensOptions
from preproc.movielens.source_files import DAT, NCF, Source, find_source


def parse(argv: list[str] | None = None) -> MovieLensOptions:
    """Reads the command line and finds the input files.

    Raises:
        ValueError: see `MovieLensOptions` and `find_source`. (argparse exits on an unknown flag.)
    """
    flags = passed_flags(_parser(), argv)
    source = find_source(tuple(flags.pop("input")))
    _check_read(flags, source)
    if "overwrite" in flags:
        for path in source.files:
            check_apart(flags["output"], path, "--input")
    if source.form != NCF:
        flags.setdefault("valid_negative", 100)
    return MovieLensOptions(source=source, **complete_machine_flags(flags))


_COLUMN_FLAGS = ("user_column", "item_column", "timestamp_column", "delimiter")
_LOG_FLAGS = (*_COLUMN_FLAGS, "min_ratings", "threads", "memory_limit")


def _check_read(flags: dict, source: Source) -> None:
    """Raises ValueError for a flag that nothing reads."""
    unread, what = {}, "with the NCF paper's files"
    if source.form == DAT:
        unread = dict.fromkeys(_COLUMN_FLAGS, "with user::item::rating::time")
    elif source.form == NCF:
        unread = dict.fromkeys(_LOG_FLAGS, what)
        if "validation" not in flags:
            unread |= dict.fromkeys(("valid_negative", "seed"), f"{what} without --validation")
    for name, where in unread.items():
        if name in flags:
            raise ValueError(f"--{name} is not read {where} ({source.files[0]}); leave it out")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m preproc.movielens",
        description="Prepares ratings, or any log of who touched what when, for NCF: the last "
        "interaction of each user becomes a candidate list with items that the user never touched "
        "(test/), all others are trained on (train/). What a rating was does not matter. Where "
        "(user, item) occurs more than once, its first time counts and the others are dropped.",
        epilog="The NCF paper's files keep their ids, rows and stored negatives; in train.rating "
        "only a (user, item) that was there before is dropped. MovieLens files are UTF-8 or "
        "(ratings.dat) Latin-1, all may be gzip. A bad line is an error; empty lines mean nothing.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--input",
        "--path",
        type=Path,
        required=True,
        nargs="+",
        metavar="FILE",
        help="files of one log, or a folder with one. *.dat is read as user::item::rating::time; "
        "*.train.rating and *.train.pairs.tsv as the NCF paper's (with *.test.rating and "
        "*.test.negative in the same folder); any other name as CSV with a header",
    )
    add(
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="new folder; appears when complete",
    )
    add(
        "--min_ratings",
        type=int,
        metavar="N",
        help="leave out users with fewer different items (default 20; the original counts "
        "duplicates, too)",
    )
    add(
        "--validation",
        action="store_true",
        help="hold out one more interaction of each user, as candidate lists in validation/: that "
        "before the last; of the NCF paper's files, whose rows may have no time, any one of "
        "training with equal chances, from users with two or more",
    )
    add(
        "--valid_negative",
        type=int,
        metavar="N",
        help="negatives per candidate list, items that its user never touched (default 100; for "
        "validation/ of the NCF paper's files as many as their test lists have)",
    )
    add("--seed", type=int, metavar="N", help="of what is drawn at random (default 0)")
    add("--overwrite", action="store_true", help="replace an existing --output at the end")
    add_machine_flags(
        parser,
        memory="; what does not fit goes to --temp_dir, except for 16 bytes per interaction, 4 per "
        "negative and 320 MiB",
    )
    _add_column_flags(parser.add_argument_group("CSV"))
    return parser


def _add_column_flags(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--user_column", metavar="NAME", help="of CSV: who (default userId): integers or text")
    add("--item_column", metavar="NAME", help="of CSV: what (default movieId): integers or text")
    add(
        "--timestamp_column",
        metavar="NAME",
        help="of CSV: when (default timestamp): numbers, or times like 2014-07-23 12:30:00 in UTC. "
        "Of interactions at the same time, that with the larger item counts as the later",
    )
    add(
        "--delimiter",
        type=parse_delimiter,
        metavar="C",
        help="of CSV: a character, or 'tab' (default ',')",
    )
