"""Columns: leaks, bookkeeping, names and amounts, scales, labels, lists."""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tests.preproc.data_checks import tables
from tests.preproc.data_checks.cell import Cell
from tests.preproc.data_checks.expected import Refused, Reported, Right, Write, of_table
from tests.preproc.data_checks.faults.groups import OWN_TABLES, clean, with_column
from tests.preproc.data_checks.faults.values import channel_of, is_in
from tests.preproc.data_checks.places import PLACES, Place
from tests.preproc.data_checks.tables import Table, changed

LABELS = {
    "true_false": ("False", "True"),
    "upper": ("FALSE", "TRUE"),
    "yes_no": ("no", "yes"),
    "y_n": ("N", "Y"),
    "t_f": ("f", "t"),
    "one_two": (1, 2),
    "signs": (-1, 1),
    "decimals": (0.0, 1.0),
}
WORDS = {"clicked": ("not clicked", "clicked"), "on_off": ("off", "on"), "zero_two": (0, 2)}


def _noted(check: str, column: str) -> Reported:
    """Returns the expectation of a column that is left out with a note, and kept with --keep."""
    return Reported(
        check,
        column,
        level="note",
        rule=lambda outcome: not channel_of(outcome, column),
        remedy=(f"--keep={column}",),
    )


def leaks() -> Iterator[Cell]:
    table = tables.clicks()
    labels, prices = table["click"], table["price"]
    members = {
        "copy": ("paid", labels),
        "inverse": ("unpaid", [1 - label for label in labels]),
        "text": ("status", ["won" if label else "lost" for label in labels]),
        "amount": ("revenue", [p if c else 0.0 for c, p in zip(labels, prices, strict=True)]),
        "gaps": ("paid_at", [f"2026-11-{1 + i % 28}" if c else None for i, c in enumerate(labels)]),
    }
    for place in (*OWN_TABLES, "csv_spark"):
        for member, (name, values) in members.items():
            write = of_table(with_column(name, values))
            yield Cell("tells_label", member, place, write, _noted("tells_label", name))


def unique_values() -> Iterator[Cell]:
    hashes = [hashlib.md5(str(i).encode()).hexdigest() for i in range(400)]
    members = {
        "hash": ("row_hash", hashes),
        "order": ("order_id", [f"o-{own[:8]}" for own in hashes]),
        "mail": ("email", [f"{own[:6]}@example.org" for own in hashes]),
        "uuid": ("uuid", [f"{own[:8]}-{own[8:12]}-{own[12:16]}" for own in hashes]),
    }
    for place in (*OWN_TABLES, "csv_spark"):
        for member, (name, values) in members.items():
            write = of_table(with_column(name, values))
            yield Cell("unique_values", member, place, write, _noted("unique_values", name))


def row_numbers() -> Iterator[Cell]:
    shuffled = np.random.default_rng(0).permutation(400).tolist()
    members = {
        "from_0": ("Unnamed: 0", [*range(400)]),
        "from_1": ("number", [*range(1, 401)]),
        "steps": ("position", [*range(1000, 5000, 10)]),
        "shuffled": ("index", shuffled),
    }
    for place in OWN_TABLES:
        for member, (name, values) in members.items():
            write = of_table(with_column(name, values))
            yield Cell("row_numbers", member, place, write, _noted("row_numbers", name))


def names_and_amounts() -> Iterator[Cell]:
    """Whole numbers: the label depends on amounts smoothly, and on names value by value."""
    rng = np.random.default_rng(3)
    num_rows = 2000
    amounts = {
        "age": rng.integers(18, 91, num_rows),
        "income": 100 * rng.gamma(4, 80, num_rows).astype(int),
        "year": rng.integers(1950, 2025, num_rows),
        "visits": rng.poisson(40, num_rows),
    }
    names = {
        "item_id": rng.integers(80, size=num_rows) * 37 + 1000,
        "zip": rng.integers(100, size=num_rows) + 8000,
        "user": rng.integers(120, size=num_rows),
    }
    for name, numbers in {**amounts, **names}.items():
        if name in amounts:
            logits = (numbers - numbers.mean()) / numbers.std()
        else:
            logits = rng.normal(0, 1.5, numbers.max() + 1)[numbers]
        labels = (rng.random(num_rows) < 1 / (1 + np.exp(-logits))).astype(int).tolist()
        table = {name: numbers.tolist(), "city": tables.clicks(2, num_rows)["city"]}
        write = of_table({**table, "click": labels})
        channel = "numerical" if name in amounts else "categorical"
        for place in OWN_TABLES:
            kind = "amounts" if name in amounts else "names"
            yield Cell(kind, name, place, write, is_in(name, channel))


