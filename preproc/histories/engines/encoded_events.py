"""Events with raw values -> ids, in this process or on a cluster."""

import tempfile
from pathlib import Path

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
from preproc.histories.engines.features import number_features
from preproc.histories.engines.numbered_events import NumberedLog
from preproc.histories.logs.event_log import EventLog
from preproc.histories.options import HistoryOptions
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
        ids[kind], gaps = number_features(engine, kind, values, features)
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
