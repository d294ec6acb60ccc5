"""The command line of `python -m dataloading.transcode`."""

import argparse

from dataloading.engines.memory import MOST_BYTES, size_bytes
from dataloading.spec.data_set_files import SPEC_FILE
from dataloading.transcode.split import DEFAULT_SHARES

TOOL = "dataloading.transcode"
MIN_MEMORY_BYTES = 128 << 20
_MAX_COUNT = (1 << 63) - 1
ALL = "all"
AUTO = "auto"
ENGINES = DUCKDB, SPARK = ("duckdb", "spark")
# Flags of texts: metavar and help.
_FLAGS = {
    "--categorify": (
        "FEATURES",
        f"features, comma-separated, or '{ALL}' that are ids: texts or any whole numbers become "
        "ids by falling count in the training rows; 0 is for missing and unknown values",
    ),
    "--frequency_threshold": (
        "T",
        "values of --categorify that occur fewer than T times in train become id 0; 'auto' "
        "(default) is 2, up to 10 for features of which many values occur once, 0 for users and "
        "items",
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
        "fill missing numerical values with 'mean' (of train), 0 or another value; per feature: "
        "price=mean,age=0",
    ),
    "--standardize": (
        "FEATURES",
        "numerical features, comma-separated, 'all' or 'none', to store as (value - mean) / "
        "standard deviation of train (default: 'all' for an --input file, 'none' for a folder)",
    ),
    "--memory_limit": (
        "SIZE",
        "memory to count and look up the values of --categorify and to sort the times of "
        "--split_by_time (default 1GB); the rest takes some 350 MB. With --engine spark, memory of "
        "the driver (default 4GB), which is all of Spark with a local --master",
    ),
    "--master": (
        "URL",
        "--engine spark: local[N], spark://HOST:PORT, yarn or k8s://URL (default: local[*]). A "
        "cluster's memory is set by spark-submit or --spark_conf",
    ),
}
# Of the columns of an --input file.
_ROLE_FLAGS = {
    "--label": ("COLUMN", "--input FILE: the column to predict, 0 or 1"),
    "--categorical": ("COLUMNS", "--input FILE: columns, comma-separated, to take as categorical"),
    "--numerical": ("COLUMNS", "--input FILE: columns to take as numerical"),
    "--drop": ("COLUMNS", "--input FILE: columns to leave out"),
    "--user": ("COLUMN", "--input FILE: the users of interactions, for ncf.py"),
    "--item": ("COLUMN", "--input FILE: the items of interactions"),
}
ROLES = tuple(flag.removeprefix("--") for flag in _ROLE_FLAGS)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    result = argparse.ArgumentParser(
        prog=f"python -m {TOOL}",
        description="Transcodes CSV or Parquet files with a simplified feature spec into split "
        "binaries with a feature spec. --output appears when it is whole.",
        allow_abbrev=False,
    )
    add = result.add_argument
    add(
        "--input",
        "--path",
        default=".",
        metavar="PATH",
        help="folder of the raw data with a simplified feature spec; or one .csv file with a "
        "header (.csv.gz compressed), .tsv or .parquet file, whose columns are inferred (default: "
        "the working folder)",
    )
    default = "(default %(default)s)"
    help_text = f"its simplified feature spec, relative to --input {default}"
    add("--feature_spec_in", default=SPEC_FILE, metavar="FILE", help=help_text)
    help_text = f"folder of the data set; new or empty {default}"
    add("--output", default="/data", metavar="DIR", help=help_text)
    help_text = f"name of its feature spec {default}"
    add("--feature_spec_out", default=SPEC_FILE, metavar="FILE", help=help_text)
    help_text = f"the most rows to work on at a time {default}"
    add("--chunk_size", type=int, default=65_536, metavar="ROWS", help=help_text)
    for flag, (metavar, help_text) in (_FLAGS | _ROLE_FLAGS).items():
        add(flag, metavar=metavar, help=help_text)
    help_text = "what does the work: duckdb (this machine, the default) or spark (a cluster); both "
    add("--engine", choices=ENGINES, default=DUCKDB, help=help_text + "write the same files")
    help_text = "--engine spark: a setting; may be repeated"
    add("--spark_conf", action="append", metavar="KEY=VALUE", help=help_text)
    help_text = "with --vocabulary: values that are frequent enough in train and have no id there "
    add("--grow", action="store_true", help=help_text + "get new ids, after its ids")
    help_text = "with --grow and --date: remove values that did not occur in train in the last N "
    add("--evict_after", type=int, metavar="N", help=help_text + "days, that of --date included")
    add("--split_seed", type=int, metavar="N", help="seed of --split (default 0)")
    help_text = "with --fill_missing: a feature NAME_missing, 0 or 1, for each filled one that "
    add("--missing_indicator", action="store_true", help=help_text + "misses values in train")
    help_text = "replace a data set at --output, at the end; its spec is --feature_spec_out"
    add("--overwrite", action="store_true", help=help_text)
    return result


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


def parse_bytes(text: str) -> int:
    """Returns the bytes of a size like 500MB, 1.5GB, 512MiB or 2GiB."""
    size = size_bytes(text) or 0
    if not MIN_MEMORY_BYTES <= size <= MOST_BYTES:
        raise ValueError(
            f"--memory_limit is '{text:.40}'; expected a size like 1GB, from "
            f"{MIN_MEMORY_BYTES >> 20}MiB to {MOST_BYTES >> 30}GiB"
        )
    return round(size)
