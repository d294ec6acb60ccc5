"""Decides whether a column of whole numbers holds ids or amounts.

An id wins where the smoothed mean of the label per value predicts held-out rows better than the
mean per quantile bin; an amount wins where the bins do. Five folds of the training rows.

Columns with at most `FEW_VALUES` different values are ids. Once models read numbers as bins with a
vector each, that limit is the number of bins: up to it, bins per value are ids and amounts at once.
Until then, up to that number of values, a value is compared with it and its two neighbors together,
as bins of one value each would be the ids.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from preproc.encoding.encodings import Label
from preproc.engines.engine import Engine
from preproc.fitting.continuous import sample_of
from preproc.fitting.expressions import number
from preproc.fitting.label_expression import FOLDS, labelled_columns

FEW_VALUES = 20  # up to here every value has rows enough to be a category
_BINS = 64
_PRIOR_ROWS = 20.0
_SURE = 5.0  # standard errors
_ROWS_PER_VALUE = 2
_SAMPLE_ROWS = 1_000_000
# Last words of names of ids, those that need a word before them, and whole names.
_ID_WORDS = {"id", "ids", "uid", "userid", "itemid", "uuid", "guid", "key", "hash", "code", "phone"}
_ID_WORDS |= {"sku", "isbn", "ean", "upc", "asin", "barcode"}
_ID_WORDS |= {"zip", "zipcode", "postcode", "postal"}
_NUMBER_WORDS = {"number", "no", "nr", "nbr"}
_ID_NAMES = {"user", "item", "customer", "product", "store", "shop", "movie", "session", "device"}


class KindChoice(NamedTuple):
    """Kind of a column of whole numbers and the reason, which is empty where it is obvious: what
    decides and, after a colon, why."""

    is_id: bool
    reason: str = ""


def has_id_name(name: str) -> bool:
    """Returns whether a column is called like an id: `user`, `sku`, `..._id`, `order_no`."""
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)] or [name]
    is_numbered = len(words) > 1 and words[-1] in _NUMBER_WORDS
    return words[-1] in _ID_WORDS or is_numbered or name.lower() in _ID_NAMES


def choose(name: str, rows: int, distinct: int, z: float | None) -> KindChoice:
    """Returns the kind of a column.

    Args:
        rows: its rows with a value.
        distinct: number of different values.
        z: advantage of ids over bins in standard errors, see `advantage`; None without a label.
    """
    if distinct <= FEW_VALUES:
        return KindChoice(True)
    named = has_id_name(name)
    if z is not None and z > _SURE and rows >= _ROWS_PER_VALUE * distinct:
        return KindChoice(True, f"by label: ids are better than bins by {z:.0f} standard errors")
    if z is not None and z < -_SURE:
        reason = f"by label: bins are better than ids by {-z:.0f} standard errors"
        return KindChoice(False, reason if named else "")
    if z is None:
        return KindChoice(named, "by name: no label to compare with")
    if z > _SURE:
        return KindChoice(named, "by name: values repeat too rarely to compare")
    return KindChoice(named, f"by name: the label does not decide ({z:.1f} standard errors)")


def measure(
    engine: Engine,
    table: ir.Table,
    columns: Sequence[str],
    label: Label,
    missing: tuple[str, ...],
    num_rows: int,
) -> dict[str, float | None]:
    """Returns the advantage of ids over bins by column, on a million rows; see `advantage`.

    Args:
        table: training rows.
        label: its encoding.
        num_rows: an upper bound of the rows of `table`.
    """
    sample = sample_of(table, num_rows, _SAMPLE_ROWS)
    values = {name: number(sample[name], missing) for name in columns}
    return {
        name: _advantage(column.to_numpy(), labels, folds)
        for name, column, labels, folds in labelled_columns(
            engine, sample, values, label, missing, 1
        )
    }


def _advantage(column: np.ndarray, labels: np.ndarray, folds: np.ndarray) -> float | None:
    """Returns `advantage` of the numbers of rows; NaN is missing."""
    present = ~np.isnan(column)
    # Three times as fast as `np.unique`, which sorts all rows.
    encoded = pa.array(column[present]).dictionary_encode()
    order = np.argsort(encoded.dictionary.to_numpy())
    cells = folds[present] * len(order) + encoded.indices.to_numpy()
    rows, clicks = (
        np.bincount(own, minlength=len(order) * FOLDS).astype(np.int32)
        for own in (cells, cells[labels[present]])
    )
    return advantage(*(counts.reshape(FOLDS, -1)[:, order] for counts in (rows, clicks)))


def advantage(rows: np.ndarray, clicks: np.ndarray) -> float | None:
    """Returns by how many standard errors ids predict held-out labels better than bins.

    Args:
        rows, clicks: [folds, values] in the order of the values, numbers of rows and of labels
            that are 1.

    Returns:
        None if the label does not vary.
    """
    total = rows.sum()
    if not 0 < clicks.sum() < total:
        return None
    binned, binned_clicks, places = _binned(rows, clicks)
    gain, squares = 0.0, 0.0
    for fold in range(len(rows)):
        by_id = _losses(rows, clicks, fold)
        by_bin = _losses(binned, binned_clicks, fold)
        weights = clicks[fold], rows[fold] - clicks[fold]
        for weight, loss, other in zip(weights, by_id, by_bin, strict=True):
            difference = other[places] - loss
            gain += float((weight * difference).sum())
            squares += float((weight * np.square(difference)).sum())
    mean = gain / total
    deviation = np.sqrt(max(squares / total - mean * mean, 0.0))
    return float(mean / (deviation / np.sqrt(total) + 1e-12))


def _binned(rows: np.ndarray, clicks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns both numbers of bins [folds, bins], and the bin of each value."""
    own = rows.sum(axis=0)
    if len(own) <= _BINS:  # a neighbor counts no more than the value itself
        before, after = np.minimum(1, own[:-1] / own[1:]), np.minimum(1, own[1:] / own[:-1])
        windows = []
        for counts in (rows, clicks):
            window = counts.astype(np.float64)
            window[:, 1:] += counts[:, :-1] * after
            window[:, :-1] += counts[:, 1:] * before
            windows.append(window)
        return *windows, np.arange(len(own))
    middle = np.cumsum(own) - own / 2
    bins = np.minimum((middle / own.sum() * _BINS).astype(np.int64), _BINS - 1)
    is_first = np.diff(bins, prepend=-1) > 0  # value of its bin
    firsts, places = np.flatnonzero(is_first), np.cumsum(is_first) - 1
    return *(np.add.reduceat(v, firsts, axis=1) for v in (rows, clicks)), places


def _losses(rows: np.ndarray, clicks: np.ndarray, fold: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the log losses of the labels 1 and 0 in a fold by what the others have, [values]."""
    share = np.clip(held_out_shares(rows, clicks, fold), 1e-9, 1 - 1e-9)
    return -np.log(share), -np.log1p(-share)


def held_out_shares(rows: np.ndarray, clicks: np.ndarray, fold: int) -> np.ndarray:
    """Returns the smoothed share of the label 1 of each value in all folds but one, [values].

    Args:
        rows, clicks: [folds, values], numbers of rows and of labels that are 1.
    """
    trained = rows.sum(axis=0) - rows[fold]
    trained_clicks = clicks.sum(axis=0) - clicks[fold]
    rate = trained_clicks.sum() / max(trained.sum(), 1)
    return (trained_clicks + _PRIOR_ROWS * rate) / (trained + _PRIOR_ROWS)
