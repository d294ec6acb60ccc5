"""The command line of `python -m preproc.transcode`."""

import argparse
import math
from collections.abc import Sequence

from dataloading.spec import rules
from dataloading.spec.data_set_files import SPEC_FILE
from preproc.arguments import MISSING_HELP
from preproc.checks.report import STRICT_HELP
from preproc.encoding.numbers import fill_value
from preproc.fitting.scale import AUTO, TRANSFORMATIONS
from preproc.transcode.raw.labels import LabelFlags
from preproc.transcode.raw.split import DEFAULT_SHARES

TOOL = "preproc.transcode"
_MAX_COUNT = (1 << 63) - 1
ALL = "all"
ENGINES = DUCKDB, SPARK = ("duckdb", "spark")
# Flags of texts: metavar and help.
_FLAGS = {
    "--categorify": (
        "FEATURES",
        f"--input FOLDER with a feature spec: features, comma-separated, or '{ALL}' that are ids: "
        "texts or any whole numbers become ids by falling count in the training rows; 0 is for "
        "missing and unknown values (an --input file: all of them)",
    ),
    "--frequency_threshold": (
        "T",
        "values of ids that occur fewer than T times in train become id 0; 'auto' (default) is 2, "
        "up to 10 for features of which many values occur once, 0 for users and items",
    ),
    "--hash_buckets": (
        "FEATURE=N",
        "features whose id is a hash of the value, modulo N; comma-separated",
    ),
    "--vocabulary": (
        "DIR_OR_FILE",
        "encode as this data set of an earlier run is encoded, to predict more rows: its folder, "
        f"or its feature spec where that is not named {SPEC_FILE}",
    ),
    "--date": (
        "DATE",
        "day of the rows, e.g. 2026-11-26: the vocabularies keep for each value the last day on "
        "which it occurred in train, for --evict_after",
    ),
    "--split": (
        "SHARES",
        "divide the rows of train into train, validation and test, by shares such as "
        f"{DEFAULT_SHARES}, at random",
    ),
    "--split_by_time": (
        "COLUMN",
        "divide them in the order of this column, numbers or ISO 8601 dates or times (shares: "
        f"--split, default {DEFAULT_SHARES})",
    ),
    "--fill_missing": (
        "HOW",
        "fill missing numbers with 'mean' (of train; the default for an --input file), 0 or "
        "another value; per feature: price=mean,age=0. With --vocabulary: those that its data set "
        "does not fill",
    ),
    "--transform": (
        "HOW",
        f"transformation of numbers, one of {', '.join(TRANSFORMATIONS)}; per feature: "
        "price=log,age=bins (default: auto for an --input file, none for a folder with a feature "
        "spec)",
    ),
    "--missing_values": ("TEXTS", MISSING_HELP),
    "--positive": (
        "VALUE",
        "value of the label that is 1; every other value is 0 (default: 1 of 0 and 1, true, yes, "
        "y or t, and the larger one of -1 and 1, or of 1 and 2)",
    ),
    "--label_above": ("X", "labels are numbers: 1 above X, otherwise 0"),
    "--memory_limit": (
        "SIZE",
        "memory (default 1GB): DuckDB gets all but 256 MiB, the process may take some 100 MiB "
        "more. With --engine spark, memory of the driver (default 4GB), which is all of Spark with "
        "a local --master",
    ),
    "--master": (
        "URL",
        "--engine spark: local[N], spark://HOST:PORT, yarn or k8s://URL (default: local[*]). A "
        "cluster's memory is set by spark-submit or --spark_conf",
    ),
}
# Of the columns of an --input without a feature spec.
_ROLE_FLAGS = {
    "--label": ("COLUMN", "the column to predict, of two values"),
    "--categorical": ("COLUMNS", "columns, comma-separated, to take as categorical"),
    "--numerical": ("COLUMNS", "columns to take as numerical"),
    "--drop": ("COLUMNS", "columns to leave out"),
    "--keep": ("COLUMNS", "columns to keep although a check would leave them out"),
    "--user": ("COLUMN", "the users of interactions, for ncf.py"),
    "--item": ("COLUMN", "the items of interactions"),
}
ROLES = tuple(flag.removeprefix("--") for flag in _ROLE_FLAGS)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    result = argparse.ArgumentParser(
        prog=f"python -m {TOOL}",
        description="Encodes tables as a data set of split binaries with a feature spec and an "
        "encoder. --output appears when it is whole.",
        allow_abbrev=False,
    )
    add = result.add_argument
    add(
        "--input",
        "--path",
        default=".",
        metavar="PATH",
        help="a file (.csv, .tsv, .parquet, .jsonl; text also .gz or .zst), or a folder of such "
        "files, whose columns are inferred; or a folder with a simplified feature spec (default: "
        "the working folder)",
    )
    default = "(default %(default)s)"
    help_text = f"its simplified feature spec, relative to --input {default}"
    add("--feature_spec_in", default=SPEC_FILE, metavar="FILE", help=help_text)
    help_text = f"folder of the data set; new or empty {default}"
    add("--output", default="/data", metavar="DIR", help=help_text)
    help_text = f"name of its feature spec {default}"
    add("--feature_spec_out", default=SPEC_FILE, metavar="FILE", help=help_text)
    for flag, (metavar, help_text) in _FLAGS.items():
        add(flag, metavar=metavar, help=help_text)
    for flag, (metavar, help_text) in _ROLE_FLAGS.items():
        add(flag, metavar=metavar, help=f"--input without a feature spec: {help_text}")
    help_text = (
        "what does the work: duckdb (this machine, the default) or spark (a cluster); rows, "
    )
    add("--engine", choices=ENGINES, default=DUCKDB, help=help_text + "ids and vocabularies agree")
    help_text = "--engine spark: a setting; may be repeated"
    add("--spark_conf", action="append", metavar="KEY=VALUE", help=help_text)
    help_text = "fail (default) at a row with a wrong number of fields, or skip up to 1 %% of them"
    add("--on_bad_line", choices=("fail", "skip"), default="fail", help=help_text)
    help_text = "--input of CSV files without a header, whose columns are called c1, c2 and so on"
    add("--no_header", action="store_true", help=help_text)
    help_text = "with --vocabulary: values that are frequent enough in train and have no id there "
    add("--grow", action="store_true", help=help_text + "get new ids, after its ids")
    help_text = "with --grow and --date: remove values that did not occur in train in the last N "
    add("--evict_after", type=int, metavar="N", help=help_text + "days, that of --date included")
    help_text = "with --grow: allow more than half of the values of a feature to be new"
    add("--allow_mostly_new", action="store_true", help=help_text)
    add("--split_seed", type=int, metavar="N", help="seed of --split (default 0)")
    help_text = "a feature NAME_missing, 0 or 1, for each filled number that misses values in "
    help_text += "train; with --input this is the default"
    add("--missing_indicator", action="store_true", help=help_text)
    help_text = "with --input: fill missing numbers without a feature that marks them"
    add("--no_missing_indicator", action="store_true", help=help_text)
    add("--strict", action="store_true", help=STRICT_HELP)
    help_text = "replace a data set at --output, at the end; its spec is --feature_spec_out"
    add("--overwrite", action="store_true", help=help_text)
    return result


