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


class LabelFlags(NamedTuple):
    """Values of --positive and --label_above."""

    positive: str | None = None
    above: float | None = None


class LabelValue(NamedTuple):
    """Different value of a label.

    Attributes:
        spelling: most frequent one.
        rows, trained: its rows in all splits and in train.
        place: split and number of its first row.
    """

    spelling: str
    rows: int
    trained: int
    place: tuple[str, int]


class Bounds(NamedTuple):
    """Least, largest and mean number of a label in train; None without numbers."""

    least: float | None = None
    largest: float | None = None
    mean: float | None = None


def fit_label(raw: RawTables, label: Label, flags: LabelFlags) -> Label:
    """Returns a label with the values that are 1 and 0, those of all splits that have it.

    Raises:
        ValueError: the values need a flag, a flag does not fit them, or train has one class.
    """
    tables = {split: own for split, own in raw.tables.items() if label.column in own.columns}
    rows = [row for split in tables for row in _counted(raw.engine, tables[split], split, label)]
    values, absent = _merged(rows, raw.missing)
    train = raw.train_rows if TRAIN in tables else None
    try:
        label = _resolved(label, flags, values, absent)
    except _UnknownValuesError as error:
        (unknown,) = error.args
        where, (*frequent, (_, rare)) = "", values.items()
        if known_meanings({key for key, _ in frequent}) is not None:
            split, row = rare.place
            place = raw.engine.place(raw.tables[split], row, label.column)
            where = f"; {rare.spelling!r:.60} is first in {place}"
        bounds = Bounds() if train is None else _bounds(raw, train, label)
        raise ValueError(f"{_unknown(label, unknown, bounds)}{where}") from None
    values = {**values, **{key: own for key, own in absent.items() if key in label.meanings}}
    if train is not None and values:
        codes = label_number(train[label.column], label, raw.missing)
        sizes = fetch_row(raw.engine, train.agg(ones=codes.sum(), rows=codes.count()))
        if sizes["rows"] and sizes["ones"] in (0, sizes["rows"]):
            spellings = [v.spelling for v in values.values() if v.trained]
            raise _one_class(label, sizes, spellings, _bounds(raw, train, label))
    return label


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


def _bounds(raw: RawTables, train: ir.Table, label: Label) -> Bounds:
    value = number(train[label.column], raw.missing)
    bounds = train.agg(least=value.min(), largest=value.max(), mean=value.mean())
    return Bounds(**fetch_row(raw.engine, bounds))


class _UnknownValuesError(ValueError):
    """Values without a known meaning, its argument."""


def _where(label: Label) -> str:
    return f"column '{label.column}' of labels"


def _merged(
    rows: Sequence[tuple], missing: Sequence[str]
) -> tuple[dict[LabelKey, LabelValue], dict[LabelKey, LabelValue]]:
    """Returns present values, the most frequent one first, and those that are missing spellings."""
    merged: dict[bool, dict[LabelKey, LabelValue]] = {False: {}, True: {}}
    for value, count, trained, place in sorted(rows, key=lambda row: -row[1]):
        key = label_key(value)
        if key is None or key == "":
            continue
        spelling = str(value).lower() if isinstance(value, bool) else str(value).strip()
        if isinstance(value, float):
            spelling = spelling.removesuffix(".0")
        own = merged[spelling in missing]
        first = own.get(key, LabelValue(spelling, 0, 0, place))
        own[key] = first._replace(rows=first.rows + count, trained=first.trained + trained)
    return merged[False], merged[True]


def _resolved(
    label: Label,
    flags: LabelFlags,
    values: Mapping[LabelKey, LabelValue],
    absent: Mapping[LabelKey, LabelValue],
) -> Label:
    if flags.above is not None:
        return dataclasses.replace(label, above=flags.above)
    if flags.positive is not None:
        return _with_positive(label, flags.positive, values, absent)
    all_values = values
    meanings = known_meanings({*values})
    if meanings is None or len(values) < 2:
        all_values = {**values, **absent}
        meanings = known_meanings({*all_values}) or meanings
    if meanings is None and values:
        raise _UnknownValuesError(all_values)
    meanings = meanings or {}  # without values, each row is an error
    spellings: dict[int, str] = {}
    for key in [key for key in all_values if key in meanings]:
        spellings.setdefault(meanings[key], all_values[key].spelling)
    if len(spellings) < 2 or {*all_values} <= {0.0, 1.0}:
        return label
    return dataclasses.replace(label, spellings=(spellings[0], spellings[1]))


def _with_positive(
    label: Label,
    positive: str,
    values: Mapping[LabelKey, LabelValue],
    absent: Mapping[LabelKey, LabelValue],
) -> Label:
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


def _listed(values: Mapping[LabelKey, LabelValue]) -> str:
    first = list(values.values())[:_LISTED]
    listed = ", ".join(f"{value.spelling!r:.60} ({value.rows:,} rows)" for value in first)
    num_more = len(values) - len(first)
    return listed + (f" and {num_more} more" if num_more else "")


def _flag(name: str, value: str) -> str:
    separator = "=" if value.startswith("-") else " "
    return f"--{name}{separator}{shlex.quote(value)}"


def _unknown(label: Label, values: Mapping[LabelKey, LabelValue], bounds: Bounds) -> str:
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


def _threshold(values: Mapping[LabelKey, LabelValue], bounds: Bounds) -> str | None:
    """Returns a number that divides the rows; None unless labels are numbers."""
    if bounds.mean is None or not all(isinstance(key, float) for key in values):
        return None
    return _between(bounds.least, bounds.largest, bounds.mean)


def _between(least: float, largest: float, value: float) -> str:
    return f"{value:g}" if least <= float(f"{value:g}") < largest else repr(value)


def _one_class(
    label: Label, sizes: Mapping[str, float], spellings: Sequence[str], bounds: Bounds
) -> ValueError:
    """Returns the error of a label with one class in train."""
    if label.above is not None:
        return ValueError(
            f"--label_above {label.above:g}: expected a number from the least to below the "
            f"largest label of train, which are {bounds.least:g} and {bounds.largest:g}"
        )
    only = label.conditions[int(sizes["ones"] > 0)]
    only = f"{label.column}={spellings[0]}" if len(spellings) == 1 else only
    return ValueError(
        f"{_where(label)}: expected both classes in train, got {only} in all {sizes['rows']:,} "
        "rows: add rows of the other class (users and items without negatives are interactions: "
        "--user and --item)"
    )
