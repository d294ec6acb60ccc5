"""Texts of features of ids: set aside while rows are read, then counted and looked up."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataloading.spec.feature_spec import TRAIN
from dataloading.transcode import binary
from dataloading.transcode.encode import vocabulary
from dataloading.transcode.encode.encoding import Encoding
from dataloading.transcode.encode.unknown import automatic_threshold, is_far_above, unknown_warning
from dataloading.transcode.encode.vocabulary import Vocabularies
from dataloading.transcode.raw_spec.raw_spec import RawSpec


class TextIds:
    """The features of `encoding.categorify`, in all mappings.

    Args:
        spec: the raw data, with the mappings of the data set.
        encoding: where the vocabularies come from.
        folder: of the data set.
        scratch: for texts and vocabularies while they are needed.

    Attributes:
        unknown_shares: mapping -> feature -> share of the values that have id 0.
        thresholds: feature -> frequency threshold of a new vocabulary.
        warnings: sentences on features whose share is far above that of training.
    """

    def __init__(self, spec: RawSpec, encoding: Encoding, folder: Path, scratch: Path):
        self._spec, self._encoding = spec, encoding
        self._folder, self._scratch = folder, scratch
        self.unknown_shares: dict[str, dict[str, float]] = {name: {} for name in spec.sources}
        self.thresholds: dict[str, int] = {}
        self.warnings: list[str] = []

    def appender(self, stack, mapping: str, feature: str) -> Callable:
        """Returns the function that sets texts aside; its file closes with `stack`."""
        path = self._text_path(mapping, feature)
        writer = stack.enter_context(pq.ParquetWriter(path, vocabulary.VALUES_SCHEMA))
        return lambda columns: writer.write_batch(
            pa.record_batch(columns, schema=vocabulary.VALUES_SCHEMA)
        )

    def make_vocabulary(self, feature: str, vocabularies: Vocabularies) -> int:
        """Makes the vocabulary, as a table and as text; returns the feature's cardinality."""
        table, text = self._table_path(feature), self._folder / vocabulary.text_file(feature)
        known = self._encoding.vocabularies.get(feature)
        if known is None:
            texts = self._text_path(TRAIN, feature)
            fixed = self._encoding.frequency_threshold
            threshold = automatic_threshold if fixed is None else lambda *_: fixed
            kept, self.thresholds[feature] = vocabularies.count(texts, threshold, table)
            vocabulary.write_text(table, text)
            return kept + 1
        expected = self._spec.features[feature]["cardinality"]
        return vocabularies.reuse(known, table, text, expected)

    def write_ids(
        self, mapping: str, feature: str, vocabularies: Vocabularies, path: Path, dtype: np.dtype
    ) -> None:
        """Writes the ids of the texts of a mapping."""
        texts = self._text_path(mapping, feature)
        ids = vocabularies.look_up(texts, self._table_path(feature))
        unknown = binary.write_ids(path, ids, dtype)
        num_values = pq.read_metadata(texts).num_rows
        self.unknown_shares[mapping][feature] = unknown / num_values
        if mapping == TRAIN:
            texts.unlink()

    def look_for_unknown(self, vocabularies: Vocabularies) -> None:
        """Notes a warning for each feature with far more values of id 0 than in training; of the
        mappings that have them, the first is named."""
        for feature in self._encoding.categorify:
            shares = {mapping: shares[feature] for mapping, shares in self.unknown_shares.items()}
            trained = shares.pop(TRAIN, self._encoding.trained_unknown.get(feature))
            for mapping, share in shares.items():
                if trained is not None and is_far_above(share, trained):
                    texts = self._text_path(mapping, feature)
                    unknown = vocabularies.most_frequent_unknown(texts, self._table_path(feature))
                    frequent = unknown and (
                        unknown[0],
                        unknown[1] / pq.read_metadata(texts).num_rows,
                    )
                    warning = unknown_warning(feature, mapping, share, trained, frequent)
                    self.warnings.append(warning)
                    break

    def metadata(self) -> dict:
        """Returns what the data set stores of thresholds and warnings, where there are any."""
        parts = {"frequency_threshold": self.thresholds, "warnings": self.warnings}
        return {name: part for name, part in parts.items() if part}

    def _text_path(self, mapping: str, feature: str) -> Path:
        """Returns the file of the texts of a feature."""
        number = self._spec.ids.index(feature)
        return self._scratch / f"{mapping}_{number}.parquet"

    def _table_path(self, feature: str) -> Path:
        """The vocabulary as a table, while texts are looked up."""
        return self._text_path(TRAIN, feature).with_suffix(".vocabulary")
