"""Checks of the rows of a run, of its splits and of its label."""

from collections.abc import Mapping

import ibis
import numpy as np
import pyarrow.compute as pc

from dataloading.spec.data_set_files import METADATA
from dataloading.spec.feature_spec import LABEL_CHANNEL, TRAIN, FeatureSpec
from preproc.checks.one_class import one_class, sorted_by_label
from preproc.checks.repeated_rows import repeated_rows
from preproc.checks.report import Finding
from preproc.checks.telling_columns import SAMPLE_ROWS, telling_columns
from preproc.checks.unknown_values import is_far_above, unknown_share
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import Label
from preproc.encoding.vocabulary import Vocabulary
from preproc.engines.engine import ROW, SPLIT
from preproc.fitting.expressions import text
from preproc.fitting.infer import IDS, NUMBERS
from preproc.transcode.raw.raw_tables import RawTables
from preproc.transcode.raw.spec import RawSpec
from preproc.transcode.raw.split import SplitRequest

_SAMPLE_ROWS = 1_000_000
_CANDIDATES = 1000  # most frequent values; the first without an id of them is shown


def check_listed(spec: RawSpec, raw: RawTables) -> list[Finding]:
    """Returns which of the columns that a feature spec lists predict the label alone."""
    label = raw.label
    if TRAIN not in raw.tables or label is None or not spec.has(TRAIN, label.name):
        return []
    kinds = {
        name: IDS if name in spec.ids else NUMBERS
        for name in spec.features
        if name != label.name and spec.has(TRAIN, name) and spec.hotness(name) == 1
    }
    sample = raw.train_sample(SAMPLE_ROWS)
    return telling_columns(raw.engine, sample, kinds, label, raw.missing, is_left_out=False)


def check_classes(
    written: FeatureSpec, encoder: Encoder, request: SplitRequest | None
) -> list[Finding]:
    """Returns which splits of clicks have labels of one class only, and whether rows that are not
    divided are sorted by label."""
    own = written.metadata[METADATA]
    divided_by = ""
    if request is not None:
        divided_by = "split" if request.column is None else "split_by_time"
    label = next((f for f in encoder.features if isinstance(f, Label)), None)
    rates = own.get("click_rate")
    if label is None or not rates:
        return []
    checks = one_class(own["rows"], rates, label, divided_by)
    if [*written.source_spec] == [TRAIN]:
        (chunk,) = (c for c in written.source_spec[TRAIN] if label.name in c.features)
        dtype, files = written.dtype(label.name), chunk.files
        parts = [np.fromfile(written.base_directory / file, dtype) for file in files]
        checks.append(sorted_by_label(np.concatenate(parts), label))
    return checks


def repetitions(spec: RawSpec, raw: RawTables, request: SplitRequest | None) -> list[Finding]:
    """Returns whether rows of train are in other splits; lists of candidates repeat pairs."""
    label = next(iter(spec.channels[LABEL_CHANNEL]), None)
    names = [*(spec.sources if request is None else request.shares)]
    names.sort(key=lambda name: name != TRAIN)  # train first
    in_all = set.intersection(*(set(table.columns) for table in raw.tables.values()))
    if TRAIN not in raw.tables or len(names) < 2 or (spec.is_interactions and label):
        return []
    columns = spec.pair or [n for n in spec.features if n in in_all and n != label]
    if not columns or (label is not None and label not in in_all):
        return []
    columns = sorted(columns, key=raw.num_distinct, reverse=True)
    rows = raw.numbered([*columns, *filter(None, [label])])
    num_rows, is_divided = sum(raw.num_rows.values()), request is not None
    return [repeated_rows(raw.engine, rows, names, columns, label, num_rows, is_divided)]


def unknown_values(
    raw: RawTables,
    encoder: Encoder,
    shares: Mapping[str, Mapping[str, float]],
    num_rows: Mapping[str, int],
    source_of: Mapping[str, str],
    vocabulary: str,
) -> list[Finding]:
    """Returns for each vocabulary the first split with far more values of id 0 than train, or else
    the last split.

    Args:
        shares: split -> feature -> share of the values that have id 0.
        num_rows: split -> number of rows.
        source_of: split -> the raw split that its rows are from.
        vocabulary: see `unknown_share`.
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
            value = _most_frequent(raw, feature, number, source_of[split])
        names = (feature.name, feature.column, split)
        count = num_rows[split] * feature.hotness
        checks.append(unknown_share(*names, own[split], trained, count, vocabulary, value))
    return checks


def _most_frequent(raw: RawTables, feature: Vocabulary, number: int, source: str) -> str:
    if feature.hotness > 1:
        return ""
    table = raw.tables[source]
    if SPLIT in table.columns:
        table = table.filter(table[SPLIT] == number)
    table = table.filter(table[ROW] % -(-raw.num_rows[source] // _SAMPLE_ROWS) == 0)
    rows = table.select(value=text(table[feature.column], raw.missing, feature.is_integer))
    counts = rows.group_by("value").agg(n=rows.count())
    top = raw.engine.fetch(counts.order_by([ibis.desc("n"), "value"]).limit(_CANDIDATES))
    unknown = pc.invert(pc.is_in(top["value"], value_set=feature.values))
    for value in top.filter(unknown)["value"].to_pylist():
        if value is None:
            return "; all of them are missing"
        return f"; the most frequent value without an id is {value!r:.60}"
    return ""
