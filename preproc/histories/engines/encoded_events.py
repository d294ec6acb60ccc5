"""Events with raw values -> ids, in this process or on a cluster."""

import tempfile
from pathlib import Path

import ibis
import numpy as np
import pyarrow.parquet as pq
from ibis.expr import types as ir

from preproc.arguments import no_user_left
from preproc.checks.joins import joined_table
from preproc.engines.engine import Engine
from preproc.events.numbering import (
    NumberedEvents,
    number,
    read_ids,
    vocabulary_files,
    write_batches,
)
from preproc.events.ties import TIE_ORDER, order_ties
from preproc.histories.logs.event_log import EventLog, FeatureTable
from preproc.histories.options import HistoryOptions
from preproc.histories.samples import NumberedLog
from preproc.sources.column_chunk import PARQUET, SourceChunk

FIRST_ID = 1


def number_log(options: HistoryOptions, engine: Engine, log: EventLog, folder: Path) -> NumberedLog:
    """Leaves out users with fewer than `--min_events` events, and gives ids to the others.

    Args:
        folder: for the file of events.

    Raises:
        ValueError: no user is left, or a user or item has two values of a feature.
    """
    events, least = folder / "events.bin", f"--min_events {options.min_events} events"
    if not log.num_events:
        raise no_user_left(least, 0)
    ordered, ties = order_ties(engine, log.events, options.seed)
    with tempfile.TemporaryDirectory(dir=folder) as work, open(events, "wb") as file:
        if options.engine == "nvtabular":
            numbered = _by_nvtabular(options, engine, ordered, folder, Path(work))
        else:
            numbered = number(engine, ordered, options.min_events, FIRST_ID, least, folder)
        for _, items in numbered.pairs():
            items.tofile(file)
    ids, missing, checks = {"user": (), "item": ()}, {}, [ties.finding()]
    for kind, features in log.features.items():
        values = read_ids(engine, numbered.vocabularies[kind], FIRST_ID)
        if features.source:
            checks.append(joined_table(engine, kind, values, features.table, features.source))
        ids[kind], gaps = _number_features(engine, kind, values, features)
        missing |= gaps
    return NumberedLog(
        events=events,
        num_events=numbered.num_of_users(),
        user_features=ids["user"],
        item_features=ids["item"],
        num_items=numbered.num_values("item"),
        num_users_before=numbered.num_users_before,
        checks=tuple(checks),
        num_missing=missing,
        vocabularies=numbered.vocabularies,
    )


def _by_nvtabular(
    options: HistoryOptions, engine: Engine, ordered: ir.Table, folder: Path, work: Path
) -> NumberedEvents:
    """Returns what `number` does; work: folder for files that its events are read from."""
    from preproc.histories.engines import nvtabular_engine

    events, vocabularies = work / "events.parquet", vocabulary_files(folder)
    write_batches(engine.batches(ordered), events)
    with nvtabular_engine.AmazonNVTabularEngine(options, work) as nvtabular:
        num_users = nvtabular.number(events, options.min_events, vocabularies, "ids")
    files = [str(path) for path in sorted((work / "ids").glob("*.parquet"))]
    table = engine.read([SourceChunk(PARQUET, tuple(files))])
    ids = {
        kind: (table[kind] + (FIRST_ID - nvtabular_engine.FIRST_ID)).cast("int32")
        for kind in vocabularies
    }
    numbered = table.select("time", TIE_ORDER, **ids).order_by("user", "time", TIE_ORDER)
    num_events = pq.read_metadata(events).num_rows
    return NumberedEvents(engine, numbered, vocabularies, num_users, num_events)


def _number_features(
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