def parse_per_feature(flag: str, text: str | None, names: Sequence[str], origin: str) -> dict:
    """Returns feature -> word, from one word for all `names`, or `feature=word,...`, or both.

    Raises:
        ValueError: a name is not among `names`, or occurs twice.
    """
    words: dict[str, str] = {}
    default = None
    for item in text.split(",") if text is not None else ():
        name, equals, word = item.rpartition("=")
        if not equals and default is None:
            default = word
        elif equals and name in names and name not in words:
            words[name] = word
        else:
            raise ValueError(
                f"{flag} has '{item}'; expected one value for all numerical features, or "
                "feature=value, comma-separated, each feature once; the numerical features of "
                f"{origin} are {rules.listing(names)}" + rules.suggestion(name or word, names)
            )
    if default is not None:
        words = {name: words.get(name, default) for name in names}
    return words


def parse_fill(text: str | None, names: Sequence[str], origin: str) -> dict[str, str | float]:
    """Returns the fill values of `--fill_missing`: `mean` or a finite number."""
    words = parse_per_feature("--fill_missing", text, names, origin)
    return {name: fill_value(word) for name, word in words.items()}


def parse_transform(text: str | None, names: Sequence[str], origin: str) -> dict[str, str]:
    """Returns the transformations of `--transform`."""
    words = parse_per_feature("--transform", text, names, origin)
    for word in words.values():
        if word not in TRANSFORMATIONS:
            raise ValueError(
                f"--transform is '{text}': expected {', '.join(TRANSFORMATIONS)}, got '{word}'"
                + rules.suggestion(word, TRANSFORMATIONS)
            )
    return words


def parse_buckets(text: str | None) -> dict[str, int]:
    """feature -> buckets, from `feature=N,feature=N`."""
    buckets = {}
    for item in text.split(",") if text else ():
        name, _, count = item.rpartition("=")
        valid = name and count.isdecimal() and 1 <= int(count) <= _MAX_COUNT
        if not valid or name in buckets:
            raise ValueError(
                f"--hash_buckets has '{item}'; expected feature=N with N from 1 to 2^63 - 1, "
                "comma-separated, each feature once"
            )
        buckets[name] = int(count)
    return buckets


def parse_threshold(text: str | None) -> int | None:
    """Returns a frequency threshold, or None for `auto`."""
    if text in (None, AUTO):
        return None
    if not text.isdecimal() or int(text) > _MAX_COUNT:
        raise ValueError(
            f"--frequency_threshold is '{text}'; expected '{AUTO}' or a whole number from 0 to "
            "2^63 - 1"
        )
    return int(text)


def parse_label(flags: argparse.Namespace) -> LabelFlags:
    """Returns the values of --positive and --label_above."""
    if flags.label_above is None:
        return LabelFlags(flags.positive)
    if flags.positive is not None:
        raise ValueError(
            "--positive and --label_above both define labels of 1: give one of the two"
        )
    try:
        above = float(flags.label_above)
    except ValueError:
        above = math.nan
    if not math.isfinite(above):
        raise ValueError(f"--label_above is '{flags.label_above}': expected a finite number")
    return LabelFlags(above=above)
