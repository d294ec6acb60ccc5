"""Texts of features of ids: counted, looked up, and compared with those of training."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataloading.keys.growth import last_seen_file, previous_ids_file
from dataloading.keys.vocabulary import text_file, write_counted
from dataloading.spec.feature_spec import TRAIN
from dataloading.table_input.files import Block, chunk_blocks, place
from dataloading.transcode.encode import vocabulary
from dataloading.transcode.encode.vocabulary import CountedTexts, Vocabularies
from dataloading.transcode.encoding import Encoding
from dataloading.transcode.raw_spec import CSV, RawChunk, RawSpec

_LEAST, _MOST = 2, 10  # thresholds of automatic vocabularies
_VALUES_PER_OCCURRENCE = 500  # in train, for each occurrence that a value needs
_MANY_SINGLE = 0.1  # from this share of values that occur once on, new values are common
_SMALLEST_SHARE = 0.01  # of the values of a feature; a smaller one cannot move a metric much
_FACTOR = 2


def automatic_threshold(num_values: int, num_single: int) -> int:
    """Returns how often a value must occur in training to get an id of its own.

    The share of values that occur once in training is the Good-Turing estimate of the share of new
    values in later rows. With a threshold of 2, id 0 is therefore as frequent in training as it is
    later, and its vector is trained. Where a tenth of the values or more occur once, a model learns
    rare ids by heart and meets new ones all the time: a 500th of the values, at most 10.
    Measured in benchmarks/results/frequency_threshold_xeon_202611.md.

    Args:
        num_values: values of the feature in the training rows.
        num_single: those of them that occur once.
    """
    if num_single < _MANY_SINGLE * num_values:
        return _LEAST
    return min(max(num_values // _VALUES_PER_OCCURRENCE, _LEAST), _MOST)


def is_far_above(share: float, trained: float) -> bool:
    """Returns whether the share of id 0 is at least 1% and over twice that of training."""
    return share >= _SMALLEST_SHARE and share > _FACTOR * trained


_BLANK = r"^\s*$"
INTEGER = r"^\s*-?[0-9]+\s*$"
FLOAT = r"^\s*-?[0-9]+\.0\s*$"
_VOCABULARY_INTEGER = re.compile(rb"-?[0-9]+\t[0-9]+\s*")
_SCANNED_ROWS = 1 << 16


def float_integers(
    spec: RawSpec,
    features: Iterable[str],
    vocabularies: Mapping[str, Path],
    matching: Callable[[RawSpec, str, RawChunk, set[str], str], set[str]] | None = None,
) -> dict[str, set[str]]:
    """Finds CSV files in which all integers of a feature are written as `7.0`.

    In all other CSV files of the data set, and in the feature's vocabulary, its values must be
    integers, so that texts like the versions 1.0 and 1.1 stay as they are. A file is read up to the
    first value that decides.

    Args:
        features: looked up or hashed as text; those of more values than one in a row are left out.
        vocabularies: feature -> vocabulary, of some features.
        matching: in place of `matching_features`.

    Returns:
        A file, as `Block.where` names it -> features whose values there need `without_point`.
    """
    matching = matching or matching_features
    features = {name for name in features if spec.hotness(name) == 1}
    files = [
        (split, dataclasses.replace(chunk, files=(file,)), features & set(chunk.features))
        for split, chunks in spec.sources.items()
        for chunk in chunks
        for file in chunk.files
        if chunk.type == CSV and features & set(chunk.features)
    ]
    floats = [matching(spec, *file, FLOAT) for file in files]
    candidates = set[str]().union(*floats)
    for (split, chunk, wanted), own in zip(files, floats, strict=True):
        others = (candidates & wanted) - own
        candidates -= others - matching(spec, split, chunk, others, INTEGER)
    for name in candidates & set(vocabularies):
        with open(vocabularies[name], "rb") as lines:
            if not all(_VOCABULARY_INTEGER.fullmatch(line) for line in lines):
                candidates.remove(name)
    return {
        place(spec, split, chunk.files[0]): own & candidates
        for (split, chunk, _), own in zip(files, floats, strict=True)
    }


def without_point(values: pa.Array) -> pa.Array:
    """Returns texts such as `7.0` as `7`; all must be of that form, blank or null."""
    return pc.replace_substring_regex(values, r"\.0(\s*)$", r"\1")


def matching_features(
    spec: RawSpec, split: str, chunk: RawChunk, features: set[str], pattern: str
) -> set[str]:
    """Returns the features whose values in a file all match a pattern or are missing."""
    blocks = chunk_blocks(spec, split, chunk, _SCANNED_ROWS) if features else ()
    return features_that_match(blocks, features, pattern)


def features_that_match(blocks: Iterable[Block], features: set[str], pattern: str) -> set[str]:
    """Returns the features whose values in blocks of a CSV file all match or are missing."""
    features = set(features)
    for block in blocks:
        for name in sorted(features):
            good = pc.match_substring_regex(block.columns[name], f"{pattern}|{_BLANK}")
            if not pc.all(good, min_count=0).as_py():
                features.remove(name)
        if not features:
            break
    return features


@dataclass
class TextIds:
    """The features of `encoding.categorify`, in all splits."""

    encoding: Encoding  # where the vocabularies come from
    folder: Path  # of the data set
    vocabularies: Vocabularies  # entered before the first feature is encoded
    column: Callable[[str, str], CountedTexts]  # (split, feature) -> its texts
    tables: dict[str, Path] = field(default_factory=dict)  # feature -> its vocabulary, for lookups
    # split -> feature -> share of the values that have id 0
    unknown_shares: dict[str, dict[str, float]] = field(default_factory=dict)
    # thresholds, new, evicted: feature -> least occurrences, number of new and of evicted values
    thresholds: dict[str, int] = field(default_factory=dict)
    new: dict[str, int] = field(default_factory=dict)
    evicted: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def make_vocabularies(self, spec: RawSpec, scratch: Path) -> dict[str, int]:
        """Makes the vocabularies, as tables and as text; returns feature -> cardinality."""
        cardinalities = {}
        fixed = self.encoding.frequency_threshold
        threshold = automatic_threshold if fixed is None else lambda *_: fixed
        for number, feature in enumerate(self.encoding.categorify):
            table = self.tables[feature] = scratch / f"{number}.vocabulary"
            text = self.folder / text_file(feature)
            text.parent.mkdir(exist_ok=True)
            known = self.encoding.vocabularies.get(feature)
            if known is None:
                texts = self.column(TRAIN, feature)
                kept, self.thresholds[feature] = self.vocabularies.count(texts, threshold, table)
                write_counted(table, text)
                cardinalities[feature] = kept + 1
                if self.encoding.date is not None:
                    date = self.encoding.date
                    self.vocabularies.write_last_seen(table, date, last_seen_file(text))
            elif self.encoding.growth is not None:
                cardinalities[feature] = self._grow(feature, known, table, text)
            else:
                expected = spec.features[feature]["cardinality"]
                self.vocabularies.reuse(known, table, text, expected)
                cardinalities[feature] = expected
        return cardinalities

    def _grow(self, feature: str, known: Path, table: Path, text: Path) -> int:
        """Makes the vocabulary of a feature that grows; returns its cardinality."""
        growth, date = self.encoding.growth, self.encoding.date
        before, least = growth.cardinalities[feature], growth.thresholds[feature]
        self.vocabularies.reuse(known, table, text, before)
        seen = last_seen_file(known) if last_seen_file(known).is_file() else None
        days = (date, growth.evict_after, seen, last_seen_file(text))
        stayed, num_new = self.vocabularies.grow(self.column(TRAIN, feature), least, table, *days)
        write_counted(table, text)
        self.thresholds[feature], self.new[feature] = least, num_new
        if len(stayed) + 1 < before:
            self.evicted[feature] = before - 1 - len(stayed)
            np.save(previous_ids_file(text), np.concatenate([[vocabulary.UNKNOWN], stayed]))
        return 1 + len(stayed) + num_new

    def ids(self, split: str, feature: str) -> Iterator[np.ndarray]:
        """Yields the ids of the texts of a split, and counts the unknown ones."""
        num_unknown = 0
        for ids in self.vocabularies.look_up(self.column(split, feature), self.tables[feature]):
            num_unknown += int(np.count_nonzero(ids == vocabulary.UNKNOWN))
            yield ids
        self.count_unknown(split, feature, num_unknown)

    def count_unknown(self, split: str, feature: str, num_unknown: int) -> None:
        """Takes in how many values of a split have id 0."""
        num_values = self.column(split, feature).num_values
        self.unknown_shares.setdefault(split, {})[feature] = num_unknown / num_values

    def look_for_unknown(self) -> None:
        """Notes a warning for each feature with far more values of id 0 than in training, which
        names the first such split."""
        for feature in self.encoding.categorify:
            shares = {split: shares[feature] for split, shares in self.unknown_shares.items()}
            trained = shares.pop(TRAIN, self.encoding.trained_unknown.get(feature))
            for split, share in shares.items():
                if trained is not None and is_far_above(share, trained):
                    self.warnings.append(self._warning(feature, split, share, trained))
                    break

    def _warning(self, feature: str, split: str, share: float, trained: float) -> str:
        texts = self.column(split, feature)
        frequent = self.vocabularies.most_frequent_unknown(texts, self.tables[feature])
        most = "all of them are missing"
        if frequent is not None:
            value, count = frequent
            value_share = count / texts.num_values
            most = f"the most frequent value without an id is {value!r:.60} ({value_share:.2%})"
        return (
            f"'{feature}': {share:.2%} of the values of {split} have id 0, but only "
            f"{trained:.2%} of train, which trains the vector of id 0; {most}"
        )

    def metadata(self) -> dict:
        parts = {
            "frequency_threshold": self.thresholds,
            "new_values": self.new,
            "evicted": self.evicted,
            "warnings": self.warnings,
        }
        return {name: part for name, part in parts.items() if part}
