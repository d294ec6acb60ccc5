"""Columns that reveal the label, or the row: leaks and bookkeeping."""

from dataclasses import dataclass

import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from preproc.checks.report import NOTE, PASSED, WARNING, Check
from preproc.encoding.encodings import Label
from preproc.engines.engine import ROW, Engine, fetch_row
from preproc.fitting.expressions import hashed, number, text
from preproc.fitting.infer import IDS, NUMBERS, ColumnFacts
from preproc.fitting.labels import label_number
from preproc.fitting.whole_numbers import held_out_shares

_TELLING_AUC = 0.995
_LEAST_OF_A_LABEL = 50  # rows; fewer are separated by chance
_LEAST_ROWS = 100
SAMPLE_ROWS = 100_000  # of the AUC
_FOLDS = 5
_BINS = 64
_COLUMNS = 8  # fetched at a time
_UNIQUE_SHARE = 0.99
_FIRST_ROWS = 1000  # in which row numbers are looked for
_MOST_PER_ROW = 2  # range of a saved index, of which rows may be missing, per row
_INDEX_NAMES = {"index", "idx", "level_0", "__index_level_0__", "row", "row_id", "rowid"}
_INDEX_NAMES |= {"row_number", "row_num", "rownum", "rn"}


@dataclass(frozen=True)
class LeftOutColumn(Check):
    """A column without use for predictions.

    Attributes:
        column: its name.
        is_left_out: whether it is left out; otherwise a feature spec lists it.
    """

    column: str
    is_left_out: bool = True

    @property
    def level(self) -> str:
        return NOTE if self.is_left_out else WARNING

    @property
    def remedy(self) -> str:
        if self.is_left_out:
            return f"it is left out; --keep {self.column} keeps it"
        return f"remove '{self.column}' from the channels of the feature spec"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)


@dataclass(frozen=True)
class TellsLabel(LeftOutColumn):
    """A column from which the label can be read.

    Attributes:
        auc: of the label by this column alone, on held-out rows of train.
    """

    name = "tells_label"
    why = "such a column usually follows from the label and is not known when rows are scored"
    auc: float = 0.5

    @property
    def level(self) -> str:
        return super().level if self.auc > _TELLING_AUC else PASSED

    @property
    def seen(self) -> str:
        return f"'{self.column}' alone predicts the label with an AUC of {self.auc:.4f}"


@dataclass(frozen=True)
class UniqueValues(LeftOutColumn):
    """A column of ids with another value in each row.

    Attributes:
        present, distinct: numbers of values.
    """

    name = "unique_values"
    why = "later rows have other values, about which nothing can be learned"
    present: int = 0
    distinct: int = 0

    @property
    def level(self) -> str:
        is_unique = self.present >= _LEAST_ROWS and self.distinct >= _UNIQUE_SHARE * self.present
        return super().level if is_unique else PASSED

    @property
    def seen(self) -> str:
        return (
            f"'{self.column}' has {self.distinct:,} different values in {self.present:,} rows of "
            "train"
        )


@dataclass(frozen=True)
class RowNumbers(LeftOutColumn):
    """A column that counts the rows.

    Attributes:
        fault: why it is taken for row numbers; empty: it is not.
    """

    name = "row_numbers"
    why = "a row's number depends on how the file was made, and is new in each later row"
    fault: str = ""

    @property
    def level(self) -> str:
        return super().level if self.fault else PASSED

    @property
    def seen(self) -> str:
        return f"'{self.column}' {self.fault}"


def telling_columns(
    engine: Engine,
    sample: ir.Table,
    kinds: dict[str, str],
    label: Label,
    missing: tuple[str, ...],
    is_left_out: bool = True,
) -> list[TellsLabel]:
    """Returns how well each column alone predicts the label.

    Args:
        sample: training rows, at most about `SAMPLE_ROWS`.
        kinds: column -> `NUMBERS` or `IDS`.
    """
    fold = (hashed(sample[ROW], 2) % _FOLDS).cast("int8")
    names, checks = [*kinds], []
    for start in range(0, len(names), _COLUMNS):
        own = names[start : start + _COLUMNS]
        values = {f"c{i}": _value(sample[n], kinds[n], missing) for i, n in enumerate(own)}
        selected = sample.select(
            label=label_number(sample[label.column], label, missing), fold=fold, **values
        )
        # Without its rows that have no label: a condition of the query would cost more.
        fetched = engine.fetch(selected)
        fetched = fetched.filter(fetched["label"].is_valid())
        labels = fetched["label"].to_numpy().astype(bool)
        if min(labels.sum(), len(labels) - labels.sum()) < _LEAST_OF_A_LABEL:
            return []
        folds = fetched["fold"].to_numpy().astype(np.int64)
        for i, name in enumerate(own):
            auc = column_auc(fetched[f"c{i}"].combine_chunks(), labels, folds)
            checks.append(TellsLabel(name, is_left_out, auc))
    return checks


