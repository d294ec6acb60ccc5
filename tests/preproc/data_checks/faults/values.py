"""Values: spellings of missing ones, texts and formats among numbers, infinity."""

from collections.abc import Callable, Iterator

import numpy as np

from preproc.encoding.arrow_columns import MISSING_VALUES
from tests.preproc.data_checks.expected import Cell, Refused, Reported, Right, of_table
from tests.preproc.data_checks.places import LOGS, NEW_ROWS, clean
from tests.preproc.data_checks.tables import Table, changed, taken, with_column

SPELLINGS = MISSING_VALUES[1:]
TEXTS_AMONG_NUMBERS = ("abc", "unknown", "?")
FORMATS: dict[str, Callable[[float], str]] = {
    "thousands": lambda value: f"{100 * value:,.2f}",
    "european": lambda value: f"{value:,.2f}".replace(".", ","),
    "dollars": lambda value: f"${value:.2f}",
    "euros": lambda value: f"{value:.2f} €",
    "percent": lambda value: f"{value:.1f}%",
}
INFINITIES = {"minus": "-inf", "upper": "Infinity", "too_large": "1e999"}


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()


def _name(spelling: str) -> str:
    return {"-": "dash", "\\N": "backslash_n", "N/A": "n_slash_a", "#N/A": "hash_n_slash_a"}.get(
        spelling, spelling
    )


def missing_numbers() -> Iterator[Cell]:
    for place in NEW_ROWS:
        for spelling in SPELLINGS:
            table = changed(clean(place), "price", lambda _, own=spelling: own, 25)
            equal = changed(clean(place), "price", lambda _: None, 25)
            expected = Right(of_table(equal))
            yield Cell("missing_number", _name(spelling), place, of_table(table), expected)


def missing_texts() -> Iterator[Cell]:
    for place in NEW_ROWS:
        for spelling in SPELLINGS:
            table = changed(clean(place), "city", lambda _, own=spelling: own, 25)
            equal = changed(clean(place), "city", lambda _: None, 25)
            expected = Right(of_table(equal))
            yield Cell("missing_text", _name(spelling), place, of_table(table), expected)
    for spelling in SPELLINGS:
        first = clean("histories")["genre"][0]
        table, equal = (
            changed(clean("histories"), "genre", lambda v, own=own, u=first: own if v == u else v)
            for own in (spelling, None)
        )
        expected = Right(of_table(equal))
        yield Cell("missing_text", _name(spelling), "histories", of_table(table), expected)


def missing_users_and_items() -> Iterator[Cell]:
    for place in (*LOGS, "ratings_spark"):
        for column, value in {"user": "u5", "item": "i7"}.items():
            rows = clean(place)
            first = rows[column].index(value)
            rest = taken(rows, [i for i, own in enumerate(rows[column]) if own != value])
            for spelling in SPELLINGS:
                table = changed(rows, column, lambda v, s=spelling, u=value: s if v == u else v)
                others = ",".join(own for own in SPELLINGS if own != spelling)
                expected = Refused(
                    (f"row {first + 1}", column, spelling, "--missing_values"),
                    remedy=(f"--missing_values=={others}",),
                    fixed=of_table(rest),
                )
                kind = f"missing_{column}"
                yield Cell(kind, _name(spelling), place, of_table(table), expected)


def texts_among_numbers() -> Iterator[Cell]:
    for place in NEW_ROWS:
        for i, spelling in enumerate(TEXTS_AMONG_NUMBERS):
            table = changed(clean(place), "price", lambda _, own=spelling: own, 100)
            fixed = of_table(changed(clean(place), "price", lambda _: None, 100))
            expected = Refused(("row 100", "price", repr(spelling)), fixed=fixed)
            yield Cell("text_among_numbers", f"text{i}", place, of_table(table), expected)
    rng = np.random.default_rng(0)
    codes = [f"{rng.integers(100, 300)}.{rng.integers(3)}" for _ in range(400)]
    codes = [f"V{i % 23}" if i % 30 == 0 else own for i, own in enumerate(codes)]
    write = of_table(with_column("diagnosis", codes))
    expected = Reported("mixed_texts", "diagnosis", remedy=("--categorical=diagnosis",))
    yield Cell("mixed_texts", "codes", "csv", write, expected)


def formatted_numbers() -> Iterator[Cell]:
    for place in NEW_ROWS:
        for member, text in FORMATS.items():
            table = changed(clean(place), "price", text)
            first = next(i for i, text in enumerate(table["price"]) if not _is_number(text))
            words = (f"row {first + 1}", "price", repr(table["price"][first]))
            fixed = of_table(clean(place))
            expected = Refused(words, fixed=fixed)
            yield Cell("formatted_number", member, place, of_table(table), expected)


def infinities() -> Iterator[Cell]:
    for place in NEW_ROWS:
        table: Table = changed(clean(place), "price", lambda _: float("inf"), 100)
        fixed = of_table(changed(clean(place), "price", lambda _: None, 100))
        expected = Refused(("row 100", "price", "inf"), fixed=fixed)
        yield Cell("infinity", "plus", place, of_table(table), expected)
        for member, text in INFINITIES.items():
            table = changed(clean(place), "price", lambda _, own=text: own, 100)
            expected = Refused(("row 100", "price", "inf"), fixed=fixed)
            yield Cell("infinity", member, place, of_table(table), expected)


def cells() -> Iterator[Cell]:
    """Yields the cells of all kinds of this module."""
    yield from missing_numbers()
    yield from missing_texts()
    yield from missing_users_and_items()
    yield from texts_among_numbers()
    yield from formatted_numbers()
    yield from infinities()
