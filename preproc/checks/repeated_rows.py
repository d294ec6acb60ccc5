"""Rows that are in train and in another split, too."""

from collections.abc import Sequence

import ibis
import ibis.expr.types as ir

from preproc.checks.report import PASSED, WARNING, Finding, Kind
from preproc.engines.engine import SPLIT, Engine, fetch_row

_SMALLEST_SHARE = 0.01
_LEAST_ROWS = 10
# Rows with equal features by chance differ in their labels as often as any two rows. Copies do not.
_LEAST_DIFFERENT, _FACTOR = 5, 10
_SAMPLE_ROWS = 200_000
_SAMPLED_COLUMNS = 2
_KIND = Kind(
    "repeated_rows",
    "a model knows them by heart, so that metrics are better than those of new rows",
)


def most_repeated(
    splits: Sequence[tuple[str, int, int, int, float | None]], is_divided: bool
) -> Finding:
    """Returns whether many rows of a split are equal to rows of train in their columns, for the
    split with the largest share of them.

    Args:
        splits: name, number of rows, of those with such a row, of repeated rows whose label differs
            from that of a row that repeats it, and the last number if labels were drawn; None:
            rows have no label, as interactions.
        is_divided: whether the rows were divided here.
    """
    largest = max(splits, key=lambda own: own[2] / max(own[1], 1))
    split, rows, repeated, different, expected = largest
    what, label = ("interactions", "") if expected is None else ("rows", ", with the same label")
    are_copies = expected is None or (
        expected >= _LEAST_DIFFERENT and different * _FACTOR < expected
    )
    is_frequent = repeated >= max(_LEAST_ROWS, _SMALLEST_SHARE * rows)
    by_time = ", or divide the rows by time: --split_by_time" if is_divided else ""
    return _KIND.finding(
        WARNING if is_frequent and are_copies else PASSED,
        seen=f"{repeated / max(rows, 1):.1%} of the {what} of {split} are in train, too{label}",
        remedy=f"remove repeated {what} from the input{by_time}",
    )


def repeated_rows(
    engine: Engine,
    rows: ir.Table,
    names: Sequence[str],
    columns: Sequence[str],
    label: str | None,
    num_rows: int,
    is_divided: bool,
) -> Finding:
    """Returns how many rows of a split are in train, too: of the split with the largest share.

    Args:
        rows: of all splits; column `SPLIT`: number of the split.
        names: of the splits, train first, and at least one other.
        columns: what makes a row, those of the most different values first.
        label: column of labels; None: rows have none.
        num_rows: an upper bound of the number of all rows; of many, some of the different rows are
            compared.
        is_divided: whether the rows were divided here.
    """
    shares = {} if label is None else _label_shares(engine, rows, label)
    most_frequent = next(iter(shares), None)
    if num_rows > _SAMPLE_ROWS:
        # Equal rows are equal in some of the columns, too, whose hash takes less time.
        some = ibis.struct({name: rows[name] for name in columns[:_SAMPLED_COLUMNS]}).hash()
        rows = rows.filter(some % -(-num_rows // _SAMPLE_ROWS) == 0)
    selected = rows.select(
        key=ibis.struct({name: rows[name] for name in columns}).hash(),
        split=rows[SPLIT],
        is_first=ibis.literal(True) if not shares else rows[label].identical_to(most_frequent),
    )
    groups = selected.group_by("key").aggregate(
        is_mixed=selected.is_first.min() != selected.is_first.max(),
        **{f"n{i}": (selected.split == i).sum() for i in range(len(names))},
    )
    is_known = groups.n0 > 0
    sums = {}
    for i in range(1, len(names)):
        own = groups[f"n{i}"]
        sums[f"rows{i}"] = own.sum()
        sums[f"repeated{i}"] = ibis.ifelse(is_known, own, 0).sum()
        sums[f"different{i}"] = ibis.ifelse(is_known & groups.is_mixed, own, 0).sum()
    row = fetch_row(engine, groups.aggregate(**sums))
    differ = 2 * (first := max(shares.values(), default=0.0)) * (1 - first)
    splits = []
    for i, name in enumerate(names[1:], 1):
        counts = [int(row[f"{key}{i}"] or 0) for key in ("rows", "repeated", "different")]
        splits.append((name, *counts, counts[1] * differ if shares else None))
    return most_repeated(splits, is_divided)


def _label_shares(engine: Engine, rows: ir.Table, label: str) -> dict:
    """Returns the two most frequent labels and their shares of the rows, the first one first."""
    counts = rows.group_by(value=label).aggregate(n=rows.count())
    total = counts.n.sum().over(ibis.window())
    counts = counts.mutate(total=total).order_by([ibis.desc("n"), "value"]).limit(2)
    return {row["value"]: row["n"] / row["total"] for row in engine.fetch(counts).to_pylist()}
