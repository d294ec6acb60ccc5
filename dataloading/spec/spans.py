"""Places of features in the samples of their chunks."""

from collections.abc import Sequence
from typing import NamedTuple

from dataloading.spec.feature_spec import Chunk, FeatureSpec


class Span(NamedTuple):
    """The values `begin` to `end - 1` of each sample of a chunk, and the feature of each value."""

    chunk: int
    begin: int
    end: int
    features: tuple[str, ...]


def spans_of(spec: FeatureSpec, chunks: Sequence[Chunk]) -> dict[str, Span]:
    """Returns the values of each feature of these chunks; reads no file."""
    spans = {}
    for number, chunk in enumerate(chunks):
        begin = 0
        for feature in chunk.features:
            end = begin + spec.hotness(feature)
            spans[feature] = Span(number, begin, end, (feature,) * (end - begin))
            begin = end
    return spans
