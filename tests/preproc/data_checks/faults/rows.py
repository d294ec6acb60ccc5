"""Rows: ties in time, repetitions, joins, and new rows that differ from those of training."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tests.preproc.data_checks import tables
from tests.preproc.data_checks.expected import (
    Cell,
    Expected,
    Reads,
    Refused,
    Reported,
    Right,
    Write,
    of_table,
)
from tests.preproc.data_checks.places import NEW_ROWS, Outcome, Place, clean
from tests.preproc.data_checks.tables import Table, changed, taken

SPLIT = "--split=0.6,0.2,0.2"


def _days(table: Table) -> Table:
    times = [100 * (row // 12) + row % 12 // 4 for row in range(360)]
    return {**table, "time": times}


def _sorted_ties() -> Table:
    table = _days(tables.events())
    rows = range(len(table["time"]))
    return taken(table, sorted(rows, key=lambda row: (table["time"][row], table["item"][row])))


def ties() -> Iterator[Cell]:
    in_log = tables.events()
    for place in ("ratings", "histories", "ratings_spark", "histories_spark"):
        expected: Expected = Right(of_table(in_log), "tied_events")
        yield Cell("ties", "order_of_log", place, of_table(_days(in_log)), expected)
        expected = Reported("tied_events", level="note")
        yield Cell("ties_by_item", "ascending", place, of_table(_sorted_ties()), expected)


def _has_separate_pairs(outcome: Outcome) -> bool:
    pairs = []
    for split in ("train", "validation", "test"):
        columns = (np.fromfile(outcome.folder / f"{split}/{n}.bin", "i1") for n in ("user", "item"))
        pairs.append({*zip(*map(np.ndarray.tolist, columns), strict=True)})
    return not (pairs[0] & pairs[1] or pairs[0] & pairs[2] or pairs[1] & pairs[2])


def repetitions() -> Iterator[Cell]:
    members = {"some": [*range(330), *range(70)], "twice": [*range(200)] * 2}
    for member, order in members.items():
        order = np.random.default_rng(0).permutation(order).tolist()
        write = of_table(taken(clean("csv"), order))
        expected: Expected = Reported("repeated_rows")
        yield Cell("repeated_rows", member, "csv", write, expected, (SPLIT,))
    for place in ("interactions", "interactions_spark"):
        write = of_table(taken(clean(place), [row // 2 for row in range(720)]))
        expected = Reads(_has_separate_pairs)
        yield Cell("repeated_pairs", "twice", place, write, expected, (SPLIT,))
    for place in ("ratings", "ratings_spark"):
        later = changed(tables.events(), "time", lambda time: time + 50)
        again = {name: [*values, *later[name]] for name, values in tables.events().items()}
        expected = Right(of_table(tables.events()), rows_only=True)
        yield Cell("repeated_pairs", "later", place, of_table(again), expected)


def _with_items(change: Callable[[str], str], num_items: int = 40) -> Write:
    """Returns the function that writes a table of items next to the input."""

    def write(place: Place, folder: Path) -> Path:
        table = {
            "item": [change(f"i{item}") for item in range(num_items)],
            "kind": [f"k{item % 3}" for item in range(num_items)],
        }
        tables.write_csv(folder.parent / "items.csv", table)
        return place.write(folder, tables.events())

    return write


def joins() -> Iterator[Cell]:
    flags = ("--items={folder}/items.csv", "--item_features=kind")
    expected: Expected = Refused(("items.", "'i"), fixed=_with_items(str))
    yield Cell("join", "upper", "histories", _with_items(str.upper), expected, flags)
    expected = Reported("joined_tables")
    yield Cell("join", "some", "histories", _with_items(str, 15), expected, flags)


def drift() -> Iterator[Cell]:
    rows = tables.clicks(1)
    moved: dict[str, tuple[str, Table]] = {
        "cents": ("price", changed(rows, "price", lambda value: round(100 * value))),
        "far": ("price", changed(rows, "price", lambda _: 99_999.0, 30)),
        "no_price": ("price", changed(rows, "price", lambda _: None)),
        "half_city": ("city", changed(rows, "city", lambda _: None, 2)),
    }
    for place in (*NEW_ROWS, "vocabulary_spark"):
        for member, (column, table) in moved.items():
            kind = "drift_far" if member == "far" else "drift"
            kind = "drift_missing" if member in ("no_price", "half_city") else kind
            yield Cell(kind, member, place, of_table(table), Reported("drift", column))
    unknown = {
        "exchanged": {**rows, "user": rows["city"], "city": rows["user"]},
        "upper": changed(rows, "city", str.upper),
    }
    for member, table in unknown.items():
        column = "city" if member == "upper" else "user"
        for place in ("vocabulary", "predict"):
            expected: Expected = Reported("unknown_values", column)
            yield Cell("unknown_values", member, place, of_table(table), expected)
        remedy = ("--allow_mostly_new",)
        expected = Refused(("--grow", f"'{column}'", *remedy), remedy)
        yield Cell("unknown_values", member, "grow", of_table(table), expected)


def cells() -> Iterator[Cell]:
    yield from ties()
    yield from repetitions()
    yield from joins()
    yield from drift()
