"""Settings of the preparation of ratings."""

from dataclasses import MISSING, dataclass
from pathlib import Path

from preproc.arguments import check_columns, parse_delimiter
from preproc.engines.spark_options import SparkMachineOptions
from preproc.movielens.source_files import Source
from runtime.options import flag


@dataclass(frozen=True)
class MovieLensOptions(SparkMachineOptions):
    """One run; `python -m preproc.movielens --help` describes each field.

    valid_negative: None stands for as many as the paper's test file has.

    Raises:
        ValueError: a value out of range, or flags that contradict each other.
    """

    source: Source
    output: Path = flag(MISSING, "new folder; appears when complete")
    user_column: str = flag("userId", "of CSV: who: integers or text", "CSV")
    item_column: str = flag("movieId", "of CSV: what: integers or text", "CSV")
    timestamp_column: str = flag(
        "timestamp",
        "of CSV: when: numbers, or times like 2014-07-23 12:30:00 in UTC. Of interactions at the "
        "same time, that with the larger item counts as the later",
        "CSV",
    )
    delimiter: str = flag(
        ",", "of CSV: a character, or 'tab' (default ',')", "CSV", type=parse_delimiter
    )
    min_ratings: int = flag(
        20, "leave out users with fewer different items; the original counts duplicates, too"
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
    overwrite: bool = flag(False, "replace an existing --output at the end")
    engine: str = flag(
        "duckdb",
        "what numbers and sorts: duckdb (this machine, the default) or spark (a cluster; this "
        "machine reads the lines and draws the negatives); both give the same files",
        choices=("duckdb", "spark"),
    )

    def __post_init__(self):
        super().__post_init__()
        least = 3 if self.validation else 2
        if self.min_ratings < least:
            raise ValueError(
                f"--min_ratings must be {least} or more, so that a user whose last "
                f"{'two interactions are' if self.validation else 'interaction is'} held out has "
                f"one to train on; got {self.min_ratings}"
            )
        names = ("user_column", "item_column", "timestamp_column")
        check_columns(self.delimiter, {name: getattr(self, name) for name in names})
