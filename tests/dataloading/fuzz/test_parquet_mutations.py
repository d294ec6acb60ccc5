"""Broken Parquet files, and texts that become ids: refused, or read as Python reads them."""

import collections
import math
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import strategies as st

from preproc.transcode import __main__ as transcode
from tests.dataloading.fuzz.test_mutations import loaded, sweep

pytestmark = pytest.mark.long

SPEC = {
    "feature_spec": {
        "click": {},
        "price": {},
        "user": {"cardinality": "auto"},
        "tags": {"hotness": 2, "cardinality": 50},
        "city": {},
    },
    "source_spec": {
        "train": [
            {"type": "parquet", "features": ["click", "user", "tags"], "files": ["a.parquet"]},
            {"type": "parquet", "features": ["city", "price"], "files": ["b.parquet"]},
        ]
    },
    "channel_spec": {
        "label": ["click"],
        "numerical": ["price"],
        "categorical": ["user", "tags", "city"],
    },
}
# Each column: its type in the file, and its values. pandas stores integers with holes as doubles.
COLUMNS = {
    "click": (pa.int8(), [1, 0, 0, 1, 1]),
    "user": (pa.float64(), [3, 700, 0, 3, 12]),
    "tags": (pa.list_(pa.int32()), [[1, 2], [0, 49], [7, 7], [3, 3], [1, 0]]),
    "city": (pa.string(), ["Oslo", "Rome", "Oslo", "Bern", "Ärö"]),
    "price": (pa.float64(), [0.5, -2, 1e2, 3.25, 0]),
}
ODD = {
    "click": [None, 2, -1, 0],
    "user": [None, math.nan, math.inf, 2.5, -1.0, -0.0, 2.0**53, 2.0**53 + 2, 300.0],
    "tags": [None, [], [1], [1, 2, 3], [None, 1], [-1, 1], [1, 50], [49, 0]],
    "city": [None, "", " \t", " Oslo", "Oslo ", "Rome", "a;b", '"', "\n", "z"],
    "price": [None, math.nan, -math.inf, 70000.0, 65504.0, -0.25],
}


@st.composite
def mutated_columns(draw):
    """Columns with one to three changed values."""
    columns = {name: list(values) for name, (_, values) in COLUMNS.items()}
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(["city", "city", *columns]))
        columns[name][draw(st.integers(0, 4))] = draw(st.sampled_from(ODD[name]))
    return columns


def expected(columns: dict) -> dict | None:
    """Returns the values that a model should receive, or None for data to be rejected."""
    good = {
        "click": lambda value: value in (0, 1),
        "user": lambda value: value is not None and 0 <= value <= 2**53 and value == int(value),
        "tags": lambda ids: ids is not None and len(ids) == 2 and all(i in range(50) for i in ids),
        "price": lambda value: value is not None and abs(value) <= 65504,
        "city": lambda value: True,
    }
    if not all(good[name](value) for name, values in columns.items() for value in values):
        return None
    cities = [(city or "").strip() for city in columns["city"]]
    counts = collections.Counter(city for city in cities if city)
    known = sorted(counts, key=lambda city: (-counts[city], city.encode()))
    return {
        "click": [[value] for value in columns["click"]],
        "user": [[value] for value in columns["user"]],
        "tags": columns["tags"],
        "price": [[float(np.float16(value))] for value in columns["price"]],
        "city": [[known.index(city) + 1 if city else 0] for city in cities],
    }


def test_parquet_and_texts(capsys):
    outcomes = set()

    def check(columns):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "feature_spec.yaml").write_text(yaml.safe_dump(SPEC))
            arrays = {n: pa.array(values, COLUMNS[n][0]) for n, values in columns.items()}
            for file, names in (("a", ["click", "user", "tags"]), ("b", ["price", "city"])):
                table = pa.table({n: arrays[n] for n in names})
                pq.write_table(table, folder / f"{file}.parquet", row_group_size=len(names))
            flags = ["--categorify=city", "--frequency_threshold=0", "--memory_limit=128MiB"]
            flags.append("--chunk_size=2")
            status = transcode.main([f"--input={name}", f"--output={folder / 'out'}", *flags])
            rows = expected(columns)
            outcomes.add(rows is None)
            message = capsys.readouterr().err
            if rows is None:
                assert status == 2 and " in row " in message, message
            else:
                assert status == 0, message
                assert loaded(folder / "out", "train") == rows

    sweep(300, mutated_columns(), check)
    assert outcomes == {True, False}
