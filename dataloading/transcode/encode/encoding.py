"""Encoding of raw values as ids and numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dataloading.transcode.encode.missing import FillRule
from dataloading.transcode.encode.standardize import StandardizeRule


@dataclass(frozen=True)
class Encoding:
    """Encoding of the features of ids that are not ids yet, and of numerical values.

    categorify: features whose values get ids by falling count in the mapping `train`.
    frequency_threshold: values that occur there less often become `vocabulary.UNKNOWN`; None:
        chosen per feature by `transcode_unknown.automatic_threshold`.
    hash_buckets: feature -> cardinality N; the id is the value's XXH64 modulo N.
    vocabularies: features of `categorify` -> the text file that has their values already.
    trained_unknown: of these -> the share of `UNKNOWN` in the rows that the vocabulary is from.
    fill: what becomes of missing numerical values.
    standardize: the numerical features that are standardized.
    """

    categorify: tuple[str, ...] = ()
    frequency_threshold: int | None = None
    hash_buckets: dict[str, int] = field(default_factory=dict)
    vocabularies: dict[str, Path] = field(default_factory=dict)
    trained_unknown: Mapping[str, float] = field(default_factory=dict)
    fill: FillRule = field(default_factory=FillRule)
    standardize: StandardizeRule = field(default_factory=StandardizeRule)
