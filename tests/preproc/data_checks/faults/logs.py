"""Criteo's logs, whose columns have fixed places and types."""

from collections.abc import Iterator

import numpy as np

from tests.preproc.data_checks import tables
from tests.preproc.data_checks.expected import Cell, Refused, Reported, of_table
from tests.preproc.data_checks.tables import changed, num_rows, taken

LOGS = ("criteo", "criteo_encode_only")


def values() -> Iterator[Cell]:
    """Numbers of a log are integers or empty, and labels 0 or 1."""
    for place in LOGS:
        for member, text in {"missing": "NULL", "decimal": "2.5"}.items():
            table = changed(tables.criteo(), "num_0", lambda _, own=text: own, 100)
            fixed = of_table(changed(tables.criteo(), "num_0", lambda _: None, 100))
            words = ("line 100", repr(text), "--on_bad_line skip")
            expected = Refused(words, ("--on_bad_line=skip",), fixed)
            yield Cell("number_of_log", member, place, of_table(table), expected)
        for member, text in {"two": 2, "null": "NULL"}.items():
            table = changed(tables.criteo(), "label", lambda _, own=text: own, 100)
            expected = Refused(("line 100", "label", repr(str(text))), ("--on_bad_line=skip",))
            yield Cell("label_of_log", member, place, of_table(table), expected)


def checks() -> Iterator[Cell]:
    log = tables.criteo()
    constant = {
        "text": ("cat_3", changed(log, "cat_3", lambda _: "00abcdef")),
        "number": ("num_5", changed(log, "num_5", lambda _: 7)),
    }
    for member, (column, table) in constant.items():
        expected = Reported("constant_column", column)
        yield Cell("constant", member, "criteo", of_table(table), expected)
    order = np.random.default_rng(0).permutation([*range(num_rows(log) // 2)] * 2).tolist()
    expected = Reported("repeated_rows")
    yield Cell("repeated_rows", "twice", "criteo", of_table(taken(log, order)), expected)
    table = changed(log, "label", lambda _: 0)
    yield Cell("one_class", "all_0", "criteo", of_table(table), Reported("one_class"))


def new_rows() -> Iterator[Cell]:
    log = tables.criteo(1)
    moved = {
        "units": ("num_3", changed(log, "num_3", lambda v: v and 100 * v)),
        "missing": ("num_4", changed(log, "num_4", lambda _: None)),
    }
    for member, (column, table) in moved.items():
        expected = Reported("drift", column)
        yield Cell("drift", member, "criteo_encode_only", of_table(table), expected)
    unknown = {
        "exchanged": {**log, "cat_1": log["cat_2"], "cat_2": log["cat_1"]},
        "missing": changed(log, "cat_2", lambda _: None),
    }
    for member, table in unknown.items():
        expected = Reported("unknown_values", "cat_2")
        yield Cell("unknown_values", member, "criteo_encode_only", of_table(table), expected)


def cells() -> Iterator[Cell]:
    yield from values()
    yield from checks()
    yield from new_rows()
