"""Values of a label's column: which of them are 1 and 0, by flags or as known pairs."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import ibis
import ibis.expr.types as ir

from dataloading.spec import rules
from dataloading.spec.feature_spec import TRAIN
from preproc.encoding.arrow_columns import LabelKey, label_key
from preproc.encoding.encodings import Label, known_meanings
from preproc.engines.engine import ROW, SPLIT, Engine, fetch_row
from preproc.fitting.expressions import number
from preproc.fitting.label_expression import label_number
from preproc.transcode.raw.raw_tables import RawTables

_MOST = 100  # values that are fetched
_LISTED = 5


class _Value(NamedTuple):
    """Different value of a label: its most frequent spelling, its rows in all splits and in train,
    and split and number of its first row."""

    spelling: str
    rows: int
    trained: int
    place: tuple[str, int]


_Values = Mapping[LabelKey, _Value]


def fit_label(
    raw: RawTables, label: Label, positive: str | None = None, above: float | None = None
) -> Label:
    """Returns a label with the values that are 1 and 0, those of all splits that have it.

    Args:
        positive, above: flags --positive and --label_above.

    Raises:
        ValueError: the values need a flag, a flag does not fit them, or train has one class.
    """
    tables = {split: own for split, own in raw.tables.items() if label.column in own.columns}
    rows = [row for split in tables for row in _counted(raw.engine, tables[split], split, label)]
    values, absent = _merged(rows, raw.missing)
    train = raw.train_rows if TRAIN in tables else None
    if above is not None:
        fitted = dataclasses.replace(label, above=above)
    elif positive is not None:
        fitted = _with_positive(label, positive, values, absent)
    else:
        fitted = _with_known_values(label, values, absent)
    if fitted is None:
        where, (*frequent, (_, rare)) = "", values.items()
        if known_meanings({key for key, _ in frequent}) is not None:
            split, row = rare.place
            place = raw.engine.place(raw.tables[split], row, label.column)
            where = f"; {rare.spelling!r:.60} is first in {place}"
        bounds = {"mean": None} if train is None else _bounds(raw, train, label)
        raise ValueError(f"{_unknown(label, {**values, **absent}, bounds)}{where}")
    values = {**values, **{key: own for key, own in absent.items() if key in fitted.meanings}}
    if train is not None and values:
        counts = train.group_by(value=label.column).agg(n=train.count())
        codes = label_number(counts.value, fitted, raw.missing)
        rows = ibis.ifelse(codes.notnull(), counts.n, 0).sum()
        sizes = fetch_row(raw.engine, counts.agg(ones=(codes * counts.n).sum(), rows=rows))
        if sizes["rows"] and sizes["ones"] in (0, sizes["rows"]):
            spellings = [v.spelling for v in values.values() if v.trained]
            raise _one_class(fitted, sizes, spellings, _bounds(raw, train, label))
    return fitted


def _counted(engine: Engine, table: ir.Table, split: str, label: Label) -> list[tuple]:
    """Returns the most frequent values: value, rows, rows of train, split and first row."""
    value = table[label.column]
    kind = value.type()
    if not (kind.is_string() or kind.is_numeric() or kind.is_boolean()):
        raise ValueError(f"{_where(label)}: expected texts or numbers, got {kind}")
    is_train = table[SPLIT] == 0 if SPLIT in table.columns else ibis.literal(split == TRAIN)
    own = table.select(value=value, trained=is_train.cast("int64"), row=table[ROW])
    counts = own.group_by("value").agg(
        rows=own.count(), in_train=own.trained.sum(), first=own.row.min()
    )
    counts = engine.fetch(counts.order_by([ibis.desc("rows"), "first"]).limit(_MOST + 1))
    return [
        (row["value"], row["rows"], row["in_train"], (split, row["first"]))
        for row in counts.to_pylist()
    ]


def _bounds(raw: RawTables, train: ir.Table, label: Label) -> dict[str, float | None]:
    """Returns the least, largest and mean number of a label in train; None without numbers."""
    value = number(train[label.column], raw.missing)
    bounds = train.agg(least=value.min(), largest=value.max(), mean=value.mean())
    return fetch_row(raw.engine, bounds)


def _where(label: Label) -> str:
    return f"column '{label.column}' of labels"


def _merged(
    rows: Sequence[tuple], missing: Sequence[str]
) -> tuple[dict[LabelKey, _Value], dict[LabelKey, _Value]]:
    """Returns present values, the most frequent one first, and those that are missing spellings."""
    merged: dict[bool, dict[LabelKey, _Value]] = {False: {}, True: {}}
    for value, count, trained, place in sorted(rows, key=lambda row: -row[1]):
        key = label_key(value)
        if key is None or key == "":
            continue
        spelling = str(value).lower() if isinstance(value, bool) else str(value).strip()
        if isinstance(value, float):
            spelling = spelling.removesuffix(".0")
        own = merged[spelling in missing]
        first = own.get(key, _Value(spelling, 0, 0, place))
        own[key] = first._replace(rows=first.rows + count, trained=first.trained + trained)
    return merged[False], merged[True]


def _with_known_values(label: Label, values: _Values, absent: _Values) -> Label | None:
    """Returns a label of known pairs of values; None if they have no meaning together."""
    all_values = values
    meanings = known_meanings({*values})
    if meanings is None or len(values) < 2:
        all_values = {**values, **absent}
        meanings = known_meanings({*all_values}) or meanings
    if meanings is None and values:
        return None
    meanings = meanings or {}  # without values, each row is an error
    spellings: dict[int, str] = {}
    for key in [key for key in all_values if key in meanings]:
        spellings.setdefault(meanings[key], all_values[key].spelling)
    if len(spellings) < 2 or {*all_values} <= {0.0, 1.0}:
        return label
    return dataclasses.replace(label, spellings=(spellings[0], spellings[1]))


def _with_positive(label: Label, positive: str, values: _Values, absent: _Values) -> Label:
    """Returns a label of which one value is 1."""
    key = label_key(positive)
    if key not in values and key not in absent and len(values) <= _MOST:
        spellings = [value.spelling for value in values.values()]
        raise ValueError(
            f"--positive {positive}: expected a value of '{label.column}', which has "
            f"{_listed(values)}" + rules.suggestion(positive, spellings)
        )
    # The only other value is a label even if it is spelled like a missing one.
    rest = {own: value for own, value in values.items() if own != key} or absent
    others = [value.spelling for own, value in rest.items() if own != key]
    if len(others) == 1:
        return dataclasses.replace(label, spellings=(others[0], positive))
    return dataclasses.replace(label, positive=positive)


def _listed(values: _Values) -> str:
    first = list(values.values())[:_LISTED]
    listed = ", ".join(f"{value.spelling!r:.60} ({value.rows:,} rows)" for value in first)
    num_more = len(values) - len(first)
    return listed + (f" and {num_more} more" if num_more else "")


def _flag(name: str, value: str) -> str:
    separator = "=" if value.startswith("-") else " "
    return f"--{name}{separator}{shlex.quote(value)}"


def _unknown(label: Label, values: _Values, bounds: Mapping) -> str:
    """Returns the error of values without a known meaning."""
    expected = "two values such as 0 and 1, no and yes or false and true"
    positive = [_flag("positive", value.spelling) for value in list(values.values())[:2]]
    if len(values) == 1:
        return f"{_where(label)}: expected {expected}, got {_listed(values)} only"
    if len(values) == 2:
        remedy = f"name the one that is 1: {' or '.join(positive)}"
        return f"{_where(label)}: expected {expected}, got {_listed(values)}; {remedy}"
    count = f"more than {_MOST}" if len(values) > _MOST else str(len(values))
    remedy = f"{positive[0]} makes this value 1, and all others 0"
    threshold = _threshold(values, bounds)
    if threshold is not None:
        above = f"{_flag('label_above', threshold)} makes larger numbers 1, and the others 0"
        remedy = f"{above}; {remedy}"
    return (
        f"{_where(label)}: expected {expected}, got {count} values, {_listed(values)}; possible "
        f"solutions: {remedy}"
    )


def _threshold(values: _Values, bounds: Mapping) -> str | None:
    """Returns a number that divides the rows; None unless labels are numbers."""
    if bounds["mean"] is None or not all(isinstance(key, float) for key in values):
        return None
    text = f"{bounds['mean']:g}"
    is_between = bounds["least"] <= float(text) < bounds["largest"]
    return text if is_between else repr(bounds["mean"])


def _one_class(
    label: Label, sizes: Mapping[str, float], spellings: Sequence[str], bounds: Mapping
) -> ValueError:
    """Returns the error of a label with one class in train."""
    if label.above is not None:
        return ValueError(
            f"--label_above {label.above:g}: expected a number from the least to below the "
            f"largest label of train, which are {bounds['least']:g} and {bounds['largest']:g}"
        )
    only = label.conditions[int(sizes["ones"] > 0)]
    only = f"{label.column}={spellings[0]}" if len(spellings) == 1 else only
    return ValueError(
        f"{_where(label)}: expected both classes in train, got {only} in all {sizes['rows']:,} "
        "rows: add rows of the other class (users and items without negatives are interactions: "
        "--user and --item)"
    )
