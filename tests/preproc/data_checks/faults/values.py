"""Values: spellings of missing ones, texts and formats among numbers, infinity."""

from collections.abc import Iterator

import numpy as np

from preproc.encoding.arrow_columns import MISSING_VALUES
from tests.preproc.data_checks.expected import Cell, Refused, Reported, Right, of_table
from tests.preproc.data_checks.places import LOGS, NEW_ROWS, clean
from tests.preproc.data_checks.tables import changed, taken, with_column

SPELLING = "NULL"


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()


def missing_values() -> Iterator[Cell]:
    for place in NEW_ROWS:
        for column in ("price", "city"):
            table, equal = (
                changed(clean(place), column, lambda _, own=own: own, 25)
                for own in (SPELLING, None)
            )
            expected = Right(of_table(equal))
            yield Cell(f"missing_{column}", "null", place, of_table(table), expected)
    first = clean("histories")["genre"][0]
    table, equal = (
        changed(clean("histories"), "genre", lambda v, own=own: own if v == first else v)
        for own in (SPELLING, None)
    )
    yield Cell("missing_genre", "null", "histories", of_table(table), Right(of_table(equal)))


def missing_users_and_items() -> Iterator[Cell]:
    for place in (*LOGS, "ratings_spark"):
        for column, value in {"user": "u5", "item": "i7"}.items():
            rows = clean(place)
            first = rows[column].index(value)
            rest = taken(rows, [i for i, own in enumerate(rows[column]) if own != value])
            table = changed(rows, column, lambda v, u=value: SPELLING if v == u else v)
            others = ",".join(own for own in MISSING_VALUES[1:] if own != SPELLING)
            expected = Refused(
                (f"row {first + 1}", column, SPELLING, "--missing_values"),
                remedy=(f"--missing_values=={others}",),
                fixed=of_table(rest),
            )
            yield Cell(f"missing_{column}", "null", place, of_table(table), expected)


def texts_among_numbers() -> Iterator[Cell]:
    for place in NEW_ROWS:
        fixed = of_table(changed(clean(place), "price", lambda _: None, 100))
        for member, value in {"text": "?", "infinity": float("inf")}.items():
            table = changed(clean(place), "price", lambda _, own=value: own, 100)
            words = ("row 100", "price", repr(value).strip("'"))
            expected = Refused(words, fixed=fixed)
            yield Cell(f"{member}_among_numbers", member, place, of_table(table), expected)
    rng = np.random.default_rng(0)
    codes = [f"{rng.integers(100, 300)}.{rng.integers(3)}" for _ in range(400)]
    codes = [f"V{i % 23}" if i % 30 == 0 else own for i, own in enumerate(codes)]
    write = of_table(with_column("diagnosis", codes))
    expected = Reported("mixed_texts", "diagnosis", remedy=("--categorical=diagnosis",))
    yield Cell("mixed_texts", "codes", "csv", write, expected)


def dates() -> Iterator[Cell]:
    for member, end in {"days": "", "times": " 12:30:00"}.items():
        days = [f"2024-01-{1 + i % 28:02}{end}" for i in range(400)]
        expected = Reported("dates", "day", "note", remedy=("--keep=day",))
        yield Cell("dates", member, "csv", of_table(with_column("day", days)), expected)


def formatted_numbers() -> Iterator[Cell]:
    for place in NEW_ROWS:
        table = changed(clean(place), "price", lambda value: f"{100 * value:,.2f}")
        first = next(i for i, text in enumerate(table["price"]) if not _is_number(text))
        words = (f"row {first + 1}", "price", repr(table["price"][first]))
        expected = Refused(words, fixed=of_table(clean(place)))
        yield Cell("formatted_number", "thousands", place, of_table(table), expected)


def cells() -> Iterator[Cell]:
    yield from missing_values()
    yield from missing_users_and_items()
    yield from texts_among_numbers()
    yield from dates()
    yield from formatted_numbers()
