"""Values without an id in later splits, which are far more frequent than in train."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import ibis
import pyarrow as pa
import pyarrow.compute as pc

from dataloading.spec.feature_spec import TRAIN
from preproc.checks.report import PASSED, WARNING, Check
from preproc.encoding.encoder import Encoder
from preproc.encoding.vocabulary import Vocabulary
from preproc.engines.engine import ROW, Engine
from preproc.fitting.expressions import text
from preproc.transcode.raw.tables import RawTables
from preproc.transcode.write import SPLIT

_SMALLEST_SHARE = 0.01  # of the values of a feature; a smaller one cannot move a metric much
_FACTOR = 2
_ERRORS = 2  # standard errors that the share must be above that of chance
_SAMPLE_ROWS = 1_000_000
_CANDIDATES = 1000  # most frequent values among which an unknown one is looked for

# Vocabularies: of this data set, of an earlier one, of one that grows, and of a deployed model.
OWN, KNOWN, GROWN, SCORED = "own", "known", "grown", "scored"
_THRESHOLD = "a larger --frequency_threshold, --hash_buckets {0}=N, or --drop {1}"
_REMEDIES = {
    OWN: f"possible solutions: {_THRESHOLD}",
    KNOWN: "compare '{1}' in both files; new values get ids with --grow",
    GROWN: f"possible solutions: without --vocabulary: {_THRESHOLD}",
    SCORED: "compare '{1}' with the training's file; a data set made with preproc.transcode "
    "--grow, and a model trained with it, know new values",
}


@dataclass(frozen=True)
class MoreUnknown(Check):
    """Share of id 0 in a split against that in train.

    Attributes:
        feature, column: of the values.
        split: where they are.
        share, trained: shares of id 0 in the split and in train.
        count: number of values in the split.
        value: what is known about the most frequent one; empty: nothing.
        vocabulary: whose vocabulary it is, one of `OWN`, `KNOWN`, `GROWN` and `SCORED`.
    """

    name = "unknown_values"
    why = "training moves the vector of id 0 too little for as many values as there are later"
    feature: str
    column: str
    split: str
    share: float
    trained: float
    count: int
    value: str = ""
    vocabulary: str = "own"

    @property
    def level(self) -> str:
        error = math.sqrt(self.share * (1 - self.share) / max(self.count, 1))
        return WARNING if is_far_above(self.share - _ERRORS * error, self.trained) else PASSED

    @property
    def seen(self) -> str:
        return (
            f"'{self.feature}': {self.share:.2%} of the values of {self.split} have id 0, but only "
            f"{self.trained:.2%} of train{self.value}"
        )

    @property
    def remedy(self) -> str:
        return _REMEDIES[self.vocabulary].format(self.feature, self.column)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)


def is_far_above(share: float, trained: float) -> bool:
    """Returns whether the share of id 0 is at least 1% and over twice that of training."""
    return share >= _SMALLEST_SHARE and share > _FACTOR * trained


def unknown_values(
    engine: Engine,
    raw: RawTables,
    encoder: Encoder,
    shares: Mapping[str, Mapping[str, float]],
    num_rows: Mapping[str, int],
    source_of: Mapping[str, str],
    vocabulary: str,
) -> list[MoreUnknown]:
    """Returns for each vocabulary the first split with far more values of id 0 than train, or else
    the last split.

    Args:
        shares: split -> feature -> share of the values that have id 0.
        num_rows: split -> number of rows.
        source_of: split -> the raw split that its rows are from.
        vocabulary: see `MoreUnknown`.
    """
    checks = []
    for feature in encoder.features:
        if not isinstance(feature, Vocabulary):
            continue
        own = {split: shares[split][feature.name] for split in shares if shares[split]}
        trained = own.pop(TRAIN, encoder.profile[feature.column].unknown or 0.0)
        if not own:
            continue
        split = next((s for s, share in own.items() if is_far_above(share, trained)), [*own][-1])
        value = ""
        if is_far_above(own[split], trained):
            number = [*shares].index(split)
            value = _most_frequent(engine, raw, feature, number, source_of[split])
        names = (feature.name, feature.column, split)
        count = num_rows[split] * feature.hotness
        checks.append(MoreUnknown(*names, own[split], trained, count, value, vocabulary))
    return checks


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
