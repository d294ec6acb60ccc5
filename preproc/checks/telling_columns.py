"""Columns that reveal the label, or the row: leaks and bookkeeping."""

from collections.abc import Mapping

import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from preproc.checks.report import NOTE, PASSED, WARNING, Finding, Kind
from preproc.encoding.encodings import Label
from preproc.engines.engine import ROW, Engine, fetch_row
from preproc.fitting.expressions import number, text
from preproc.fitting.infer import IDS, NUMBERS, ColumnFacts
from preproc.fitting.label_expression import FOLDS, labelled_columns
from preproc.fitting.whole_numbers import held_out_shares

_TELLING_AUC = 0.995
_LEAST_OF_A_LABEL = 50  # rows; fewer are separated by chance
_LEAST_ROWS = 100
SAMPLE_ROWS = 100_000  # of the AUC
_BINS = 64
_UNIQUE_SHARE = 0.99
_FIRST_ROWS = 1000  # in which row numbers are looked for
_MOST_PER_ROW = 2  # range of a saved index, of which rows may be missing, per row
_INDEX_NAMES = {"index", "idx", "level_0", "__index_level_0__", "row", "row_id", "rowid"}
_INDEX_NAMES |= {"row_number", "row_num", "rownum", "rn"}
_LEAST_CONSTANT = 20  # rows
CONSTANT = Kind("constant_column", "nothing follows from a value that each row has")
_TELLS_LABEL = Kind(
    "tells_label",
    "such a column usually follows from the label and is not known when rows are scored",
)
_UNIQUE = Kind("unique_values", "later rows have other values, about which nothing can be learned")
_DATES = Kind("dates", "later rows have later dates, about which nothing can be learned")
_ROW_NUMBERS = Kind(
    "row_numbers", "a row's number depends on how the file was made, and is new in each later row"
)


def useless_column(
    kind: Kind, column: str, is_useless: bool, seen: str, is_left_out: bool = True
) -> Finding:
    """Returns the check of a column that may be without use for predictions.

    Args:
        is_left_out: whether such a column is left out; otherwise a feature spec lists it.
    """
    level = NOTE if is_left_out else WARNING
    remedy = f"remove '{column}' from the channels of the feature spec"
    if is_left_out:
        remedy = f"it is left out; --keep {column} keeps it"
    return kind.finding(level if is_useless else PASSED, (column,), seen, remedy)


def telling_columns(
    engine: Engine,
    sample: ir.Table,
    kinds: dict[str, str],
    label: Label,
    missing: tuple[str, ...],
    is_left_out: bool = True,
) -> list[Finding]:
    """Returns how well each column alone predicts the label.

    Args:
        sample: training rows, at most about `SAMPLE_ROWS`.
        kinds: column -> `NUMBERS` or `IDS`.
    """
    values = {
        name: (number if kind == NUMBERS else text)(sample[name], missing)
        for name, kind in kinds.items()
    }
    checks = []
    columns = labelled_columns(engine, sample, values, label, missing, 2)
    for name, column, labels, folds in columns:
        if min(labels.sum(), len(labels) - labels.sum()) < _LEAST_OF_A_LABEL:
            return []
        auc = column_auc(column.combine_chunks(), labels, folds)
        seen = f"'{name}' alone predicts the label with an AUC of {auc:.4f}"
        check = useless_column(_TELLS_LABEL, name, auc > _TELLING_AUC, seen, is_left_out)
        checks.append(check)
    return checks


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
            _, own = np.unique(values[present], return_inverse=True)
            ranked = rank_auc(
                np.bincount(own), np.bincount(own[labels[present]], minlength=own.max() + 1)
            )
        if size > _BINS and present.any():
            steps = np.arange(1, _BINS) / _BINS
            edges = np.unique(np.quantile(values[present], steps, method="lower"))
            codes = np.searchsorted(edges, values, side="right")  # NaN: the last bin
            codes, size = np.where(present, codes, len(edges) + 1), len(edges) + 2
    cells = folds * size + codes
    rows = np.bincount(cells, minlength=size * FOLDS).reshape(FOLDS, size)
    clicks = np.bincount(cells[labels], minlength=size * FOLDS).reshape(FOLDS, size)
    shares = np.stack([held_out_shares(rows, clicks, fold) for fold in range(FOLDS)])
    order = np.argsort(shares, axis=None)
    _, places = np.unique(shares.ravel()[order], return_index=True)
    rows, clicks = (np.add.reduceat(each.ravel()[order], places) for each in (rows, clicks))
    return max(rank_auc(rows, clicks), ranked, 1 - ranked)


def rank_auc(rows: np.ndarray, clicks: np.ndarray) -> float:
    """Returns the AUC of scores, whose numbers of rows and of labels that are 1 are passed in the
    order of the scores, [scores] each."""
    others = rows - clicks
    below = np.cumsum(others) - others / 2
    return float((clicks * below).sum() / max(clicks.sum() * others.sum(), 1))


def useless_columns(
    engine: Engine,
    table: ir.Table,
    facts: Mapping[str, ColumnFacts],
    kinds: Mapping[str, str],
    missing: tuple[str, ...],
    num_rows: int,
) -> list[Finding]:
    """Returns which columns of single values have one in all rows, count the rows, or are ids with
    another value in each row; a column is compared until a check fails.

    Args:
        table: all rows.
        facts, kinds: of the columns; kinds are `NUMBERS` or `IDS`.
        num_rows: number of all rows.
    """
    checks = []
    for name, own in facts.items():
        if own.list_form:
            continue
        present, is_unique = own.present, own.distinct >= _UNIQUE_SHARE * own.present
        is_constant = own.distinct == 1 and not own.missing and present >= _LEAST_CONSTANT
        seen = f"'{name}' has one value in all {present:,} rows of train"
        checks.append(useless_column(CONSTANT, name, is_constant, seen))
        if own.is_whole and num_rows >= _LEAST_ROWS and not is_constant:
            folded, fault = name.strip().lower(), ""
            if folded.startswith("unnamed:") or (is_unique and folded in _INDEX_NAMES):
                fault = "has the name of a saved index"
            elif is_unique:
                fault = _counting(engine, table, name, own, missing, num_rows)
            check = useless_column(_ROW_NUMBERS, name, bool(fault), f"'{name}' {fault}")
            checks.append(check)
        if kinds[name] == IDS and checks[-1].level == PASSED:
            seen = f"'{name}' has {own.distinct:,} different values in {present:,} rows of train"
            is_unique = is_unique and present >= _LEAST_ROWS
            checks.append(useless_column(_UNIQUE, name, is_unique, seen))
    return checks


def dates(facts: Mapping[str, ColumnFacts]) -> list[Finding]:
    """Returns the notes of columns of dates, which are left out."""
    return [
        _DATES.finding(
            NOTE,
            (name,),
            f"'{name}' has dates",
            "it is left out; add a column of what repeats, such as the weekday, the hour or the "
            f"age in days, or {'write them as text and ' if own.other_type else ''}keep them as "
            f"ids with --keep {name}",
        )
        for name, own in facts.items()
        if own.are_dates
    ]


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
