"""The command line of `python -m dataloading.transcode`."""

import argparse
import re

from dataloading.spec.output_folder import SPEC_FILE
from dataloading.transcode.split import DEFAULT_SHARES, SplitRequest, parse_shares

MIN_MEMORY_BYTES = 128 << 20
ALL = "all"
AUTO = "auto"
# Flags that describe the columns of an --input file.
ROLES = {
    "label": ("COLUMN", "the column to predict, 0 or 1"),
    "categorical": ("COLUMNS", "columns, comma-separated, to take as categorical"),
    "numerical": ("COLUMNS", "columns to take as numerical"),
    "drop": ("COLUMNS", "columns to leave out"),
    "user": ("COLUMN", "the users of interactions, for ncf.py"),
    "item": ("COLUMN", "the items of interactions"),
}
_UNITS = {"MB": 10**6, "GB": 10**9, "MIB": 1 << 20, "GIB": 1 << 30}


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    result = argparse.ArgumentParser(
        prog="python -m dataloading.transcode",
        description="Transcodes CSV or Parquet files with a simplified feature spec into split "
        "binaries with a feature spec. --output appears when it is whole.",
        allow_abbrev=False,
    )
    add = result.add_argument
    add(
        "--input",
        required=True,
        metavar="PATH",
        help="folder of the raw data with a simplified feature spec; or one .csv file with a "
        "header (.csv.gz compressed), .tsv or .parquet file, whose columns are inferred",
    )
    default = "(default %(default)s)"
    help_text = f"its simplified feature spec, relative to --input {default}"
    add("--feature_spec_in", default=SPEC_FILE, metavar="FILE", help=help_text)
    add("--output", required=True, metavar="DIR", help="folder of the data set; new or empty")
    help_text = f"name of its feature spec {default}"
    add("--feature_spec_out", default=SPEC_FILE, metavar="FILE", help=help_text)
    help_text = f"the most rows to work on at a time {default}"
    add("--chunk_size", type=int, default=65_536, metavar="ROWS", help=help_text)
    add(
        "--categorify",
        metavar="FEATURES",
        help=f"features, comma-separated, or '{ALL}' that are ids: texts or any whole numbers "
        "become ids by falling count in the training rows; 0 is for missing and unknown values",
    )
    add(
        "--frequency_threshold",
        metavar="T",
        help="values of --categorify that occur fewer than T times in train become id 0; 'auto' "
        "(default) is 2, up to 10 for features of which many values occur once, 0 for users and "
        "items",
    )
    help_text = "features whose id is a hash of the value, modulo N; comma-separated"
    add("--hash_buckets", metavar="FEATURE=N", help=help_text)
    add(
        "--vocabulary",
        metavar="DIR_OR_FILE",
        help="encode as this data set of an earlier run is encoded, to predict more rows: its "
        f"folder, or its feature spec where that is not named {SPEC_FILE}",
    )
    add(
        "--split",
        metavar="SHARES",
        help="divide the rows of train into train, validation and test, by shares such as "
        f"{DEFAULT_SHARES}, at random",
    )
    add("--split_seed", type=int, metavar="N", help="seed of --split (default 0)")
    add(
        "--split_by_time",
        metavar="COLUMN",
        help="divide them in the order of this column, numbers or ISO 8601 dates or times "
        f"(shares: --split, default {DEFAULT_SHARES})",
    )
    add(
        "--fill_missing",
        metavar="HOW",
        help="fill missing numerical values with 'mean' (of train), 0 or another value; per "
        "feature: price=mean,age=0",
    )
    add(
        "--missing_indicator",
        action="store_true",
        help="with --fill_missing: a feature NAME_missing, 0 or 1, for each filled one that misses "
        "values in train",
    )
    add(
        "--standardize",
        metavar="FEATURES",
        help="numerical features, comma-separated, 'all' or 'none', to store as (value - mean) / "
        "standard deviation of train (default: 'all' for an --input file, 'none' for a folder)",
    )
    for role in ROLES:
        add(f"--{role}", metavar=ROLES[role][0], help=f"--input FILE: {ROLES[role][1]}")
    add(
        "--memory_limit",
        metavar="SIZE",
        help="memory to count and look up the values of --categorify and to sort the times of "
        "--split_by_time (default 1GB); the rest takes some 350 MB",
    )
    help_text = "replace a data set at --output, at the end; its spec is --feature_spec_out"
    add("--overwrite", action="store_true", help=help_text)
    return result


def parse_buckets(text: str | None) -> dict[str, int]:
    """feature -> buckets, from `feature=N,feature=N`."""
    buckets = {}
    for item in text.split(",") if text else ():
        name, _, count = item.rpartition("=")
        valid = name and count.isdecimal() and 1 <= int(count) < 1 << 63
        if not valid or name in buckets:
            raise ValueError(
                f"--hash_buckets has '{item}'; allowed: feature=N with N from 1 to 2^63 - 1, "
                "comma-separated, each feature once"
            )
        buckets[name] = int(count)
    return buckets


def parse_threshold(text: str | None) -> int | None:
    """Returns a frequency threshold, or None for `auto`."""
    if text in (None, AUTO):
        return None
    if not text.isdecimal():
        raise ValueError(
            f"--frequency_threshold is '{text}'; expected '{AUTO}' or a whole number, 0 or more"
        )
    return int(text)


def parse_split(flags: argparse.Namespace) -> SplitRequest | None:
    """Returns what --split, --split_seed and --split_by_time request; None without them."""
    if flags.split is None and flags.split_by_time is None:
        if flags.split_seed is not None:
            raise ValueError("--split_seed is for --split: expected both flags")
        return None
    if flags.split_seed is not None and flags.split_by_time is not None:
        raise ValueError(
            "--split_seed is for random splits, --split_by_time is not: give one of the two"
        )
    seed = flags.split_seed or 0
    if seed < 0:
        raise ValueError(f"--split_seed is {seed}; expected 0 or more")
    return SplitRequest(parse_shares(flags.split or DEFAULT_SHARES), seed, flags.split_by_time)


def parse_bytes(text: str) -> int:
    """A size like 500MB, 1.5GB, 512MiB or 2GiB in bytes."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([MG]i?B)", text, re.IGNORECASE)
    size = round(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if size < MIN_MEMORY_BYTES:
        raise ValueError(
            f"--memory_limit is '{text}'; allowed: a size like 1GB, {MIN_MEMORY_BYTES >> 20}MiB "
            "or more"
        )
    return size
