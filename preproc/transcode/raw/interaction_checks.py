"""Checks of raw interactions: each has a user and an item; candidate lists are whole, of one user,
with one label of 1."""

import ibis
import ibis.expr.types as ir

from dataloading.interactions.candidate_rules import candidate_list_length, list_length_key
from dataloading.spec.feature_spec import ITEM_CHANNEL, LABEL_CHANNEL, USER_CHANNEL
from preproc.arguments import spelled_missing
from preproc.encoding.encodings import Label
from preproc.engines.engine import ROW, Engine
from preproc.fitting.expressions import text, without_missing
from preproc.fitting.label_expression import label_number
from preproc.transcode.raw.spec import RawSpec


def check_interactions(
    engine: Engine, spec: RawSpec, split: str, table: ir.Table, missing: tuple[str, ...]
) -> None:
    """Checks the rows of a split of interactions.

    No user and no item is missing. Where the metadata have the rows per candidate list, these are
    neighbours, of one user, and one of them has the label 1. Elsewhere there is no label, or it is
    one of `train`.

    Raises:
        ValueError: a rule is broken, or the metadata are wrong.
    """
    _check_ids(engine, spec, table, missing)
    labels = [name for name in spec.channels[LABEL_CHANNEL] if spec.has(split, name)]
    length = candidate_list_length(split, spec.metadata, bool(labels), spec.origin)
    if length is None or not labels:  # `train`, where a row of label 0 is a stored negative
        return
    (user,) = spec.channels[USER_CHANNEL]
    label = Label(name=labels[0], column=labels[0])
    key = f"'{list_length_key(split)}' in the metadata"
    rows = table.select(
        list_number=table[ROW] // length,
        user=text(table[user], missing),
        label=label_number(table[labels[0]], label, missing),
    )
    lists = rows.group_by("list_number").agg(
        rows=rows.count(),
        users=rows.user.nunique() + (rows.user.count() < rows.count()).cast("int64"),
        positives=ibis.ifelse(rows.label == 1, 1, 0).sum(),
    )
    broken = lists.filter((lists.users > 1) | (lists.positives != 1) | (lists.rows < length))
    first = engine.fetch(broken.order_by("list_number").limit(1)).to_pylist()
    if not first:
        return
    (fault,) = first
    if fault["rows"] < length:
        raise ValueError(
            f"{spec.origin}: split '{split}': its last candidate list has {fault['rows']} rows, "
            f"and {key} is {length}; expected whole candidate lists"
        )
    place = engine.place(table, (fault["list_number"] + 1) * length - 1)
    what = f"{place}: the candidate list of {length} rows that ends there"
    if fault["users"] > 1:
        raise ValueError(
            f"{what} is of several users in '{user}'. Put the rows in order, or correct {key}"
        )
    raise ValueError(
        f"{what} has not exactly one label of 1 in '{labels[0]}'. Correct it, or {key}"
    )


def _check_ids(engine: Engine, spec: RawSpec, table: ir.Table, missing: tuple[str, ...]) -> None:
    """Raises the error of the first row without a user or an item, which all would share id 0."""
    names = [name for channel in (USER_CHANNEL, ITEM_CHANNEL) for name in spec.channels[channel]]
    faults = []
    for name in names:
        value = table[name]
        if value.type().is_string():
            value = without_missing(value, missing)
        is_missing = value.isnull()
        if value.type().is_floating():
            is_missing |= value.isnan()
        first = table.filter(is_missing).select(ROW, value=table[name]).order_by(ROW).limit(1)
        faults += [(row[ROW], name, row["value"]) for row in engine.fetch(first).to_pylist()]
    if not faults:
        return
    row, name, stored = min(faults, key=lambda fault: fault[0])
    spelling = spelled_missing(stored if isinstance(stored, str) else None, missing)
    raise ValueError(
        f"{engine.place(table, row, name)}: '{name}' is missing{spelling}; possible solutions: "
        "leave such rows out, or write an id that they share"
    )
