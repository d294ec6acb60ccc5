"""The flags of `python -m preproc.amazon_books`, read once and checked."""

import argparse
from collections.abc import Iterator

from preproc.amazon_books.engines import default_engine
from preproc.amazon_books.options import AMAZON, AMAZON_FLAGS, CSV, TABLE_FLAGS, AmazonOptions
from preproc.arguments import (
    complete_machine_flags,
    passed_flags,
    refuse_unread_flags,
    unread_spark_flags,
)
from runtime.options import add_flags, flags_of


def parse(argv: list[str] | None = None) -> AmazonOptions:
    """Reads the command line; raises ValueError as `AmazonOptions` does."""
    flags = passed_flags(_parser(), argv)
    refuse_unread_flags(flags, _unread(flags))
    for name in ("user_features", "item_features"):
        if name in flags:
            flags[name] = _names(name, flags[name])
    return AmazonOptions(**complete_machine_flags({"engine": default_engine(), **flags}))


def _names(flag: str, text: str) -> tuple[str, ...]:
    """ "a,b" -> ("a", "b")."""
    names = tuple(text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ValueError(
            f"--{flag} {text!r} must be different names of columns with a comma between them"
        )
    return names


def _unread(flags: dict) -> Iterator[tuple[str, str]]:
    yield from unread_spark_flags(AmazonOptions, flags)
    input_format = flags.get("input_format", AMAZON)
    if input_format != CSV:
        yield "delimiter", "--input_format csv"
    if "min_rating" not in flags:
        yield "rating_column", "--min_rating"
    group = TABLE_FLAGS if input_format == AMAZON else AMAZON_FLAGS
    yield from ((name, group) for name in flags_of(AmazonOptions, group))
    if "reviews" in flags and ("meta" in flags or "no_metadata" in flags):
        yield "amazon_dataset_path", "no --reviews and --meta (or --no_metadata)"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m preproc.amazon_books",
        description="Prepares reviews, or any log of who did what when, for SIM, DIEN and DIN: "
        "a data set of histories that sim.py reads. "
        "`python -m preproc.amazon_books.parquet_to_tfrecord` converts it to TFRecords.",
        allow_abbrev=False,
    )
    add_flags(parser, AmazonOptions)
    return parser