def scales() -> Iterator[Cell]:
    rng = np.random.default_rng(0)
    outlier = changed(tables.clicks(), "price", lambda _: 999999999999.0, 400)
    heavy = with_column("views", (rng.pareto(0.7, 400) * 10).round(1).tolist())
    for place in (*OWN_TABLES, "csv_spark"):
        expected = Reported("chosen_scales", "price", level="note")
        yield Cell("scale", "outlier", place, of_table(outlier), expected)
        expected = Reported("chosen_scales", "views", level="note")
        yield Cell("scale", "heavy_tail", place, of_table(heavy), expected)
    for place in OWN_TABLES:
        for member, value in {"text": "Bern", "number": 7, "fraction": 0.5}.items():
            write = of_table(with_column("shop", [value] * 400))
            yield Cell("constant", member, place, write, _noted("constant_column", "shop"))


def labels() -> Iterator[Cell]:
    for place in (*OWN_TABLES, "csv_spark"):
        for member, spellings in LABELS.items():
            table = changed(clean(place), "click", lambda v, own=spellings: own[v])
            expected = Right(of_table(clean(place)), rows_only=True)
            yield Cell("label_spelling", member, place, of_table(table), expected)
    for place in OWN_TABLES:
        for member, spellings in WORDS.items():
            table = changed(clean(place), "click", lambda v, own=spellings: own[v])
            remedy = (f"--positive={spellings[1]}",)
            expected = Refused(("click", "--positive"), remedy)
            yield Cell("label_words", member, place, of_table(table), expected)
            right = Right(of_table(clean(place)), rows_only=True)
            yield Cell("label_flag", member, place, of_table(table), right, remedy)
        rng = np.random.default_rng(5)
        stars = [int(3 * v + rng.integers(1, 3)) for v in clean(place)["click"]]
        write = of_table({**clean(place), "click": stars})
        remedy = ("--label_above=3",)
        yield Cell("label_words", "stars", place, write, Refused(("--label_above",), remedy))
        right = Right(of_table(clean(place)), rows_only=True)
        yield Cell("label_flag", "stars", place, write, right, remedy)
        for value in (0, 1):
            table = changed(clean(place), "click", lambda _, own=value: own)
            expected = Refused(("click", "all 400 rows"), fixed=of_table(clean(place)))
            yield Cell("one_class", f"all_{value}", place, of_table(table), expected)


def _tags(form: Callable[[list[str]], object]) -> Table:
    rng = np.random.default_rng(4)
    words = np.array(["Drama", "Comedy", "War", "Film-Noir", "Western"])
    sizes = rng.integers(1, 4, 400)
    lists = [sorted(rng.choice(words, size, replace=False).tolist()) for size in sizes]
    return with_column("tags", [form(own) for own in lists])


def lists() -> Iterator[Cell]:
    def equal(place: Place, folder: Path) -> Path:
        return PLACES["parquet"].write(folder, _tags(list))

    members: dict[str, Callable[[list[str]], object]] = {
        "semicolons": list,
        "json": json.dumps,
        "blanks_after": "; ".join,
    }
    for member, form in members.items():
        write: Write = of_table(_tags(form))
        yield Cell("list", member, "csv", write, Right(equal, rows_only=True))
    yield Cell("list", "lists", "jsonl", of_table(_tags(list)), Right(equal, rows_only=True))
    yield Cell("list", "lists", "parquet", of_table(_tags(list)), Right(equal, rows_only=True))


def cells() -> Iterator[Cell]:
    """Yields the cells of all kinds of this module."""
    yield from leaks()
    yield from unique_values()
    yield from row_numbers()
    yield from names_and_amounts()
    yield from scales()
    yield from labels()
    yield from lists()
