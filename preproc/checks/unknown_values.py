"""Values without an id in later splits, which are far more frequent than in train."""

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
_SAMPLE_ROWS = 1_000_000
_CANDIDATES = 1000  # most frequent values among which an unknown one is looked for


@dataclass(frozen=True)
class MoreUnknown(Check):
    """Share of id 0 in a split against that in train.

    Attributes:
        feature, column: of the values.
        split: where they are.
        share, trained: shares of id 0 in the split and in train.
        value: what is known about the most frequent one; empty: nothing.
        grows: whether the vocabulary is that of an earlier data set.
    """

    name = "unknown_values"
    why = "training moves the vector of id 0 too little for as many values as there are later"
    feature: str
    column: str
    split: str
    share: float
    trained: float
    value: str = ""
    grows: bool = False

    @property
    def level(self) -> str:
        return WARNING if is_far_above(self.share, self.trained) else PASSED

    @property
    def seen(self) -> str:
        return (
            f"'{self.feature}': {self.share:.2%} of the values of {self.split} have id 0, but only "
            f"{self.trained:.2%} of train{self.value}"
        )

    @property
    def remedy(self) -> str:
        again = "without --vocabulary: " if self.grows else ""
        return (
            f"possible solutions: {again}a larger --frequency_threshold, --hash_buckets "
            f"{self.feature}=N, or --drop {self.column}"
        )

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
    source_of: Mapping[str, str],
    grows: bool,
) -> list[MoreUnknown]:
    """Returns for each vocabulary the first split with far more values of id 0 than train, or else
    the last split.

    Args:
        shares: split -> feature -> share of the values that have id 0.
        source_of: split -> the raw split that its rows are from.
        grows: whether the vocabularies are those of an earlier data set.
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
        checks.append(MoreUnknown(*names, own[split], trained, value, grows))
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
