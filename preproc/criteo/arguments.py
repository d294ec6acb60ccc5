"""The flags of `python -m preproc.criteo`, read once and checked."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from preproc.arguments import (
    add_machine_flags,
    complete_machine_flags,
    passed_flags,
    refuse_unread_flags,
)
from preproc.criteo.engines.registry import ENGINES
from preproc.criteo.log_files import parse_days
from preproc.criteo.options import TRAINING_ROWS, CriteoOptions
from preproc.criteo.output.output_order import ORDERINGS
from preproc.criteo.raw_lines import NUM_CATEGORICAL, NUM_NUMERICAL


def parse_thresholds(text: str) -> tuple[int, tuple[tuple[int, int], ...]]:
    """ "15" -> (15, ()); "15,5:30" -> (15, ((5, 30),)): 30 for column cat_5, 15 for the others."""
    match = re.fullmatch(r"\s*(-?\d+)\s*((?:,\s*\d+\s*:\s*-?\d+\s*)*)", text)
    if not match:
        raise ValueError(
            f"--frequency_threshold {text!r}: expected one number for all columns, like 15, "
            "optionally followed by others, like 15,5:30 (30 for cat_5)"
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


def parse(argv: list[str] | None = None) -> CriteoOptions:
    """Reads the command line.

    Raises:
        ValueError: see `CriteoOptions`. (argparse itself exits on an unknown flag.)
    """
    flags = passed_flags(_parser(), argv)
    if flags.get("on_bad_line") == "error":  # the default
        del flags["on_bad_line"]
    refuse_unread_flags(flags, _unread(flags))
    if "frequency_threshold" in flags:
        threshold, flags["column_thresholds"] = parse_thresholds(flags["frequency_threshold"])
        flags["frequency_threshold"] = threshold
    if "days" in flags:
        flags["days"] = parse_days(flags["days"])
    if flags.get("vocabulary_days") not in (None, TRAINING_ROWS):
        flags["vocabulary_days"] = parse_days(flags["vocabulary_days"])
    if "spark_conf" in flags:
        flags["spark_conf"] = tuple(flags["spark_conf"])
    return CriteoOptions(**complete_machine_flags({"output": None, **flags}))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m preproc.criteo",
        description="Prepares raw Criteo click logs for training: split binaries train/, "
        "validation/ and test/ with a feature_spec.yaml. A killed run resumes where it was.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--input",
        type=Path,
        required=True,
        help="folder with *day_N files (plain or gzip), or one file",
    )
    add("--output", type=Path, help="folder of the prepared data set; appears when complete")
    add("--days", help="days to use, like 0-23 or 0,1,5-7 (default: every day there is)")
    add(
        "--on_bad_line",
        choices=("error", "skip"),
        help="malformed lines: stop at the first file that has one, or leave them out and count "
        "them (default error)",
    )
    add("--overwrite", action="store_true", help="replace an existing --output at the end")
    add(
        "--estimate",
        action="store_true",
        help="prepare nothing: estimate from a sample the numbers of rows and ids and the disk "
        "space and memory that they need",
    )
    add(
        "--engine",
        choices=ENGINES,
        help="what does the work: duckdb (this machine, the default), spark (a cluster) or "
        "nvtabular (a GPU, or this machine); all give the same files",
    )
    add_machine_flags(
        parser,
        memory="; that of a Spark cluster is set by spark-submit or --spark_conf",
        threads="; --master also sets it",
        temp_dir="; the workers of a Spark cluster have their own",
    )
    _add_data_set_flags(parser.add_argument_group("vocabulary and splits"))
    _add_spark_flags(parser.add_argument_group("Spark"))
    return parser


def _add_data_set_flags(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--frequency_threshold",
        metavar="T[,N:T...]",
        help="categorical values seen fewer than T times become id 0 (default 15; 0 keeps all); "
        "15,5:30 means 30 for column cat_5 and 15 for the others",
    )
    add(
        "--vocabulary_days",
        help=f"days whose values get ids, like 0-22, or '{TRAINING_ROWS}': only the rows that "
        "train (default: all of --days)",
    )
    add(
        "--bin_numericals",
        action="store_true",
        help="also give each numerical as a categorical feature bin_0..bin_12: "
        "1 + floor(2 * log(x + 3)), 0 where it is missing or undefined",
    )
    add(
        "--encode_only",
        action="store_true",
        help="encode new raw rows with the ids of --vocabulary, to predict them; their labels may "
        "all be missing",
    )
    add(
        "--vocabulary", type=Path, metavar="DATA_SET", help="a prepared data set, for --encode_only"
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
        "--output_ordering",
        choices=ORDERINGS,
        help="order of the training rows: random (total_random, the default), random within each "
        "day (day_random), as in the log (input), or any. The other splits keep the log's order",
    )
    add("--seed", type=int, help="of a random order (default 0)")


def _add_spark_flags(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--master",
        help="local[N], spark://HOST:PORT, yarn or k8s://URL (default: local[--threads])",
    )
    add(
        "--spark_conf",
        action="append",
        metavar="KEY=VALUE",
        help="a setting; may be repeated",
    )
    add(
        "--skew_broadcast_pct",
        type=float,
        metavar="P",
        help="values in at least P %% of the rows are looked up without a shuffle (default 1)",
    )


_SPARK_FLAGS = ("master", "spark_conf", "skew_broadcast_pct")
_VOCABULARY_FLAGS = ("frequency_threshold", "vocabulary_days", "bin_numericals")
_SPLIT_FLAGS = ("holdout_fraction", "validation_fraction", "output_ordering", "seed")


def _unread(flags: dict) -> Iterator[tuple[str, str]]:
    """Yields the flags that nothing would read, each with what does read it."""
    if flags.get("engine") != "spark":
        yield from ((name, "--engine spark") for name in _SPARK_FLAGS)
    if "encode_only" in flags:
        reader = "a preparation without --encode_only"
        specified = f"{reader}: the data set of --vocabulary specifies it"
        yield from ((name, specified) for name in _VOCABULARY_FLAGS)
        yield from ((name, reader) for name in _SPLIT_FLAGS)
    if "master" in flags:
        yield "threads", "no --master, which specifies them itself, like local[4]"
        if not flags["master"].startswith("local"):
            yield (
                "memory_limit",
                "a local --master; a cluster's is --spark_conf spark.executor.memory=...",
            )
    if flags.get("output_ordering") in ("input", "any"):
        yield "seed", "--output_ordering total_random or day_random"
    if "estimate" in flags:
        names = ("output", "overwrite", "encode_only", "on_bad_line", "engine", "temp_dir")
        names += ("vocabulary_days", *_SPARK_FLAGS, *_SPLIT_FLAGS)
        yield from ((name, "a preparation, not by --estimate") for name in names)
