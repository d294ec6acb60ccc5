"""Raw orders of a shop with all kinds of columns, and models that are trained on them."""

import csv
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dcnv2
import dlrm
from preproc.transcode import __main__ as transcode
from tests.deployment.trained import BOTTOM, DCNV2, DLRM, TrainedFixture, train

# All optional parts of a ranking model.
PARTS = ("--numerical_embedding=bins", "--wide", "--dropout_rate=0.1")
RECIPES = {"dlrm": (dlrm, (*DLRM, BOTTOM)), "dcnv2": (dcnv2, (*DCNV2, *PARTS))}
# Vocabularies of texts, of whole numbers and of booleans, hash buckets, bins, and numbers.
ENCODING = (
    *("--label=bought", "--split=0.8,0.2,0", "--frequency_threshold=2", "--missing_indicator"),
    *("--hash_buckets=user=16", "--numerical=stock,age", "--transform=auto,price=log,age=bins"),
)
# Texts that look like numbers, of which three differ only in their zeros.
SHELVES = ("7", "07", "007", "1e3", "10")

# Orders by hand: missing, rare and unknown values, lists of any length, extreme numbers.
ORDERS = [
    ("Bern", "007", "u1", ["new", "sale"], True, 3, 20, 9.5, 31),
    ("Oslo", "07", "u2", ["red"], False, 1, 0, 0.0, 18),
    ("Paris", "7", "u3", [], True, 5, 499, 1e6, 90),
    ("Zürich", "1e3", "ü", ["sale", "new", "red"], False, 2, 7, -3.25, 0),
    ("Lima", "0007", "nobody", ["old", "red"], True, 99, 100_000, 12.125, 250),
    (None, None, None, None, False, 4, None, None, None),
    ("Oslo", "10.0", "1.50", ["red", "red"], True, 1, 2, 3.5, None),
    ("NA", "10", "u1", ["new"], False, 2, None, 5e-324, 44),
]
COLUMNS = ("city", "shelf", "user", "tags", "member", "quantity", "stock", "price", "age")
TYPES = pa.schema(
    {
        **dict.fromkeys(("city", "shelf", "user"), pa.string()),
        "tags": pa.list_(pa.string()),
        "member": pa.bool_(),
        "quantity": pa.int64(),
        "stock": pa.int64(),
        "price": pa.float64(),
        "age": pa.int32(),
        "bought": pa.int8(),
    }
)

Order = dict[str, Any]


class RawModel(NamedTuple):
    """A trained model and raw rows that it did not see.

    trained: the trained model; `data` is the data set of the training.
    rows: the rows, in files `rows.csv`, `rows.jsonl` and `rows.parquet` of `folder`.
    expected: their scores by the training's `--mode predict` of the prepared rows, float32 [rows].
    """

    trained: TrainedFixture
    folder: Path
    rows: list[Order]
    expected: np.ndarray


def orders(num_rows: int, seed: int, cities=("Bern", "Oslo", "Paris", "Zürich")) -> list[Order]:
    """Generates orders whose label depends on the columns."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(num_rows):
        row = {
            "city": str(rng.choice(cities)) if rng.random() > 0.05 else None,
            "shelf": str(rng.choice(SHELVES)),
            "user": f"u{rng.integers(0, 40)}",
            "tags": [str(tag) for tag in rng.choice(["new", "sale", "red"], rng.integers(0, 3))],
            "member": bool(rng.integers(0, 2)),
            "quantity": int(rng.integers(1, 6)),
            "stock": int(rng.integers(0, 500)),
            "price": round(rng.gamma(2, 10), 2) if rng.random() > 0.1 else None,
            "age": int(rng.integers(18, 90)) if rng.random() > 0.1 else None,
        }
        odds = (row["city"] == "Oslo") + (row["shelf"] == "007") * 2 - row["member"] * 1.5
        odds += ("red" in row["tags"]) - (row["stock"] > 250) + (row["quantity"] > 3) - 0.5
        rows.append(row | {"bought": int(rng.random() < 1 / (1 + np.exp(-odds)))})
    return rows


def write_csv(path: Path, rows: list[Order]) -> Path:
    """Writes rows as the shop exports them: lists with `;`, missing values as empty fields."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({name: _text(value) for name, value in row.items()} for row in rows)
    return path


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ";".join(value)
    return "" if value is None else str(value)


def encode(source: Path, output: Path, *flags: str) -> Path:
    """Encodes a table; returns the data set."""
    command_line = [f"--input={source}", f"--output={output}", *flags]
    assert transcode.main(command_line) == 0
    return output


def trained(name: str, folder: Path) -> RawModel:
    """Trains a recipe, or `RECIPE_grown`, in an empty folder."""
    recipe, _, is_grown = name.partition("_")
    first = train_raw(recipe, folder)
    if not is_grown:
        return first
    (folder / "grown").mkdir()
    return train_grown(recipe, folder / "grown", first)


def train_raw(recipe: str, folder: Path) -> RawModel:
    """Trains a recipe on 600 orders."""
    module, flags = RECIPES[recipe]
    data = encode(write_csv(folder / "days.csv", orders(600, seed=0)), folder / "data", *ENCODING)
    return _with_rows(train(module, folder, flags, data), folder, orders(64, seed=1))


def train_grown(recipe: str, folder: Path, first: RawModel) -> RawModel:
    """Resumes the training on a day with new cities, which are then in the vocabulary."""
    module, flags = RECIPES[recipe]
    days = first.trained.data
    day = write_csv(folder / "day.csv", orders(200, 2, cities=("Bern", "Lima", "Quito")))
    grow = (f"--vocabulary={days}", "--grow", "--split=0.8,0.2,0", "--allow_mostly_new")
    data = encode(day, folder / "data", *grow)
    trained = train(module, folder, (*flags, f"--resume={first.trained.checkpoint}"), data)
    return _with_rows(trained, folder, orders(64, 3, cities=("Oslo", "Lima", "Quito", "Ulm")))


def _with_rows(trained: TrainedFixture, folder: Path, generated: list[Order]) -> RawModel:
    """Adds rows: those by hand among generated ones, without labels."""
    by_hand = [dict(zip(COLUMNS, order, strict=True)) for order in ORDERS]
    others = [{name: row[name] for name in COLUMNS} for row in generated]
    rows = [*others[:30], *by_hand, *others[30:]]
    source = write_files(folder, rows) / "rows.csv"
    prepared = encode(source, folder / "prepared", f"--vocabulary={trained.data}")
    expected = trained._replace(data=prepared).scores(folder)
    return RawModel(trained, folder, rows, expected)


def write_files(folder: Path, rows: list[Order]) -> Path:
    """Writes rows as `RawModel.folder` has them; returns the folder."""
    write_csv(folder / "rows.csv", rows)
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    pq.write_table(table(rows), folder / "rows.parquet")
    return folder


def table(rows: list[Order]) -> pa.Table:
    """Returns rows in the types of a database."""
    fields = [TYPES.field(name) for name in rows[0] if name in TYPES.names]
    return pa.Table.from_pylist(rows, pa.schema(fields) if fields else None)


def columns(rows: list[Order]) -> dict[str, list[Any]]:
    """Returns rows as a mapping of columns."""
    return {name: [row[name] for row in rows] for name in rows[0]}
