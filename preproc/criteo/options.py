"""Settings of the preparation of Criteo logs, and the flags that set them."""

import functools
import re
from dataclasses import MISSING, dataclass
from pathlib import Path

from config.flag import Need, excludes, flag, requires
from preproc.arguments import MachineOptions
from preproc.checks.report import STRICT_HELP
from preproc.criteo.log_files import parse_days
from preproc.criteo.raw_lines import NUM_CATEGORICAL, NUM_NUMERICAL

TRAINING_ROWS = "train"  # --vocabulary_days train: whatever the training rows are
_data_set_flag = functools.partial(flag, group="vocabulary and splits")
_NOT_SPECIFIED = Need(
    "without --encode_only, where the data set of --vocabulary specifies it",
    lambda flags: not flags.value("encode_only"),
)
_vocabulary_flag = functools.partial(_data_set_flag, needs=(_NOT_SPECIFIED,))
_SPLITS = excludes("encode_only"), excludes("vocabulary_only")


def parse_thresholds(text: str) -> tuple[int, tuple[tuple[int, int], ...]]:
    """ "15" -> (15, ()); "15,5:30" -> (15, ((5, 30),)): 30 for column cat_5, 15 for the others."""
    match = re.fullmatch(r"\s*(-?\d+)\s*((?:,\s*\d+\s*:\s*-?\d+\s*)*)", text)
    if not match:
        raise ValueError(
            "expected one number for all columns, like 15, optionally followed by others, like "
            f"15,5:30 (30 for cat_5), got {text!r}"
        )
    pairs = [tuple(map(int, pair.split(":"))) for pair in match[2].split(",")[1:]]
    for column, _ in pairs:
        if column >= NUM_CATEGORICAL:
            raise ValueError(
                f"{text!r} names column {column}; the categorical columns "
                f"are 0 to {NUM_CATEGORICAL - 1} (field N of a line, counted from 0, is column "
                f"N - {1 + NUM_NUMERICAL})"
            )
        if [other for other, _ in pairs].count(column) > 1:
            raise ValueError(f"{text!r} names column {column} twice")
    return int(match[1]), tuple(sorted(pairs))


@dataclass(frozen=True)
class CriteoOptions(MachineOptions):
    """Prepares raw Criteo click logs for training.

    They become split binaries train/, validation/ and test/ with a feature_spec.yaml. A killed run
    resumes where it was.

    Raises:
        ValueError: a value out of range, or flags that contradict each other.
    """

    input: Path = flag(
        MISSING, "folder with *day_N files (plain or gzip), or one file", alias="--input_folder"
    )
    output: Path = flag(
        MISSING, "folder of the prepared data set; appears when complete", alias="--output_folder"
    )
    frequency_threshold: int = _vocabulary_flag(
        15,
        "categorical values seen fewer than T times become id 0 (default 15; 0 keeps all); "
        "15,5:30 means 30 for column cat_5 and 15 for the others",
        parse=parse_thresholds,
        metavar="T[,N:T...]",
    )
    column_thresholds: tuple[tuple[int, int], ...] = ()  # (number of the column, its threshold)
    days: tuple[int, ...] | None = flag(
        None, "days to use, like 0-23 or 0,1,5-7 (default: every day there is)", parse=parse_days
    )
    vocabulary_days: tuple[int, ...] | str | None = _vocabulary_flag(
        None,
        f"days whose values get ids, like 0-22, or '{TRAINING_ROWS}': only the rows that train "
        "(default: all of --days)",
        parse=lambda text: text if text == TRAINING_ROWS else parse_days(text),
        metavar="DAYS",
    )
    holdout_fraction: float | None = _data_set_flag(
        None,
        "test on the last F of the rows instead of on the first half of the last day",
        metavar="F",
        above=0,
        below=1,
        needs=_SPLITS,
    )
    validation_fraction: float = _data_set_flag(
        0.0,
        "with --holdout_fraction: validate on the last V of all rows before those (default 0: no "
        "validation rows)",
        metavar="V",
        at_least=0,
        needs=_SPLITS,
    )
    bin_numericals: bool = _vocabulary_flag(
        False,
        "also give each numerical as a categorical feature bin_0..bin_12: "
        "1 + floor(2 * log(x + 3)), 0 where it is missing or undefined",
    )
    output_ordering: str = _data_set_flag(
        "total_random",
        "order of the training rows: random (total_random, the default), random within each day "
        "(day_random), as in the log (input), or any. The other splits keep the log's order",
        choices=("input", "total_random", "day_random", "any"),
        needs=_SPLITS,
    )
    seed: int = _data_set_flag(
        0,
        "of a random order",
        at_least=0,
        needs=(*_SPLITS, requires("output_ordering", "total_random", "day_random")),
    )
    on_bad_line: str = flag(
        "fail",
        "malformed lines: stop at the first file that has one, or leave out at most 1 % of a file",
        choices=("fail", "skip"),
    )
    strict: bool = flag(False, STRICT_HELP)
    overwrite: bool = flag(False, "replace an existing --output at the end")
    encode_only: bool = _data_set_flag(
        False,
        "encode new raw rows with the ids of --vocabulary, to predict them; their labels may all "
        "be missing",
    )
    vocabulary: Path | None = _data_set_flag(
        None, "a prepared data set, for --encode_only", metavar="DATA_SET"
    )
    vocabulary_only: bool = _data_set_flag(
        False,
        "write the vocabulary without the rows, for --encode_only --vocabulary",
        needs=(excludes("encode_only"),),
    )
    engine: str = flag(
        "duckdb",
        "what does the work: duckdb (this machine, the default) or spark (a cluster); both write "
        "the same files",
        choices=("duckdb", "spark"),
    )

    def __post_init__(self):
        if isinstance(self.frequency_threshold, tuple):
            threshold, of_columns = self.frequency_threshold
            object.__setattr__(self, "frequency_threshold", threshold)
            object.__setattr__(self, "column_thresholds", of_columns)
        super().__post_init__()
        for threshold in (self.frequency_threshold, *dict(self.column_thresholds).values()):
            if threshold < 0:
                raise ValueError(f"--frequency_threshold: expected 0 or more, got {threshold}")
        if (self.vocabulary is None) == self.encode_only:
            raise ValueError(
                "--encode_only and --vocabulary DATA_SET go together: which prepared data set's "
                "vocabulary gives the new rows their ids"
            )
        if self.encode_only and self.engine != "duckdb":
            raise ValueError(f"--encode_only works with --engine duckdb, got {self.engine}")
        if not (self.encode_only or self.vocabulary_only):
            self._check_fractions()

    def threshold(self, column: int) -> int:
        return dict(self.column_thresholds).get(column, self.frequency_threshold)

    def _check_fractions(self):
        if self.holdout_fraction is None:
            if self.input.is_file():
                raise ValueError(
                    f"--input {self.input} is a single file: specify the share of its last rows "
                    "for the test, e.g. --holdout_fraction 0.2 (or give a folder with day_N files)"
                )
            if self.validation_fraction:
                raise ValueError(
                    f"--validation_fraction {self.validation_fraction} needs --holdout_fraction; "
                    "without it the second half of the last day is for validation"
                )
        elif self.validation_fraction >= 1 - self.holdout_fraction:
            raise ValueError(
                "--validation_fraction must leave rows to train on next to --holdout_fraction "
                f"{self.holdout_fraction}, got {self.validation_fraction}"
            )
