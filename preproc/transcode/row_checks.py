"""Checks of the rows of a run, of its splits and of its label."""

from dataloading.spec.data_set_files import METADATA
from dataloading.spec.feature_spec import LABEL_CHANNEL, TRAIN, FeatureSpec
from preproc.checks.drift import moved_columns
from preproc.checks.one_class import one_class
from preproc.checks.repeated_rows import repeated_rows
from preproc.checks.report import Check
from preproc.checks.telling_columns import SAMPLE_ROWS, telling_columns
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import Label
from preproc.fitting.infer import IDS, NUMBERS
from preproc.transcode.known import KnownData
from preproc.transcode.raw.spec import RawSpec
from preproc.transcode.raw.split import SplitRequest
from preproc.transcode.raw.tables import RawTables


def check_rows(
    spec: RawSpec, raw: RawTables, request: SplitRequest | None, known: KnownData | None
) -> list[Check]:
    """Returns the checks of raw rows: repetitions, and drift where an earlier data set is known."""
    checks = _repetitions(spec, raw, request)
    if known is not None:
        for table in raw.tables.values():
            checks += moved_columns(raw.engine, table, known.encoder)
    return checks


def check_listed(spec: RawSpec, raw: RawTables) -> list[Check]:
    """Returns which of the columns that a feature spec lists predict the label alone."""
    label = raw.label
    if TRAIN not in raw.tables or label is None or not spec.has(TRAIN, label.name):
        return []
    kinds = {
        name: IDS if name in spec.ids else NUMBERS
        for name in spec.features
        if name != label.name and spec.has(TRAIN, name) and spec.hotness(name) == 1
    }
    facts = (raw.train_sample(SAMPLE_ROWS), kinds, label, raw.missing)
    return [*telling_columns(raw.engine, *facts, is_left_out=False)]


def check_classes(
    written: FeatureSpec, encoder: Encoder, request: SplitRequest | None
) -> list[Check]:
    """Returns which splits of clicks have labels of one class only."""
    own = written.metadata[METADATA]
    divided_by = ""
    if request is not None:
        divided_by = "split" if request.column is None else "split_by_time"
    return [
        check
        for label in encoder.features
        if isinstance(label, Label)
        for check in one_class(own["rows"], own.get("click_rate", {}), label, divided_by)
    ]


def _repetitions(spec: RawSpec, raw: RawTables, request: SplitRequest | None) -> list[Check]:
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
    facts = (columns, label, sum(raw.num_rows.values()), request is not None)
    return [repeated_rows(raw.engine, rows, names, *facts)]
