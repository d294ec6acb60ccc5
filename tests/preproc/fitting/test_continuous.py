"""Columns of large tables that hold fractions, most of them different."""

import numpy as np
import pyarrow as pa
import pytest

from preproc.encoding.arrow_columns import MISSING_VALUES
from preproc.engines.engine import ROW
from preproc.fitting import continuous
from preproc.fitting.continuous import continuous_columns, continuous_facts, sample_of
from preproc.fitting.infer import ColumnFacts

ROWS = 5000


@pytest.fixture(autouse=True)
def small_sample(monkeypatch):
    monkeypatch.setattr(continuous, "SAMPLE_ROWS", 500)


def table(read, as_text):
    rng = np.random.default_rng(0)
    columns = {
        "price": rng.normal(0, 1, ROWS),
        "rounded": rng.normal(0, 1, ROWS).round(1),
        "whole": np.arange(ROWS) * 1.0,
        # Different in the first rows only.
        "repeated": np.where(np.arange(ROWS) < 1000, rng.normal(0, 1, ROWS), 0.5),
    }
    if not as_text:
        return read({**columns, "text": pa.array(["1.5"] * ROWS)})
    names = [*columns, "text"]
    lines = [
        ",".join(map(str, row)) + f",u{i}.5"
        for i, row in enumerate(zip(*columns.values(), strict=True))
    ]
    return read("\n".join([",".join(names), *lines]) + "\n")


@pytest.mark.parametrize("as_text", [True, False])
def test_columns(as_text, duckdb, read):
    rows = table(read, as_text)
    names = [name for name in rows.columns if not name.startswith("__")]
    assert continuous_columns(duckdb, rows, names, MISSING_VALUES, ROWS) == ["price"]
    assert continuous_columns(duckdb, rows, names, MISSING_VALUES, 500) == []  # small
    # A missing value could be any of the numbers.
    assert continuous_columns(duckdb, rows, names, ("", "-1"), ROWS) == []
    assert continuous_columns(duckdb, rows, [], MISSING_VALUES, ROWS) == []
    facts = continuous_facts(duckdb, rows, "price", MISSING_VALUES)
    assert facts == ColumnFacts(ROWS, 0, 0, is_number=True) and facts.is_continuous
    assert str(facts) == "numbers, most different"


def test_facts_of_texts(duckdb, read):
    def facts(*values):
        rows = read("x,y\n" + "".join(f"{value},1\n" for value in values))
        return continuous_facts(duckdb, rows, "x", MISSING_VALUES)

    assert facts("0.5", "NA", "1e3", "", "-2.", "nan") == ColumnFacts(3, 3, 0, is_number=True)
    assert facts("0.5", "x") is None
    assert facts("0.5", "007") is None  # a code
    assert facts("0.5", " 7") is None


def test_sample(duckdb, read):
    rows = read({"x": np.arange(1001)})
    sampled = duckdb.fetch(sample_of(rows, 1001).select(ROW))[ROW].to_pylist()
    assert sorted(sampled) == list(range(0, 1001, 3))
    assert duckdb.fetch(sample_of(rows, 500)).num_rows == 1001
