"""Encodings of Criteo's columns: the label, 13 numbers, 26 categories, and bins of the numbers."""

import math
from collections.abc import Mapping

import pyarrow as pa

from preproc.criteo.raw_lines import NUM_CATEGORICAL, NUM_NUMERICAL
from preproc.encoding.encodings import FeatureEncoding, Label, smallest_dtype
from preproc.encoding.numbers import Bins, Number
from preproc.encoding.vocabulary import Vocabulary

LABEL = "label"
NUMERICALS = tuple(f"num_{i}" for i in range(NUM_NUMERICAL))
CATEGORICALS = tuple(f"cat_{i}" for i in range(NUM_CATEGORICAL))
BINS = tuple(f"bin_{i}" for i in range(NUM_NUMERICAL))  # the numerical features as categorical ones
MISSING_VALUES = ("",)  # `NULL` is a category
_LEAST = -2.0  # log(x + 3) is undefined below: such numbers count as missing
# Bin 1 + floor(2 log(x + 3)) begins at the first integer with that logarithm. Each int64 has one.
_EDGES = tuple(float(math.ceil(math.exp(k / 2)) - 3) for k in range(1, 88))
NUM_BINS = len(_EDGES) + 2


def label_encoding() -> Label:
    """Returns the encoding of labels."""
    return Label(name=LABEL, column=LABEL)


def number_encodings(*, with_bins: bool) -> tuple[FeatureEncoding, ...]:
    """Returns the encodings of numbers: float16(log(x + 3)), and 0 where x is missing or at most
    -2; of bins: 1 + floor(2 log(x + 3)), and 0 where x is missing or below -2."""
    numbers = tuple(
        Number(
            name=name, column=name, dtype="float16", transformation="log", offset=3.0, fill=_LEAST
        )
        for name in NUMERICALS
    )
    bins = tuple(
        Bins(name=name, column=column, edges=_EDGES, least=_LEAST)
        for name, column in zip(BINS, NUMERICALS, strict=True)
    )
    return numbers + (bins if with_bins else ())


def all_encodings(
    num_values: Mapping[str, int], thresholds: Mapping[str, int], *, with_bins: bool
) -> tuple[FeatureEncoding, ...]:
    """Returns the encodings of all features.

    Args:
        num_values: number of values of each categorical column, which the encodings leave out:
            `preproc.encoding.encoder_folder.complete` reads them from files.
        thresholds: occurrences that a value of the column needed.
    """
    vocabularies = tuple(
        Vocabulary(
            name=name,
            column=name,
            values=pa.array([], pa.string()),
            counts=pa.array([], pa.int64()),
            threshold=thresholds[name],
            dtype=smallest_dtype(1 + num_values[name]),
        )
        for name in CATEGORICALS
    )
    return label_encoding(), *number_encodings(with_bins=with_bins), *vocabularies
