"""Settings of the preparation of ratings."""

from dataclasses import dataclass
from pathlib import Path

from preproc.arguments import MachineOptions, check_delimiter
from preproc.movielens.source_files import Source


@dataclass(frozen=True)
class MovieLensOptions(MachineOptions):
    """One run; `python -m preproc.movielens --help` describes each field.

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

    def __post_init__(self):
        super().__post_init__()
        if self.seed < 0:
            raise ValueError(f"--seed must be 0 or more, got {self.seed}")
        if self.valid_negative is not None and self.valid_negative < 1:
            raise ValueError(f"--valid_negative must be 1 or more, got {self.valid_negative}")
        least = 3 if self.validation else 2
        if self.min_ratings < least:
            raise ValueError(
                f"--min_ratings must be {least} or more, so that a user whose last "
                f"{'two interactions are' if self.validation else 'interaction is'} held out has "
                f"one to train on; got {self.min_ratings}"
            )
        check_delimiter(self.delimiter)
        columns = (self.user_column, self.item_column, self.timestamp_column)
        if len(set(columns)) < 3:
            raise ValueError(
                "--user_column, --item_column and --timestamp_column must be three columns, got "
                f"{', '.join(columns)}"
            )
