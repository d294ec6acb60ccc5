"""Rows that are in train and in another split, too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ibis
import ibis.expr.types as ir

from preproc.checks.report import PASSED, WARNING, Check
from preproc.engines.engine import Engine, fetch_row

_SMALLEST_SHARE = 0.01
_LEAST_ROWS = 10
# Rows with equal features by chance differ in their labels as often as any two rows. Copies do not.
_LEAST_DIFFERENT, _FACTOR = 5, 10
_SAMPLE_ROWS = 1_000_000


@dataclass(frozen=True)
class RepeatedRows(Check):
    """Rows of a split whose columns are equal to those of a row of train.

    Attributes:
        split: where they are.
        rows, repeated: number of rows of the split, and of those with such a row; of a sample.
        different: number of repeated rows whose label differs from that of a row that repeats it.
        expected: that number if labels were drawn; None: rows have no label.
        what: what is repeated.
        is_divided: whether the rows were divided here.
    """

    name = "repeated_rows"
    why = "a model knows them by heart, so that metrics are better than those of new rows"
    split: str
    rows: int
    repeated: int
    different: int = 0
    expected: float | None = None
    what: str = "rows"
    is_divided: bool = True

    @property
    def level(self) -> str:
        if self.repeated < max(_LEAST_ROWS, _SMALLEST_SHARE * self.rows):
            return PASSED
        if self.expected is None:
            return WARNING
        are_copies = self.expected >= _LEAST_DIFFERENT and (
            self.different * _FACTOR < self.expected
        )
        return WARNING if are_copies else PASSED

    @property
    def seen(self) -> str:
        label = "" if self.expected is None else ", with the same label"
        share = self.repeated / max(self.rows, 1)
        return f"{share:.1%} of the {self.what} of {self.split} are in train, too{label}"

    @property
    def remedy(self) -> str:
        by_time = ", or divide the rows by time: --split_by_time" if self.is_divided else ""
        return f"remove repeated {self.what} from the input{by_time}"


def repeated_rows(
    engine: Engine,
    splits: Mapping[str, ir.Table],
    columns: Sequence[str],
    label: str | None,
    num_rows: int,
    is_divided: bool,
) -> RepeatedRows:
    """Returns how many rows of a split are in train, too: of the split with the largest share.

    Args:
        splits: split -> its rows, train first, and at least one other.
        columns: what makes a row.
        label: column of labels; None: rows have none.
        num_rows: an upper bound of the number of all rows; of many, some of the different rows are
            compared.
        is_divided: whether the rows were divided here.
    """
    names = [*splits]
    parts = [
        table.select(
            key=ibis.struct({name: table[name] for name in columns}).hash(),
            split=ibis.literal(number, "int8"),
            label=ibis.null("string") if label is None else table[label].cast("string"),
        )
        for number, table in enumerate(splits.values())
    ]
    rows = ibis.union(*parts) if len(parts) > 1 else parts[0]
    if num_rows > _SAMPLE_ROWS:
        rows = rows.filter(rows.key % -(-num_rows // _SAMPLE_ROWS) == 0)
    groups = rows.group_by("key").aggregate(
        is_mixed=(rows.label.min() != rows.label.max()).fill_null(False),
        **{f"n{i}": (rows.split == i).sum() for i in range(len(names))},
    )
    is_known = groups.n0 > 0
    sums = {}
    for i in range(1, len(names)):
        own = groups[f"n{i}"]
        sums[f"rows{i}"] = own.sum()
        sums[f"repeated{i}"] = ibis.ifelse(is_known, own, 0).sum()
        sums[f"different{i}"] = ibis.ifelse(is_known & groups.is_mixed, own, 0).sum()
    row = fetch_row(engine, groups.aggregate(**sums))
    differs = None if label is None else _share_of_different(engine, splits[names[0]], label)
    checks = []
    for i, name in enumerate(names[1:], 1):
        count, repeated, different = (
            int(row[f"{key}{i}"] or 0) for key in ("rows", "repeated", "different")
        )
        expected = None if differs is None else repeated * differs
        what = "rows" if label is not None else "interactions"
        checks.append(RepeatedRows(name, count, repeated, different, expected, what, is_divided))
    return max(checks, key=lambda check: check.repeated / max(check.rows, 1))


def _share_of_different(engine: Engine, table: ir.Table, label: str) -> float:
    """Returns the share of the pairs of any two rows whose labels differ."""
    counts = table.group_by(label).aggregate(n=table.count())
    sums = counts.aggregate(n=counts.n.sum(), squares=(counts.n.cast("float64") ** 2).sum())
    row = fetch_row(engine, sums)
    return 1 - (row["squares"] or 0) / max(row["n"] or 1, 1) ** 2
