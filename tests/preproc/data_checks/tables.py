"""Small clean tables and their files, into which faults are put."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Table = dict[str, list[Any]]  # column -> values: text, number, list or None
CITIES = ("Bern", "Oslo", "Rome", "Lima", "Quito")


def clicks(seed: int = 0, num_rows: int = 400) -> Table:
    """Clicks that depend on city and price, and slightly on the user."""
    rng = np.random.default_rng(seed)
    users = rng.integers(40, size=num_rows)
    cities = rng.choice(CITIES, num_rows, p=(0.3, 0.25, 0.2, 0.15, 0.1))
    prices = rng.gamma(4, 5, num_rows).round(2)
    odds = (cities == "Oslo") - 0.8 * (cities == "Bern") + (prices - 20) / 20 + (users % 3 - 1) / 4
    return {
        "user": [f"u{user}" for user in users],
        "city": cities.tolist(),
        "price": prices.tolist(),
        "click": (rng.random(num_rows) < 1 / (1 + np.exp(-odds))).astype(int).tolist(),
    }


def events(num_users: int = 30, per_user: int = 12) -> Table:
    """Events of users with 40 items of four genres, no user with an item twice."""
    rng = np.random.default_rng(1)
    items = [rng.choice(40, per_user, replace=False) for _ in range(num_users)]
    rows = [(u, int(i), 100 * u + k) for u in range(num_users) for k, i in enumerate(items[u])]
    return {
        "user": [f"u{user}" for user, _, _ in rows],
        "item": [f"i{item}" for _, item, _ in rows],
        "time": [time for _, _, time in rows],
        "genre": [f"g{item % 4}" for _, item, _ in rows],
    }


def criteo(seed: int = 0, num_rows: int = 300) -> Table:
    """A log in Criteo's form: label, 13 numbers and 26 texts."""
    rng = np.random.default_rng(seed)
    table: Table = {"label": rng.integers(2, size=num_rows).tolist()}
    for i in range(13):
        numbers = rng.geometric(0.02, num_rows).tolist()
        table[f"num_{i}"] = [None if rng.random() < 0.05 else number for number in numbers]
    for i in range(26):
        table[f"cat_{i}"] = [f"{i:02x}{value:06x}" for value in rng.integers(8, size=num_rows)]
    return table


def num_rows(table: Table) -> int:
    return len(next(iter(table.values())))


def changed(table: Table, column: str, change: Callable[[Any], Any], every: int = 1) -> Table:
    """Returns a table with a changed column: each value, or that of each N-th row from N - 1."""
    values = [change(v) if i % every == every - 1 else v for i, v in enumerate(table[column])]
    return {**table, column: values}


def taken(table: Table, rows: list[int]) -> Table:
    return {name: [values[row] for row in rows] for name, values in table.items()}


def _texts(values: list[Any]) -> list[str]:
    return [
        "" if v is None else ";".join(map(str, v)) if isinstance(v, list) else str(v)
        for v in values
    ]


def write_csv(path: Path, table: Table, delimiter: str = ",", header: bool = True) -> Path:
    """Writes a table as text: missing values are empty, lists have `;` between their values."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerows([[*table]] * header)
        writer.writerows(zip(*map(_texts, table.values()), strict=True))
    return path


def with_column(name: str, values: list) -> Table:
    """Returns clicks with one more column, before the label."""
    table = clicks(num_rows=len(values))
    label = table.pop("click")
    return {**table, name: values, "click": label}
