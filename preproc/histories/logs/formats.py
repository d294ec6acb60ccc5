"""Formats of Amazon's reviews and metadata, recognized by the keys of the first lines.

2014 and 2018: reviewerID, asin, unixReviewTime, overall; metadata: asin, categories (2014) or
category (2018). 2023: user_id, parent_asin, timestamp, rating; metadata: parent_asin, categories.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dataloading.spec.rules import listing
from preproc.histories.logs.metadata_lines import read_object
from preproc.raw_files import gzip_errors, open_unpacked

_LINES = 20
_KEYS_SHOWN = 12


@dataclass(frozen=True)
class AmazonFormat:
    """Keys of reviews, and of the item in metadata."""

    year: str
    columns: Mapping[str, str]
    rating: str

    @property
    def item(self) -> str:
        return self.columns["item"]


_OLD = {"user": "reviewerID", "item": "asin", "time": "unixReviewTime"}
_NEW = {"user": "user_id", "item": "parent_asin", "time": "timestamp"}
FORMATS = (AmazonFormat("2014 or 2018", _OLD, "overall"), AmazonFormat("2023", _NEW, "rating"))


def format_of(reviews: Sequence[Path], metadata: Sequence[Path]) -> AmazonFormat:
    """Returns the format of files; that of 2014 if no line is an object.

    Raises:
        ValueError: review files are of none of the formats or of two, or metadata are of another.
    """
    formats = {}
    for file in reviews:
        if not (keys := first_keys(file)):
            continue
        known = [form for form in FORMATS if keys.issuperset(form.columns.values())]
        if not known:
            expected = " or ".join(
                f"{', '.join(form.columns.values())} ({form.year})" for form in FORMATS
            )
            raise ValueError(
                f"{file}: expected reviews of Amazon with the keys {expected}, got {_shown(keys)}; "
                "read other logs with --input_format tables and --interactions"
            )
        formats[file] = known[0]
    first = next(iter(formats.values()), FORMATS[0])
    for file, form in formats.items():
        if form != first:
            raise ValueError(
                f"expected reviews of one format, got {next(iter(formats))} of {first.year} and "
                f"{file} of {form.year}; prepare them apart"
            )
    for file in metadata:
        if (keys := first_keys(file)) and first.item not in keys:
            raise ValueError(
                f"{file}: expected metadata with the key {first.item}, as the reviews are of "
                f"{first.year}, got {_shown(keys)}; use metadata of the same year, or put all "
                "items in one category with --no_metadata"
            )
    return first


def first_keys(file: Path) -> set[str]:
    """Returns the keys of the objects in the first lines of a file."""
    keys: set[str] = set()
    with gzip_errors(file), open_unpacked(file) as source:
        for line in itertools.islice(source, _LINES):
            try:
                keys |= read_object(line.decode("utf-8-sig", "replace").strip()).keys()
            except ValueError:
                continue  # a bad line is reported where lines are read
    return keys


def no_category(files: Sequence[Path]) -> ValueError:
    """Returns the error of metadata in which no item has a category."""
    keys = set().union(*map(first_keys, files))
    return ValueError(
        f"{', '.join(map(str, files))}: no item has a category: expected lists in the key "
        f"categories (2014, 2023) or category (2018), got the keys {_shown(keys)}; put all items "
        "in one category with --no_metadata"
    )


def _shown(keys: set[str]) -> str:
    return listing(sorted(keys)[:_KEYS_SHOWN]) + ", ..." * (len(keys) > _KEYS_SHOWN)
