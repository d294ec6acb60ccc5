"""Integers that CSV files hold as floating-point numbers: `7.0` in place of `7`.

That is how pandas writes a column of integers in which some are missing. In Parquet such a column
has a type of its own; in CSV only all values of a file together show it.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from dataloading.table_input.files import chunk_blocks, place
from dataloading.transcode.raw_spec.raw_spec import CSV, RawChunk, RawSpec

_BLANK = r"^\s*$"
_INTEGER = r"^\s*-?[0-9]+\s*$"
_FLOAT = r"^\s*-?[0-9]+\.0\s*$"
_VOCABULARY_INTEGER = re.compile(rb"-?[0-9]+\t[0-9]+\s*")
_SCANNED_ROWS = 1 << 16


def float_integers(
    spec: RawSpec, features: Iterable[str], vocabularies: Mapping[str, Path]
) -> dict[str, set[str]]:
    """Finds CSV files in which all integers of a feature are written as `7.0`.

    In all other CSV files of the data set, and in the feature's vocabulary, its values must be
    integers, so that texts like the versions 1.0 and 1.1 stay as they are. A file is read up to the
    first value that decides.

    Args:
        features: looked up or hashed as text; those of more values than one in a row are left out.
        vocabularies: feature -> vocabulary, of some features.

    Returns:
        a file, as `Block.where` names it -> features whose values there need `without_point`.

    Raises:
        ValueError: a file cannot be read.
    """
    features = {name for name in features if spec.hotness(name) == 1}
    files = [
        (mapping, dataclasses.replace(chunk, files=(file,)), features & set(chunk.features))
        for mapping, chunks in spec.sources.items()
        for chunk in chunks
        for file in chunk.files
        if chunk.type == CSV and features & set(chunk.features)
    ]
    floats = [_matching(spec, *file, _FLOAT) for file in files]
    candidates = set[str]().union(*floats)
    for (mapping, chunk, wanted), own in zip(files, floats, strict=True):
        others = (candidates & wanted) - own
        candidates -= others - _matching(spec, mapping, chunk, others, _INTEGER)
    for name in candidates & set(vocabularies):
        if not _holds_integers(vocabularies[name]):
            candidates.remove(name)
    return {
        place(spec, mapping, chunk.files[0]): own & candidates
        for (mapping, chunk, _), own in zip(files, floats, strict=True)
    }


def without_point(values: pa.Array) -> pa.Array:
    """Returns texts such as `7.0` as `7`; all must be of that form, blank or null."""
    return pc.replace_substring_regex(values, r"\.0(\s*)$", r"\1")


def _matching(
    spec: RawSpec, mapping: str, chunk: RawChunk, features: set[str], pattern: str
) -> set[str]:
    """Returns the features whose values in a file all match a pattern or are missing."""
    features = set(features)
    blocks = chunk_blocks(spec, mapping, chunk, _SCANNED_ROWS) if features else ()
    for block in blocks:
        for name in sorted(features):
            good = pc.match_substring_regex(block.columns[name], f"{pattern}|{_BLANK}")
            if not pc.all(good, min_count=0).as_py():
                features.remove(name)
        if not features:
            break
    return features


def _holds_integers(vocabulary: Path) -> bool:
    with open(vocabulary, "rb") as lines:
        return all(_VOCABULARY_INTEGER.fullmatch(line) for line in lines)
