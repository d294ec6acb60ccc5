"""Events with raw values -> ids, in this process or on a cluster."""

from pathlib import Path

import pyarrow.parquet as pq
from ibis.expr import types as ir

from preproc.amazon_books.engines.features import number_features
from preproc.amazon_books.engines.interface import NumberedLog
from preproc.amazon_books.logs.event_log import EventLog
from preproc.amazon_books.options import AmazonOptions
from preproc.arguments import no_user_left
from preproc.checks.joins import joined_table
from preproc.engines.engine import Engine
from preproc.events.numbering import number, read_ids, write_batches
from preproc.events.ties import order_ties

FIRST_ID = 1


def number_log(options: AmazonOptions, engine: Engine, log: EventLog, folder: Path) -> NumberedLog:
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
    if options.engine == "nvtabular":
        vocabularies, num_users_before = _by_nvtabular(options, engine, ordered, events)
    else:
        numbered = number(engine, ordered, options.min_events, FIRST_ID, least, folder)
        vocabularies, num_users_before = numbered.vocabularies, numbered.num_users_before
        with open(events, "wb") as file:
            for _, items in numbered.pairs():
                items.tofile(file)
    ids, missing, checks = {"user": (), "item": ()}, {}, [ties.finding()]
    for kind, features in log.features.items():
        values = read_ids(engine, vocabularies[kind], FIRST_ID)
        if features.source:
            checks.append(joined_table(engine, kind, values, features.table, features.source))
        ids[kind], gaps = number_features(engine, kind, values, features)
        missing |= gaps
    counts = pq.read_table(vocabularies["user"], columns=["count"])["count"]
    return NumberedLog(
        events=events,
        num_events=counts.to_numpy(),
        user_features=ids["user"],
        item_features=ids["item"],
        num_items=pq.read_metadata(vocabularies["item"]).num_rows,
        num_users_before=num_users_before,
        checks=tuple(checks),
        num_missing=missing,
        vocabularies=vocabularies,
    )


def _by_nvtabular(
    options: AmazonOptions, engine: Engine, ordered: ir.Table, target: Path
) -> tuple[dict[str, Path], int]:
    from preproc.amazon_books.engines.nvtabular_engine import AmazonNVTabularEngine

    folder = target.parent
    events = folder / "events.parquet"
    write_batches(engine.batches(ordered), events)
    with AmazonNVTabularEngine(options, folder) as nvtabular:
        result = nvtabular.number([events], options.min_events, target)
    events.unlink()
    return result
