"""The flags of `python -m preproc.criteo`, read once and checked."""

import argparse
import os
import re
from dataclasses import dataclass
from pathlib import Path

from preproc.criteo.engines.engine import ENGINES
from preproc.criteo.log_files import parse_days
from preproc.criteo.output.output_order import ORDERINGS
from preproc.criteo.raw_lines import NUM_CATEGORICAL, NUM_NUMERICAL
from preproc.machine_limits import check_limits, memory_limit_bytes

TRAINING_ROWS = "train"  # --vocabulary_days train: whatever the training rows are


@dataclass(frozen=True)
class Options:
    """One run of the preparation; `python -m preproc.criteo --help` says what each field does.

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
    memory_limit_bytes: int = 4 << 30
    threads: int = 1
    temp_dir: Path | None = None  # None: in the staging folder

    def __post_init__(self):
        for threshold in (self.frequency_threshold, *dict(self.column_thresholds).values()):
            if threshold < 0:
                raise ValueError(f"--frequency_threshold must be 0 or more, found {threshold}")
        check_limits(self.threads, self.memory_limit_bytes, self.temp_dir)
        if not 0 < self.skew_broadcast_pct <= 100:
            raise ValueError(
                "--skew_broadcast_pct must lie above 0 and not above 100, found "
                f"{self.skew_broadcast_pct:g}"
            )
        if self.seed < 0:
            raise ValueError(f"--seed must be 0 or more, found {self.seed}")
        if self.output is None and not self.estimate:
            raise ValueError("--output is missing: the folder of the prepared data set")
        if (self.vocabulary is None) == self.encode_only:
            raise ValueError(
                "--encode_only and --vocabulary DATA_SET go together: which prepared data set's "
                "vocabulary gives the new rows their ids"
            )
        if self.encode_only and self.engine != "duckdb":
            raise ValueError(f"--encode_only works with --engine duckdb, found {self.engine}")
        if not self.encode_only and not self.estimate:
            self._check_fractions()
        self._check_vocabulary_days()

    def threshold(self, column: int) -> int:
        """The frequency threshold of categorical column 0 to 25."""
        return dict(self.column_thresholds).get(column, self.frequency_threshold)

    def _check_fractions(self):
        if self.input.is_file() and self.holdout_fraction is None:
            raise ValueError(
                f"--input {self.input} is a single file: say how many of its last rows are for "
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
                f"--holdout_fraction must lie between 0 and 1, found {self.holdout_fraction}"
            )
        if not 0 <= self.validation_fraction < 1 - self.holdout_fraction:
            raise ValueError(
                "--validation_fraction must be 0 or more and leave rows to train on beside "
                f"--holdout_fraction {self.holdout_fraction}, found {self.validation_fraction}"
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


def parse_thresholds(text: str) -> tuple[int, tuple[tuple[int, int], ...]]:
    """ "15" -> (15, ()); "15,5:30" -> (15, ((5, 30),)): 30 for column cat_5, 15 for the others."""
    match = re.fullmatch(r"\s*(-?\d+)\s*((?:,\s*\d+\s*:\s*-?\d+\s*)*)", text)
    if not match:
        raise ValueError(
            f"--frequency_threshold {text!r} is no threshold; write one number for all columns, "
            "like 15, and others behind it, like 15,5:30 (30 for cat_5)"
        )
    pairs = [tuple(map(int, pair.split(":"))) for pair in match[2].split(",")[1:]]
    for column, _ in pairs:
        if column >= NUM_CATEGORICAL:
            raise ValueError(
                f"--frequency_threshold {text!r} names column {column}; the categorical columns "
                f"are 0 to {NUM_CATEGORICAL - 1} (field N of a line, counted from 0, is column "
                f"N - {1 + NUM_NUMERICAL})"
            )
        if [other for other, _ in pairs].count(column) > 1:
            raise ValueError(f"--frequency_threshold {text!r} names column {column} twice")
    return int(match[1]), tuple(sorted(pairs))


def parse(argv: list[str] | None = None) -> Options:
    """Reads the command line.

    Raises:
        ValueError: see `Options`. (argparse itself exits on an unknown flag.)
    """
    flags = _parser().parse_args(argv)
    _check_read(flags)
    threshold, column_thresholds = parse_thresholds(
        "15" if flags.frequency_threshold is None else flags.frequency_threshold
    )
    vocabulary_days = flags.vocabulary_days
    if vocabulary_days not in (None, TRAINING_ROWS):
        vocabulary_days = parse_days(vocabulary_days)
    return Options(
        input=Path(flags.input),
        output=Path(flags.output) if flags.output is not None else None,
        frequency_threshold=threshold,
        column_thresholds=column_thresholds,
        days=parse_days(flags.days) if flags.days is not None else None,
        vocabulary_days=vocabulary_days,
        holdout_fraction=flags.holdout_fraction,
        validation_fraction=flags.validation_fraction or 0.0,
        bin_numericals=flags.bin_numericals,
        output_ordering=flags.output_ordering or "total_random",
        seed=flags.seed or 0,
        on_bad_line=flags.on_bad_line,
        overwrite=flags.overwrite,
        estimate=flags.estimate,
        encode_only=flags.encode_only,
        vocabulary=Path(flags.vocabulary) if flags.vocabulary is not None else None,
        engine=flags.engine or "duckdb",
        master=flags.master,
        spark_conf=tuple(flags.spark_conf or ()),
        skew_broadcast_pct=1.0 if flags.skew_broadcast_pct is None else flags.skew_broadcast_pct,
        memory_limit_bytes=memory_limit_bytes(flags.memory_limit),
        threads=flags.threads if flags.threads is not None else len(os.sched_getaffinity(0)),
        temp_dir=Path(flags.temp_dir) if flags.temp_dir is not None else None,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m preproc.criteo",
        description="Prepares raw Criteo click logs for training: split binaries train/, "
        "validation/ and test/ with a feature_spec.yaml. Killed, it goes on where it was.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--input", required=True, help="folder with *day_N files (plain or gzip), or one file")
    add("--output", help="folder of the prepared data set; appears when complete")
    add(
        "--frequency_threshold",
        metavar="T[,N:T...]",
        help="categorical values seen fewer than T times become id 0 (default 15; 0 keeps all); "
        "15,5:30 means 30 for column cat_5 and 15 for the others",
    )
    add("--days", help="days to use, like 0-23 or 0,1,5-7 (default: every day there is)")
    add(
        "--vocabulary_days",
        help=f"days whose values get ids, like 0-22, or '{TRAINING_ROWS}': only the rows that "
        "train (default: all of --days)",
    )
    add(
        "--holdout_fraction",
        type=float,
        metavar="F",
        help="test on the last F of the rows instead of on the first half of the last day",
    )
    add(
        "--validation_fraction",
        type=float,
        metavar="V",
        help="with --holdout_fraction: validate on the last V of all rows before those "
        "(default 0: no validation rows)",
    )
    add(
        "--bin_numericals",
        action="store_true",
        help="also give each numerical as a categorical feature bin_0..bin_12: "
        "1 + floor(2 * log(x + 3)), 0 where it is missing or undefined",
    )
    add(
        "--output_ordering",
        choices=ORDERINGS,
        help="order of the training rows: random (total_random, the default), random within each "
        "day (day_random), as in the log (input), or any. The other splits keep the log's order",
    )
    add("--seed", type=int, help="of a random order (default 0)")
    add(
        "--on_bad_line",
        choices=("error", "skip"),
        default="error",
        help="malformed lines: stop at the first file that has one, or leave them out and count "
        "them (default error)",
    )
    add("--overwrite", action="store_true", help="replace an existing --output at the end")
    add(
        "--estimate",
        action="store_true",
        help="prepare nothing: say from a sample how many rows and ids there are, and what disk "
        "and memory they take",
    )
    add(
        "--encode_only",
        action="store_true",
        help="encode new raw rows with the ids of --vocabulary, to predict them; their labels may "
        "all be missing",
    )
    add("--vocabulary", metavar="DATA_SET", help="a prepared data set, for --encode_only")
    add(
        "--engine",
        choices=ENGINES,
        help="what does the work: duckdb (this machine, the default), spark (a cluster) or "
        "nvtabular (a GPU, or this machine); all give the same files",
    )
    add(
        "--master",
        help="Spark: local[N], spark://HOST:PORT, yarn or k8s://URL (default: local[--threads])",
    )
    add(
        "--spark_conf",
        action="append",
        metavar="KEY=VALUE",
        help="Spark: a setting; may be repeated",
    )
    add(
        "--skew_broadcast_pct",
        type=float,
        metavar="P",
        help="Spark: values in at least P %% of the rows are looked up without a shuffle "
        "(default 1)",
    )
    add(
        "--memory_limit",
        help="most memory to use, like 8GB (default: 60 %% of the machine's); of a Spark cluster, "
        "spark-submit or --spark_conf says it",
    )
    add("--threads", type=int, help="threads to use (default: every core; --master says it, too)")
    add(
        "--temp_dir",
        help="folder for what does not fit into memory (default: beside --output); a Spark "
        "cluster's workers have their own",
    )
    return parser


_SPARK_FLAGS = ("master", "spark_conf", "skew_broadcast_pct")
_VOCABULARY_FLAGS = ("frequency_threshold", "vocabulary_days", "bin_numericals")
_SPLIT_FLAGS = ("holdout_fraction", "validation_fraction", "output_ordering", "seed")


def _check_read(flags: argparse.Namespace) -> None:
    """Refuses flags that nothing would read."""
    unread = []
    if flags.engine != "spark":
        unread += [(name, "--engine spark") for name in _SPARK_FLAGS]
    if flags.encode_only:
        unread += [
            (name, "a preparation without --encode_only: the vocabulary's data set says it")
            for name in _VOCABULARY_FLAGS
        ]
        unread += [(name, "a preparation without --encode_only") for name in _SPLIT_FLAGS]
    if flags.master is not None:
        unread.append(("threads", "no --master, which says it itself, like local[4]"))
        if not flags.master.startswith("local"):
            unread.append(
                (
                    "memory_limit",
                    "a local --master; a cluster's is --spark_conf spark.executor.memory=...",
                )
            )
    if flags.output_ordering in ("input", "any"):
        unread.append(("seed", "--output_ordering total_random or day_random"))
    if flags.estimate:
        only = "a preparation, not by --estimate"
        names = ("output", "overwrite", "encode_only", "on_bad_line")
        names += ("engine", "temp_dir", "vocabulary_days", *_SPARK_FLAGS, *_SPLIT_FLAGS)
        unread += [(name, only) for name in names]
    for name, reader in unread:
        value = getattr(flags, name)
        if value is not None and value is not False and (name, value) != ("on_bad_line", "error"):
            raise ValueError(f"--{name} is only read with {reader}; leave it out")
