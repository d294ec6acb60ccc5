"""Ratings of any engine: rows of files to numbered interactions in order."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from ibis.expr import types as ir

from preproc.checks.equal_times import TiedEvents
from preproc.engines.engine import ROW, Engine
from preproc.events.numbering import NumberedEvents, number
from preproc.events.raw_table import RATING, above_rating, key_value, read_raw
from preproc.events.ties import order_ties
from preproc.interactions.options import InteractionLogOptions
from preproc.interactions.source_files import DAT
from preproc.sources.column_chunk import CSV, SourceChunk
from preproc.sources.part_files import find_log

FIRST_ID = 0
_KEYS = ("user", "item", "time")
_DAT_COLUMNS = ("user", "item", "rating", "time")
_FLAGS = "--user_column, --item_column and --time_column (with --min_rating, also --rating_column)"


def read_ratings(engine: Engine, options: InteractionLogOptions) -> tuple[ir.Table, int, int]:
    """Reads the files of a log: user and item, any text without blanks around it, and time.

    Returns:
        the first rating of each item by a user: its time, and the number of the first row of the
            two; the number of rows; and that of rows below `--min_rating`.

    Raises:
        ValueError: a column is missing, a row is malformed or lacks a user, an item or a time, a
            time is invalid, or all files are empty.
    """
    files = options.source.files
    if options.source.form == DAT:
        names = {name: name for name in (*_KEYS, RATING)}
        layout = {"columns": _DAT_COLUMNS, "header": False, "delimiter": "::", "quoting": False}
        chunks = [SourceChunk(CSV, (str(path.absolute()),), **layout) for path in files]
    else:
        columns = (options.user_column, options.item_column, options.time_column)
        names = dict(zip((*_KEYS, RATING), (*columns, options.rating_column), strict=True))
        chunks = [chunk for path in files for chunk in find_log(path, options.delimiter)]
    if options.min_rating is None:
        del names[RATING]
    ratings = read_raw(engine, chunks, names, _FLAGS, missing=options.missing_values)
    if not ratings.num_rows:
        raise ValueError(f"{', '.join(map(str, files))}: no ratings")
    rows = ratings.rows
    faults = ratings.required(*_KEYS)
    for key in _KEYS[:2]:  # text begins or ends with a space or a control character
        if rows[key].type().is_string():
            faults[key] |= (rows[key] < "!") | (rows[key].right(1) < "!")
    num_bad, integers = ratings.inspect(faults)
    if num_bad:
        raise ratings.bad_row(faults, "Fix the file, or remove the row")
    time = ratings.time_number("time" in integers)
    rows, num_below = above_rating(engine, rows.mutate(time=time), options.min_rating)
    keys = {key: key_value(rows[key], key in integers) for key in _KEYS[:2]}
    typed = rows.select(**keys, time=rows.time, row=rows[ROW])
    firsts = typed.group_by("user", "item").aggregate(time=typed.time.min(), row=typed.row.min())
    return engine.store_table(firsts, "events"), ratings.num_rows, num_below


def number_ratings(
    engine: Engine, options: InteractionLogOptions, folder: Path
) -> tuple[NumberedEvents, dict[str, int], TiedEvents]:
    """Reads a log, leaves out what does not count, and numbers users and items from 0.

    Returns:
        the events, and numbers of kept and dropped rows; a duplicate has the user and item of an
        earlier row; and the ties.

    Raises:
        ValueError: as `read_ratings`, or no user has `--min_ratings` items.
    """
    events, num_rows, num_below = read_ratings(engine, options)
    least = f"--min_ratings {options.min_ratings} items"
    events, ties = order_ties(engine, events, options.seed)
    numbered = number(engine, events, options.min_ratings, FIRST_ID, least, folder)
    num_users, kept = numbered.num_values("user"), int(numbered.num_of_users().sum())
    counts = {
        "users": num_users,
        "items": numbered.num_values("item"),
        "interactions": kept,
        **({} if options.min_rating is None else {"below_min_rating": num_below}),
        "dropped_duplicates": num_rows - num_below - numbered.num_events_before,
        "users_left_out": numbered.num_users_before - num_users,
        "interactions_left_out": numbered.num_events_before - kept,
    }
    return numbered, counts, ties


def without_last(
    interactions: Iterable[tuple[np.ndarray, np.ndarray]],
    num_of_users: np.ndarray,
    last: np.ndarray,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields users and items, [n] each, by user and time, without each user's last interactions.

    Args:
        num_of_users: each user's number of interactions, [users].
        last: receives the items that are left out, int32 [users, count], the last first.
    """
    ends, begin = np.cumsum(num_of_users), 0
    for users, items in interactions:
        from_end = ends[users] - 1 - np.arange(begin, begin + len(users))
        is_held_out = from_end < last.shape[1]
        last[users[is_held_out], from_end[is_held_out]] = items[is_held_out]
        yield users[~is_held_out], items[~is_held_out]
        begin += len(users)
