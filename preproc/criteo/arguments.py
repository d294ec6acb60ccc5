"""The flags of `python -m preproc.criteo`, read once and checked."""

import argparse
import re
from collections.abc import Iterator

from preproc.arguments import complete_machine_flags, passed_flags, refuse_unread_flags
from preproc.criteo.log_files import parse_days
from preproc.criteo.options import TRAINING_ROWS, CriteoOptions
from preproc.criteo.raw_lines import NUM_CATEGORICAL, NUM_NUMERICAL
from preproc.engines.spark_options import SPARK, unread_spark_flags
from runtime.options import add_flags, flags_of

_FIRST_CATEGORICAL = 1 + NUM_NUMERICAL  # field of a line, after label and numerical features


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


def threshold_of_limit(text: str) -> str:
    """Translates NVIDIA's --frequency_limit, with fields of a line as columns: 15,14:30 is 15,0:30.

    Raises:
        ValueError: A number is not that of a categorical field, 14 to 39.
    """
    general, *pairs = text.split(",")
    columns = []
    for field, colon, threshold in (pair.partition(":") for pair in pairs):
        column = int(field) - _FIRST_CATEGORICAL if colon and field.strip().isdigit() else -1
        if not 0 <= column < NUM_CATEGORICAL:
            raise ValueError(
                f"--frequency_limit {text!r}: expected a number for all columns, like 15, and "
                f"others by field, like 15,14:30; the categorical fields are {_FIRST_CATEGORICAL} "
                f"to {_FIRST_CATEGORICAL + NUM_CATEGORICAL - 1}"
            )
        columns.append(f"{column}:{threshold}")
    return ",".join([general, *columns])


def parse(argv: list[str] | None = None) -> CriteoOptions:
    """Reads the command line; raises ValueError as `CriteoOptions` does."""
    flags = passed_flags(_parser(), argv)
    if limit := flags.pop("frequency_limit", None):
        if "frequency_threshold" in flags:
            raise ValueError("--frequency_limit and --frequency_threshold are one; leave one out")
        flags["frequency_threshold"] = threshold_of_limit(limit)
    if flags.pop("write_mode", None) == "overwrite":
        flags["overwrite"] = True
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
    return CriteoOptions(**complete_machine_flags({"output": None, **flags}))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m preproc.criteo",
        description="Prepares raw Criteo click logs for training: split binaries train/, "
        "validation/ and test/ with a feature_spec.yaml. A killed run resumes where it was.",
        allow_abbrev=False,
    )
    add_flags(parser, CriteoOptions)
    group = parser.add_argument_group("NVIDIA's names")
    help_text = "--frequency_threshold, with fields of a line (14 to 39) as columns: 15,14:30"
    group.add_argument("--frequency_limit", metavar="T[,F:T...]", help=help_text)
    help_text = "overwrite: --overwrite"
    group.add_argument("--write_mode", choices=("overwrite", "errorifexists"), help=help_text)
    return parser


_SPARK_FLAGS = flags_of(CriteoOptions, SPARK)
_VOCABULARY_FLAGS = ("frequency_threshold", "vocabulary_days", "bin_numericals")
_SPLIT_FLAGS = ("holdout_fraction", "validation_fraction", "output_ordering", "seed")


def _unread(flags: dict) -> Iterator[tuple[str, str]]:
    yield from unread_spark_flags(CriteoOptions, flags)
    if "encode_only" in flags:
        reader = "a preparation without --encode_only"
        specified = f"{reader}: the data set of --vocabulary specifies it"
        yield from ((name, specified) for name in _VOCABULARY_FLAGS)
        yield from ((name, reader) for name in (*_SPLIT_FLAGS, "vocabulary_only"))
    if "vocabulary_only" in flags:
        yield from ((name, "a preparation of rows") for name in _SPLIT_FLAGS)
    if flags.get("output_ordering") in ("input", "any"):
        yield "seed", "--output_ordering total_random or day_random"
    if "estimate" in flags:
        names = ("output", "overwrite", "encode_only", "on_bad_line", "engine", "temp_dir")
        names += ("vocabulary_days", "vocabulary_only", *_SPARK_FLAGS, *_SPLIT_FLAGS)
        yield from ((name, "a preparation, not by --estimate") for name in names)
