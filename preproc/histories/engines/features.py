"""Ids of the features of users and items."""

import ibis
import numpy as np
from ibis.expr import types as ir

from preproc.engines.engine import Engine
from preproc.histories.logs.event_log import FeatureTable


def number_features(
    engine: Engine, kind: str, ids: ir.Table, features: FeatureTable
) -> tuple[tuple[np.ndarray, ...], dict[str, int]]:
    """Returns `NumberedLog.user_features` or those of items, and `NumberedLog.num_missing`.

    Args:
        kind: "user" or "item".
        ids: value and id of users or items.

    Raises:
        ValueError: a user or item has two values of a feature.
    """
    joined = ids.left_join(features.table, ids.value == features.table[kind])
    numbers, missing = [], {}
    for column, title in features.titles.items():
        values = joined.group_by("id").aggregate(
            key=joined.value.min(),
            least=joined[column].min(),
            most=joined[column].max(),
            known=joined[column].count(),
            num=joined.count(),
        )
        values = engine.store_table(values, column)
        _check_single(engine, kind, values, title, features.gaps_count)
        (counts,) = engine.fetch(values.aggregate(gaps=(values.known == 0).sum())).to_pylist()
        missing[title] = int(counts["gaps"])
        rank = ibis.dense_rank().over(order_by=values.least.asc(nulls_first=True))
        ranked = values.select("id", rank=rank).order_by("id")
        ranks = [batch.column("rank").to_numpy() for batch in engine.batches(ranked)]
        numbers.append(np.concatenate([[0], 1 + np.concatenate(ranks)]).astype(np.int32))
    return tuple(numbers), missing


def _check_single(
    engine: Engine, kind: str, values: ir.Table, title: str, gaps_count: bool
) -> None:
    differs = values.least != values.most
    has_gap = values.known.between(1, values.num - 1)
    differs = differs.fill_null(False) | (has_gap if gaps_count else ibis.literal(False))
    for row in engine.fetch(values.filter(differs).order_by("id").limit(1)).to_pylist():
        least = row["least"] if row["known"] == row["num"] else None
        shown = " and ".join("none" if v is None else repr(v) for v in (least, row["most"]))
        raise ValueError(
            f"{kind} {row['key']!r} has two values of {title}: {shown}; a feature of "
            f"{'a user' if kind == 'user' else 'an item'} is the same wherever the {kind} "
            "occurs, so keep one of them"
        )
