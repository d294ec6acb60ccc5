"""The flags of `python -m preproc.movielens`, read once and checked."""

import argparse
from pathlib import Path

from dataloading.spec.output_folder import check_apart
from preproc.arguments import complete_machine_flags, passed_flags, refuse_unread_flags
from preproc.engines.spark_options import SPARK, unread_spark_flags
from preproc.movielens.options import MovieLensOptions
from preproc.movielens.source_files import DAT, NCF, Source, find_source
from runtime.options import add_flags, flags_of


def parse(argv: list[str] | None = None) -> MovieLensOptions:
    """Reads the command line and finds the input files; raises ValueError as they do."""
    flags = passed_flags(_parser(), argv)
    refuse_unread_flags(flags, unread_spark_flags(MovieLensOptions, flags))
    source = find_source(flags.pop("input"))
    _check_read(flags, source)
    if "overwrite" in flags:
        for path in source.files:
            check_apart(flags["output"], path, "--input")
    if source.form != NCF:
        flags.setdefault("valid_negative", 100)
    return MovieLensOptions(source=source, **complete_machine_flags(flags))


_COLUMN_FLAGS = flags_of(MovieLensOptions, "CSV")
_SPARK_FLAGS = ("engine", *flags_of(MovieLensOptions, SPARK))
_LOG_FLAGS = (*_COLUMN_FLAGS, "min_ratings", "threads", "memory_limit", *_SPARK_FLAGS)


def _check_read(flags: dict, source: Source) -> None:
    unread, what = {}, "with the NCF paper's files"
    if source.form == DAT:
        unread = dict.fromkeys(_COLUMN_FLAGS, "with user::item::rating::time")
    elif source.form == NCF:
        unread = dict.fromkeys(_LOG_FLAGS, what)
        if "validation" not in flags:
            drawn = ("valid_negative", "seed", "nvidia_negatives")
            unread |= dict.fromkeys(drawn, f"{what} without --validation")
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
        "(ratings.dat) Latin-1, all may be gzip. A bad line is an error; empty lines mean nothing. "
        "What does not fit into --memory_limit goes to --temp_dir, except for 16 bytes per "
        "interaction, 4 per negative and 320 MiB.",
        allow_abbrev=False,
    )
    parser.add_argument(
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
    add_flags(parser, MovieLensOptions)
    return parser
