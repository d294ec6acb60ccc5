"""Settings of the preparation of Criteo logs."""

from dataclasses import dataclass
from pathlib import Path

from preproc.arguments import MachineOptions

TRAINING_ROWS = "train"  # --vocabulary_days train: whatever the training rows are


@dataclass(frozen=True)
class CriteoOptions(MachineOptions):
    """One run of the preparation; `python -m preproc.criteo --help` describes each field.

    Raises:
        ValueError: a value out of range, or flags that contradict each other.
    """

    input: Path
    output: Path | None  # None: with `estimate` only
    frequency_threshold: int = 15
    column_thresholds: tuple[tuple[int, int], ...] = ()  # (number of the column, its threshold)
    days: tuple[int, ...] | None = None  # None: every day there is
    vocabulary_days: tuple[int, ...] | str | None = None  # None: all; "train": training rows
    holdout_fraction: float | None = None
    validation_fraction: float = 0.0
    bin_numericals: bool = False
    output_ordering: str = "total_random"
    seed: int = 0
    on_bad_line: str = "error"
    overwrite: bool = False
    estimate: bool = False
    encode_only: bool = False
    vocabulary: Path | None = None  # a prepared data set; with `encode_only` only
    engine: str = "duckdb"
    master: str | None = None  # None: local, with `threads` threads
    spark_conf: tuple[str, ...] = ()
    skew_broadcast_pct: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        for threshold in (self.frequency_threshold, *dict(self.column_thresholds).values()):
            if threshold < 0:
                raise ValueError(f"--frequency_threshold must be 0 or more, got {threshold}")
        if not 0 < self.skew_broadcast_pct <= 100:
            raise ValueError(
                "--skew_broadcast_pct must lie above 0 and not above 100, got "
                f"{self.skew_broadcast_pct:g}"
            )
        if self.seed < 0:
            raise ValueError(f"--seed must be 0 or more, got {self.seed}")
        if self.output is None and not self.estimate:
            raise ValueError("--output is missing: the folder of the prepared data set")
        if (self.vocabulary is None) == self.encode_only:
            raise ValueError(
                "--encode_only and --vocabulary DATA_SET go together: which prepared data set's "
                "vocabulary gives the new rows their ids"
            )
        if self.encode_only and self.engine != "duckdb":
            raise ValueError(f"--encode_only works with --engine duckdb, got {self.engine}")
        if not self.encode_only and not self.estimate:
            self._check_fractions()
        self._check_vocabulary_days()

    def threshold(self, column: int) -> int:
        """The frequency threshold of categorical column 0 to 25."""
        return dict(self.column_thresholds).get(column, self.frequency_threshold)

    def _check_fractions(self):
        if self.input.is_file() and self.holdout_fraction is None:
            raise ValueError(
                f"--input {self.input} is a single file: specify the share of its last rows for "
                "the test, e.g. --holdout_fraction 0.2 (or give a folder with day_N files)"
            )
        if self.holdout_fraction is None:
            if self.validation_fraction:
                raise ValueError(
                    f"--validation_fraction {self.validation_fraction} needs --holdout_fraction; "
                    "without it the second half of the last day is for validation"
                )
            return
        if not 0 < self.holdout_fraction < 1:
            raise ValueError(
                f"--holdout_fraction must lie between 0 and 1, got {self.holdout_fraction}"
            )
        if not 0 <= self.validation_fraction < 1 - self.holdout_fraction:
            raise ValueError(
                "--validation_fraction must be 0 or more and leave rows to train on next to "
                f"--holdout_fraction {self.holdout_fraction}, got {self.validation_fraction}"
            )

    def _check_vocabulary_days(self):
        if not isinstance(self.vocabulary_days, tuple):
            return
        if self.input.is_file():
            raise ValueError(
                f"--vocabulary_days with a list of days needs day files, but --input {self.input} "
                f"is a single file; use --vocabulary_days {TRAINING_ROWS}"
            )
        unread = sorted(set(self.vocabulary_days) - set(self.days or self.vocabulary_days))
        if unread:
            raise ValueError(
                f"--vocabulary_days names day {unread[0]}, which --days leaves out; add it there"
            )
