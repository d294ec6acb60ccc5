"""Ids and amounts: whole numbers of generated columns with real names, and of real tables."""

import re

import numpy as np
import pytest

from preproc.encoding.encodings import Label
from preproc.fitting.whole_numbers import choose, measure
from preproc.transcode.raw.raw_tables import RawTables
from tests.preproc.transcode.test_transcode_file import run, spec_of

NUM_ROWS = 6000
ID, AMOUNT = True, False


def codes(num_values, least=1, step=1):
    """Values by falling frequency, in no order."""

    def draw(rng):
        values = least + step * rng.permutation(num_values)
        return values[np.minimum(rng.geometric(3 / num_values, NUM_ROWS) - 1, num_values - 1)]

    return draw


def clock(minutes):
    """Times of day as HHMM."""

    def draw(rng):
        minute = minutes * rng.integers(0, 24 * 60 // minutes, NUM_ROWS)
        return 100 * (minute // 60) + minute % 60

    return draw


def unique(least):
    return lambda rng: least + rng.choice(10**7, NUM_ROWS, replace=False)


def amounts(law, *args, least=0, most=1e12, unit=1):
    def draw(rng):
        values = np.clip(getattr(rng, law)(*args, NUM_ROWS), least, most)
        return (unit * np.floor(values / unit)).astype(np.int64)

    return draw


def no_label(values, rng):
    return np.full(len(values), 0.4)


def by_value(values, rng):
    """A rate of its own for each value."""
    _, index = np.unique(values, return_inverse=True)
    return rng.beta(1, 2, index.max() + 1)[index]


def rising(values, rng):
    return np.argsort(np.argsort(values)) / len(values)


def peaked(values, rng):
    return 1 - np.abs(2 * rising(values, rng) - 1)


# name: values, label, kind
COLUMNS = {
    "user": (codes(300), by_value, ID),
    "uid": (codes(900, 10**6, 17), by_value, ID),
    "product_code": (codes(250, 1000, 7), by_value, ID),
    "zip": (codes(300, 10_001, 13), by_value, ID),
    "PLZ": (codes(220, 1000, 10), by_value, ID),
    "CRSDepTime": (clock(5), by_value, ID),
    "status_code": (codes(30, 200, 7), by_value, ID),
    "campaign": (codes(80, 5000), by_value, ID),
    "teacher": (codes(120), by_value, ID),
    "branch": (amounts("uniform", 1, 51), by_value, ID),
    "phone_number": (unique(49_000_000_000), no_label, ID),
    "invoice_no": (unique(536_365), no_label, ID),
    "isbn": (unique(9_780_000_000_000), rising, AMOUNT),  # by the label
    "age": (amounts("normal", 42, 15, least=18, most=95), peaked, AMOUNT),
    "income": (amounts("lognormal", 10, 0.7, unit=100), rising, AMOUNT),
    "credit_limit": (amounts("lognormal", 9, 1, unit=500), rising, AMOUNT),
    "views": (amounts("pareto", 0.8), rising, AMOUNT),
    "num_purchases": (amounts("poisson", 30), peaked, AMOUNT),
    "year_built": (amounts("normal", 1970, 25, least=1850, most=2024), rising, AMOUNT),
    "duration_s": (amounts("lognormal", 5, 1), no_label, AMOUNT),
    "score": (amounts("uniform", 0, 101), rising, AMOUNT),
    "week": (amounts("uniform", 1, 54), peaked, AMOUNT),
    "population": (amounts("lognormal", 11, 1.5), no_label, AMOUNT),
}


def test_generated_columns(duckdb, read):
    rng = np.random.default_rng(0)
    table, wrong = {}, []
    for name, (draw, rate, _) in COLUMNS.items():
        table[name] = draw(rng)
        table[f"label {name}"] = (rng.random(NUM_ROWS) < rate(table[name], rng)).astype(np.int8)
    rows = read(table)
    for name, (_, _, kind) in COLUMNS.items():
        label = Label(name=name, column=f"label {name}")
        z = measure(duckdb, rows, [name], label, ("",), NUM_ROWS)[name]
        choice = choose(name, NUM_ROWS, len(np.unique(table[name])), z)
        if choice.is_id is not kind or (abs(z) < 5 and not choice.reason):
            wrong.append((name, z, choice))
    assert not wrong


# Columns with more than 20 values, by the descriptions of the packages that they are from. The
# number of locations of a restaurant is an amount that identifies the chain: ids win.
REAL = {
    "attrition": {
        AMOUNT: "Age DailyRate DistanceFromHome HourlyRate MonthlyIncome MonthlyRate "
        "TotalWorkingYears YearsAtCompany"
    },
    "callbacks": {AMOUNT: "years_experience"},
    "crashes": {AMOUNT: "ageOFocc yearVeh"},
    "default": {},
    "health": {ID: "zper", AMOUNT: "mentvis notmdvis"},
    "images": {
        AMOUNT: "area_ch_1 spot_fiber_count_ch_4 total_inten_ch_1 total_inten_ch_2 "
        "total_inten_ch_3 total_inten_ch_4"
    },
    "insurance": {AMOUNT: "whrswk wght"},
    "pension": {AMOUNT: "age"},
    "remote": {AMOUNT: "YearsCodedJob"},
    "restaurants": {ID: "NumberofLocations"},
    "serum": {AMOUNT: "age"},
    "spam": {AMOUNT: "crl.tot"},
    "votes": {AMOUNT: "age"},
}


@pytest.mark.quick("health", "restaurants")
@pytest.mark.parametrize("name", REAL)
def test_real_tables(name, duckdb, read, root):
    path = root.parent / f"shared/data/own_tables/{name}.csv"
    if not path.is_file():
        pytest.skip(f"needs {path}")
    table = read(path.read_text())
    raw = RawTables(duckdb, {"train": table}, ("", "NA"), Label(name="label", column="label"))
    columns = [n for n in table.columns if not re.match("label$|t_$|_", n)]
    choices = raw.choices(columns)
    expected = {c: kind for kind, names in REAL[name].items() for c in names.split()}
    many = {n: c.is_id for n, c in choices.items() if raw.facts(columns)[n].distinct > 20}
    assert many == expected


def test_kinds_by_flags(tmp_path, capsys):
    """The choice is printed with its reason; flags override it."""
    rng = np.random.default_rng(1)
    item, age = rng.integers(0, 50, (2, 2000))
    label = rng.random(2000) < rng.random(50)[item]
    lines = [f"{i},{a},{int(y)}" for i, a, y in zip(item, age, label, strict=True)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["thing,age,y", *lines]) + "\n")
    assert run(path, "--label=y", output=tmp_path / "a") == 0
    assert spec_of(tmp_path / "a").channel("categorical") == ("thing",)
    assert spec_of(tmp_path / "a").channel("numerical") == ("age",)
    output = capsys.readouterr().out
    assert re.search(r"\nthing .* ids \(2\+\), by label\n", output)
    assert re.search(r"\nage .* standardized, by name\n", output)
    reasons = spec_of(tmp_path / "a").metadata["transcode"]["columns"]
    assert "by name: the label does not decide (" in reasons["age"]
    flags = ("--label=y", "--numerical=thing", "--categorical=age")
    assert run(path, *flags, output=tmp_path / "b") == 0
    assert spec_of(tmp_path / "b").channel("categorical") == ("age",)
    assert spec_of(tmp_path / "b").channel("numerical") == ("thing",)