def _value(column: ir.Value, kind: str, missing: tuple[str, ...]) -> ir.Value:
    return number(column, missing) if kind == NUMBERS else text(column, missing)


def column_auc(column: pa.Array, labels: np.ndarray, folds: np.ndarray) -> float:
    """Returns the AUC of the label by a column alone, [n] each: the mean label per value, or per
    quantile bin of numbers, in the other folds; missing values are a value of their own."""
    encoded = column.dictionary_encode(null_encoding="encode")
    codes, size = encoded.indices.to_numpy(), len(encoded.dictionary)
    ranked = 0.5
    if pa.types.is_floating(column.type):
        values = column.to_numpy(zero_copy_only=False)
        present = ~np.isnan(values)
        if present.mean() > _UNIQUE_SHARE:
            ranked = rank_auc(*_counts(values[present], labels[present]))
        if size > _BINS and present.any():
            steps = np.arange(1, _BINS) / _BINS
            edges = np.unique(np.quantile(values[present], steps, method="lower"))
            codes = np.searchsorted(edges, values, side="right")  # NaN: the last bin
            codes, size = np.where(present, codes, len(edges) + 1), len(edges) + 2
    cells = folds * size + codes
    rows = np.bincount(cells, minlength=size * _FOLDS).reshape(_FOLDS, size)
    clicks = np.bincount(cells[labels], minlength=size * _FOLDS).reshape(_FOLDS, size)
    shares = np.stack([held_out_shares(rows, clicks, fold) for fold in range(_FOLDS)])
    order = np.argsort(shares, axis=None)
    _, places = np.unique(shares.ravel()[order], return_index=True)
    rows, clicks = (np.add.reduceat(each.ravel()[order], places) for each in (rows, clicks))
    return max(rank_auc(rows, clicks), ranked, 1 - ranked)


def _counts(values: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the numbers of rows and of labels that are 1 of each value, in their order."""
    _, codes = np.unique(values, return_inverse=True)
    return np.bincount(codes), np.bincount(codes[labels], minlength=codes.max() + 1)


def rank_auc(rows: np.ndarray, clicks: np.ndarray) -> float:
    """Returns the AUC of scores, whose numbers of rows and of labels that are 1 are passed in the
    order of the scores, [scores] each."""
    others = rows - clicks
    below = np.cumsum(others) - others / 2
    return float((clicks * below).sum() / max(clicks.sum() * others.sum(), 1))


def unique_columns(facts: dict[str, ColumnFacts], kinds: dict[str, str]) -> list[UniqueValues]:
    """Returns how many of the values of each column of ids are different."""
    return [
        UniqueValues(name, present=facts[name].present, distinct=facts[name].distinct)
        for name, kind in kinds.items()
        if kind == IDS and not facts[name].list_form
    ]


def row_numbers(
    engine: Engine,
    table: ir.Table,
    facts: dict[str, ColumnFacts],
    missing: tuple[str, ...],
    num_rows: int,
) -> list[RowNumbers]:
    """Returns which columns of whole numbers count the rows.

    Args:
        table: all rows.
        facts: of the columns.
        num_rows: number of all rows.
    """
    checks = []
    for name, own in facts.items():
        if not own.is_whole or own.list_form or num_rows < _LEAST_ROWS:
            continue
        is_unique = own.distinct >= _UNIQUE_SHARE * own.present
        folded, fault = name.strip().lower(), ""
        if folded.startswith("unnamed:") or (is_unique and folded in _INDEX_NAMES):
            fault = "has the name of a saved index"
        elif is_unique:
            fault = _counting(engine, table, name, own, missing, num_rows)
        checks.append(RowNumbers(name, fault=fault))
    return checks


def _counting(
    engine: Engine,
    table: ir.Table,
    name: str,
    facts: ColumnFacts,
    missing: tuple[str, ...],
    num_rows: int,
) -> str:
    """Returns how unique whole numbers count the rows; empty if they do not."""
    numbers = table.select(ROW, x=number(table[name], missing))
    first = engine.fetch(numbers.order_by(ROW).limit(_FIRST_ROWS)).sort_by(ROW)
    steps = np.diff(first["x"].to_numpy())
    if steps[0] and np.mean(steps == steps[0]) > _UNIQUE_SHARE:
        return f"grows by {steps[0]:g} with each row"
    ends = fetch_row(engine, numbers.aggregate(least=numbers.x.min(), most=numbers.x.max()))
    span = ends["most"] - ends["least"] + 1
    if facts.missing or span > _MOST_PER_ROW * num_rows:
        return ""
    return f"has another whole number in each row, from a range of {span:,.0f}"
