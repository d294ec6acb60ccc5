"""Warnings about features with far more unknown values than in train."""

from collections.abc import Mapping

import ibis
import pyarrow as pa
import pyarrow.compute as pc

from dataloading.spec.feature_spec import TRAIN
from preproc.encoding.encoder import Encoder
from preproc.encoding.vocabulary import Vocabulary
from preproc.engines.engine import ROW, Engine
from preproc.fitting.expressions import text
from preproc.transcode.raw.tables import RawTables
from preproc.transcode.write import SPLIT

_SMALLEST_SHARE = 0.01  # of the values of a feature; a smaller one cannot move a metric much
_FACTOR = 2
_SAMPLE_ROWS = 1_000_000
_CANDIDATES = 1000  # most frequent values among which an unknown one is looked for


def is_far_above(share: float, trained: float) -> bool:
    """Returns whether the share of id 0 is at least 1% and over twice that of training."""
    return share >= _SMALLEST_SHARE and share > _FACTOR * trained


def warnings(
    engine: Engine,
    raw: RawTables,
    encoder: Encoder,
    shares: Mapping[str, Mapping[str, float]],
    source_of: Mapping[str, str],
) -> list[str]:
    """Returns a warning for each feature with far more values of id 0 than in training, which
    names the first such split.

    Args:
        shares: split -> feature -> share of the values that have id 0.
        source_of: split -> the raw split that its rows are from.
    """
    texts = []
    for feature in encoder.features:
        if not isinstance(feature, Vocabulary):
            continue
        own = {split: shares[split][feature.name] for split in shares if shares[split]}
        trained = own.pop(TRAIN, encoder.profile[feature.column].unknown or 0.0)
        for split, share in own.items():
            if is_far_above(share, trained):
                value = _most_frequent(
                    engine, raw, feature, [*shares].index(split), source_of[split]
                )
                texts.append(
                    f"'{feature.name}': {share:.2%} of the values of {split} have id 0, but only "
                    f"{trained:.2%} of train, which trains the vector of id 0{value}"
                )
                break
    return texts


def _most_frequent(
    engine: Engine, raw: RawTables, feature: Vocabulary, number: int, source: str
) -> str:
    if feature.hotness > 1:
        return ""
    table = raw.tables[source]
    if SPLIT in table.columns:
        table = table.filter(table[SPLIT] == number)
    table = table.filter(table[ROW] % -(-raw.num_rows[source] // _SAMPLE_ROWS) == 0)
    rows = table.select(value=text(table[feature.column], raw.missing, feature.is_integer))
    counts = rows.group_by("value").agg(n=rows.count())
    top = engine.fetch(counts.order_by([ibis.desc("n"), "value"]).limit(_CANDIDATES))
    unknown = pc.is_null(pc.index_in(top["value"], value_set=pa.array(feature.values)))
    for value in top.filter(unknown)["value"].to_pylist():
        if value is None:
            return "; all of them are missing"
        return f"; the most frequent value without an id is {value!r:.60}"
    return ""
