"""Settings of the preparation of ratings, and the flags that set them."""

import dataclasses
from dataclasses import MISSING, dataclass
from pathlib import Path

from config.command import flag_name, flags_of
from config.flag import flag, not_read, requires
from preproc.arguments import (
    DELIMITER_HELP,
    MISSING_HELP,
    MachineOptions,
    check_columns,
    parse_delimiter,
    parse_missing,
)
from preproc.checks.report import STRICT_HELP
from preproc.encoding.arrow_columns import MISSING_VALUES
from preproc.interactions.source_files import NCF, TABLE, Source, find_source

_TABLES = "tables"  # group of flags


@dataclass(frozen=True)
class InteractionLogOptions(MachineOptions):
    """Prepares ratings, or any log of who touched what when, for NCF.

    The last interaction of each user becomes a candidate list with items that the user never
    touched (test/), all others are trained on (train/). What a rating was does not matter, unless
    --min_rating is passed. Where (user, item) occurs more than once, its first time counts and the
    others are dropped. The NCF paper's files keep their ids, rows and stored negatives; in
    train.rating only a (user, item) that was there before is dropped. Files are UTF-8, *.gz is
    gzip. A bad line is an error; empty lines mean nothing. What does not fit into --memory_limit
    goes to --temp_dir, except for 16 bytes per interaction, 4 per negative and 320 MiB.

    Raises:
        ValueError: a value out of range, or flags that contradict each other.
    """

    input: tuple[Path, ...] = flag(
        MISSING,
        "files of one log, a folder with one or with its part files, or a pattern. "
        "*.dat is read as user::item::rating::time; *.train.rating and *.train.pairs.tsv as the "
        "NCF paper's (with *.test.rating and *.test.negative in the same folder); "
        "*.parquet and *.jsonl as Parquet and JSON lines; any other name as CSV with a header",
        alias="--path",
        spaced=True,
        metavar="FILE",
    )
    output: Path = flag(MISSING, "new folder; appears when complete")
    user_column: str = flag("user_id", "who: integers or text", _TABLES)
    item_column: str = flag("item_id", "what: integers or text", _TABLES)
    time_column: str = flag(
        "time",
        "when: numbers, or times like 2014-07-23 12:30:00 in UTC. "
        "Interactions of a user at the same time keep the order of their rows; where that is by "
        "item, it is drawn at random",
        _TABLES,
        alias="--timestamp_column",
    )
    delimiter: str | None = flag(None, DELIMITER_HELP, _TABLES, parse=parse_delimiter)
    missing_values: tuple[str, ...] = flag(
        MISSING_VALUES, MISSING_HELP, parse=parse_missing, metavar="TEXTS"
    )
    rating_column: str = flag(
        "rating",
        "how much, for --min_rating: numbers",
        _TABLES,
        needs=(requires("min_rating"),),
    )
    min_rating: float | None = flag(
        None, "leave out interactions with a lower rating (default: all count)"
    )
    min_ratings: int = flag(
        20,
        "leave out users with fewer different items; the original counts duplicates, too",
        alias="--min_events",
    )
    validation: bool = flag(
        False,
        "hold out one more interaction of each user, as candidate lists in validation/: that "
        "before the last; of the NCF paper's files, whose rows may have no time, any one of "
        "training with equal chances, from users with two or more",
    )
    valid_negative: int | None = flag(
        None,
        "negatives per candidate list, items that its user never touched (default 100; for "
        "validation/ of the NCF paper's files as many as their test lists have)",
        at_least=1,
    )
    nvidia_negatives: bool = flag(
        False,
        "draw negatives as NVIDIA's recipe does: a list may have an item twice, and any item that "
        "its user has not in train/, the held-out ones included. Lists are easier than without; "
        "hit rates compare with those published for that recipe",
    )
    seed: int = flag(0, "of what is drawn at random", at_least=0)
    strict: bool = flag(False, STRICT_HELP)
    overwrite: bool = flag(False, "replace an existing --output at the end")
    engine: str = flag(
        "duckdb",
        "what reads, numbers and sorts: duckdb (this machine, the default) or spark (a cluster; "
        "this machine draws the negatives); both give the same files",
        choices=("duckdb", "spark"),
    )
    source: Source = dataclasses.field(init=False)  # what --input names

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "source", find_source(self.input))
        if self.valid_negative is None and self.source.form != NCF:
            object.__setattr__(self, "valid_negative", 100)
        least = 3 if self.validation else 2
        if self.min_ratings < least:
            raise ValueError(
                f"--min_ratings must be {least} or more, so that a user whose last "
                f"{'two interactions are' if self.validation else 'interaction is'} held out has "
                f"one to train on; got {self.min_ratings}"
            )
        names = ("user_column", "item_column", "time_column")
        check_columns(self.delimiter, {name: getattr(self, name) for name in names})

    def check_passed(self, passed: frozenset[str]) -> None:
        """Raises ValueError for a flag that the form of the files leaves without effect."""
        super().check_passed(passed)
        unread = {}
        if self.source.form == NCF:
            unread = dict.fromkeys(_LOG_FLAGS, "with a log of interactions")
            if not self.validation:
                unread |= dict.fromkeys(_DRAWN_FLAGS, "with a log of interactions or --validation")
        if self.source.form != TABLE:
            unread |= {field.name: "with tables" for field in flags_of(type(self), _TABLES)}
        for name, condition in unread.items():
            if name in passed:
                raise not_read(flag_name(name), f"{condition}, not {self.source.files[0]}")


# Not read with the NCF paper's files; the second, only with --validation.
_LOG_FLAGS = (
    "missing_values",
    "min_rating",
    "strict",
    "min_ratings",
    "threads",
    "memory_limit_bytes",
    "engine",
    "master",
    "spark_conf",
)
_DRAWN_FLAGS = ("valid_negative", "seed", "nvidia_negatives")
