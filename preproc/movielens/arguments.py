"""The flags of `python -m preproc.movielens`, read once and checked."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from dataloading.spec.output_folder import check_apart
from preproc.delimiter import check_delimiter, read_delimiter
from preproc.machine_limits import check_limits, memory_limit_bytes
from preproc.movielens.source_files import DAT, NCF, Source, find_source


@dataclass(frozen=True)
class Options:
    """One run; `python -m preproc.movielens --help` says what each field does.

    valid_negative: None stands for as many as the paper's test file has.

    Raises:
        ValueError: a value out of range, or flags that contradict each other.
    """

    source: Source
    output: Path
    user_column: str = "userId"
    item_column: str = "movieId"
    timestamp_column: str = "timestamp"
    delimiter: str = ","
    min_ratings: int = 20
    validation: bool = False
    valid_negative: int | None = None
    seed: int = 0
    overwrite: bool = False
    threads: int = 1
    memory_limit_bytes: int = 4 << 30
    temp_dir: Path | None = None  # None: beside the output

    def __post_init__(self):
        if self.seed < 0:
            raise ValueError(f"--seed must be 0 or more, found {self.seed}")
        if self.valid_negative is not None and self.valid_negative < 1:
            raise ValueError(f"--valid_negative must be 1 or more, found {self.valid_negative}")
        least = 3 if self.validation else 2
        if self.min_ratings < least:
            raise ValueError(
                f"--min_ratings must be {least} or more, so that a user whose last "
                f"{'two interactions are' if self.validation else 'interaction is'} held out has "
                f"one to train on; found {self.min_ratings}"
            )
        check_limits(self.threads, self.memory_limit_bytes, self.temp_dir)
        check_delimiter(self.delimiter)
        columns = (self.user_column, self.item_column, self.timestamp_column)
        if len(set(columns)) < 3:
            raise ValueError(
                "--user_column, --item_column and --timestamp_column must be three columns, found "
                f"{', '.join(columns)}"
            )


def parse(argv: list[str] | None = None) -> Options:
    """Reads the command line, and looks which files are meant.

    Raises:
        ValueError: see `Options` and `find_source`. (argparse itself exits on an unknown flag.)
    """
    given = {
        name: value
        for name, value in vars(_parser().parse_args(argv)).items()
        if value is not None and value is not False
    }
    given["source"] = find_source(tuple(map(Path, given.pop("input"))))
    _check_read(given)
    for name in ("output", "temp_dir"):
        if name in given:
            given[name] = Path(given[name])
    if "overwrite" in given:
        for path in given["source"].files:
            check_apart(given["output"], path, "--input")
    if "delimiter" in given:
        given["delimiter"] = read_delimiter(given["delimiter"])
    if given["source"].form != NCF:
        given.setdefault("valid_negative", 100)
    given["memory_limit_bytes"] = memory_limit_bytes(given.pop("memory_limit", None))
    given.setdefault("threads", len(os.sched_getaffinity(0)))
    return Options(**given)


_COLUMN_FLAGS = ("user_column", "item_column", "timestamp_column", "delimiter")
_LOG_FLAGS = (*_COLUMN_FLAGS, "min_ratings", "threads", "memory_limit")


def _check_read(given: dict) -> None:
    """Refuses flags that nothing would read."""
    form, what = given["source"].form, "with the NCF paper's files"
    if form == DAT:
        unread = dict.fromkeys(_COLUMN_FLAGS, "with user::item::rating::time")
    elif form == NCF:
        unread = dict.fromkeys(_LOG_FLAGS, what)
        if "validation" not in given:
            unread |= dict.fromkeys(("valid_negative", "seed"), f"{what} without --validation")
    else:
        unread = {}
    for name, where in unread.items():
        if name in given:
            raise ValueError(
                f"--{name} is not read {where} ({given['source'].files[0]}); leave it out"
            )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m preproc.movielens",
        description="Prepares ratings, or any log of who touched what when, for NCF: the last "
        "interaction of each user becomes a question among items that the user never touched "
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
        required=True,
        nargs="+",
        metavar="FILE",
        help="files of one log, or a folder with one. *.dat is read as user::item::rating::time; "
        "*.train.rating and *.train.pairs.tsv as the NCF paper's (with *.test.rating and "
        "*.test.negative beside it); any other name as CSV with a header",
    )
    add(
        "--output",
        required=True,
        metavar="DIR",
        help="new folder; appears when complete",
    )
    add("--user_column", metavar="NAME", help="of CSV: who (default userId): integers or text")
    add("--item_column", metavar="NAME", help="of CSV: what (default movieId): integers or text")
    add(
        "--timestamp_column",
        metavar="NAME",
        help="of CSV: when (default timestamp): numbers, or times like 2014-07-23 12:30:00 in UTC. "
        "Of interactions at the same time, that with the larger item counts as the later",
    )
    add("--delimiter", metavar="C", help="of CSV: a character, or 'tab' (default ',')")
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
        help="hold out one more interaction of each user, as questions in validation/: that before "
        "the last; of the NCF paper's files, whose rows may have no time, any one of training with "
        "equal chances, from users with two or more",
    )
    add(
        "--valid_negative",
        type=int,
        metavar="N",
        help="items to a question that its user never touched (default 100; for validation/ of the "
        "NCF paper's files as many as their test questions have)",
    )
    add("--seed", type=int, metavar="N", help="of what is drawn at random (default 0)")
    add("--overwrite", action="store_true", help="replace an existing --output at the end")
    add("--threads", type=int, metavar="N", help="default: every core")
    add(
        "--memory_limit",
        metavar="SIZE",
        help="most memory to use, like 8GB (default: 60 %% of the machine's); what does not fit "
        "goes to --temp_dir, but for 16 bytes an interaction, 4 a negative and 320 MiB",
    )
    add("--temp_dir", metavar="DIR", help="for what does not fit (default: beside --output)")
    return parser
