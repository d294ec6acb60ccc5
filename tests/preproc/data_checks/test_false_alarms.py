"""Data sets without faults: at most one warning each, and each of them true."""

import contextlib
import io
import itertools
from pathlib import Path

import numpy as np
import pytest

from dataloading.spec.data_checks import read_findings
from preproc.amazon_books import __main__ as amazon_books
from preproc.criteo import __main__ as criteo
from preproc.criteo import generate_logs
from preproc.movielens import __main__ as movielens
from preproc.transcode import __main__ as transcode
from tests.preproc.data_checks import tables
from tests.raw_shop import orders, write_csv

ROOT = Path(__file__).resolve().parents[3]
REAL = ROOT.parent / "shared/data"
MOST_LINES = 6000
SPLIT = "--split=0.8,0.1,0.1"
TABLE = ("--label=label", SPLIT)
OWN_TABLES = (
    *("attrition", "callbacks", "crashes", "default", "health", "images", "insurance", "pension"),
    *("remote", "restaurants", "serum", "spam", "votes"),
)
# Warnings that are true: data set -> check, column and reason.
TRUE_WARNINGS: dict[str, tuple[str, str, str]] = {
    "health": (
        "unknown_values",
        "zper",
        "five rows of a person: id 0 is 3% of train, 20% of validation",
    ),
    "restaurants": (
        "unknown_values",
        "business_name",
        "names with few rows: id 0 is 6% of train, 18% of validation",
    ),
    "interactions": ("unknown_values", "movieId", "movies of validation and test alone"),
}


def warned(command, *flags) -> list[tuple[str, str]]:
    output = next(f.partition("=")[2] for f in flags if f.startswith("--output"))
    with (
        contextlib.redirect_stderr(io.StringIO()) as errors,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        assert command.main(list(flags)) == 0, errors.getvalue()
    findings = [f for f in read_findings(Path(output)) if f.level == "warning"]
    return [(finding.check, *finding.columns[:1]) for finding in findings]


def check(name: str, warnings: list[tuple[str, str]]) -> None:
    expected = [TRUE_WARNINGS[name][:2]] if name in TRUE_WARNINGS else []
    assert warnings == expected


def real(name: str) -> Path:
    path = REAL / name
    if not path.exists():
        pytest.skip(f"the real data set is absent: {path}")
    return path


def first_lines(path: Path, folder: Path) -> Path:
    with open(path, encoding="utf-8") as source:
        lines = list(itertools.islice(source, MOST_LINES))
    target = folder / path.name
    target.write_text("".join(lines), encoding="utf-8")
    return target


@pytest.mark.quick("restaurants", "default")
@pytest.mark.parametrize("name", OWN_TABLES)
def test_real_tables(name, tmp_path):
    path = first_lines(real(f"own_tables/{name}.csv"), tmp_path)
    check(name, warned(transcode, f"--input={path}", *TABLE, f"--output={tmp_path / 'out'}"))


def test_new_rows_of_a_real_table(tmp_path):
    lines = real("own_tables/restaurants.csv").read_text().splitlines()[:MOST_LINES]
    for name, start in {"old": 1, "new": MOST_LINES // 2}.items():
        rows = lines[start : start + MOST_LINES // 2]
        (tmp_path / f"{name}.csv").write_text("\n".join([lines[0], *rows]) + "\n")
    outputs = [f"--output={tmp_path / name}" for name in ("old", "new")]
    assert not warned(transcode, f"--input={tmp_path / 'old.csv'}", TABLE[0], outputs[0])
    known = f"--vocabulary={tmp_path / 'old'}"
    check(
        "new_restaurants", warned(transcode, f"--input={tmp_path / 'new.csv'}", known, outputs[1])
    )


RATINGS = "movielens_latest_small/ratings.csv"
PAIRS = ("--user=userId", "--item=movieId", "--drop=rating,timestamp", SPLIT)
GROCERY = (
    "--input_format=tables",
    "--delimiter=tab",
    "--item_features=i_category",
    "--min_events=5",
)
ITEMS = "--items={real}/amazon_grocery/item_meta.csv"
REVIEWS = "amazon_musical/Musical_Instruments.json"
LOG = ("--holdout_fraction=0.2", "--vocabulary_days=train")
REAL_LOGS = {
    "ratings": (movielens, RATINGS, "--input", ("--valid_negative=20",)),
    "interactions": (transcode, RATINGS, "--input", PAIRS),
    "histories": (amazon_books, "amazon_grocery/train.csv", "--interactions", (ITEMS, *GROCERY)),
    "reviews": (amazon_books, REVIEWS, "--reviews", ("--no_metadata", "--min_events=5")),
    "criteo": (criteo, "criteo_kaggle/train_10000.txt", "--input", LOG),
}


@pytest.mark.parametrize("name", REAL_LOGS)
def test_real_logs(name, tmp_path):
    command, file, flag, more = REAL_LOGS[name]
    path = first_lines(real(file), tmp_path)
    flags = [flag.format(real=REAL) for flag in more]
    check(name, warned(command, f"{flag}={path}", *flags, f"--output={tmp_path / 'out'}"))


@pytest.mark.long
def test_real_files_of_the_paper(tmp_path):
    path = real("ncf_lastfm/lastfm.train.rating")
    check("paper", warned(movielens, f"--input={path}", f"--output={tmp_path / 'out'}"))


def test_generated_logs(tmp_path):
    command = [f"--output={tmp_path / 'logs'}", "--days=3", "--rows_per_day=2000"]
    assert generate_logs.main(command) == 0
    flags = (f"--input={tmp_path / 'logs'}", "--frequency_threshold=3", "--days=0-2")
    check("logs", warned(criteo, *flags, f"--output={tmp_path / 'out'}"))
    known = ("--encode_only", f"--vocabulary={tmp_path / 'out'}")
    day = f"--input={tmp_path / 'logs/day_2'}"
    check("new_logs", warned(criteo, *known, day, f"--output={tmp_path / 'new'}"))


def test_tables_of_the_tutorials(tmp_path):
    """Getting started: orders; daily retraining: five days, and a sixth one with new users."""
    rng = np.random.default_rng(0)
    shop = orders(3000, seed=0)
    for number, row in enumerate(shop):
        row["hour"], row["user"] = number % 24, f"u{rng.integers(300):04}"
    write_csv(tmp_path / "orders.csv", shop)
    flags = ("--label=bought", SPLIT, f"--output={tmp_path / 'orders'}")
    check("orders", warned(transcode, f"--input={tmp_path / 'orders.csv'}", *flags))

    def days(*numbers):
        users = np.concatenate([100 * day + rng.integers(0, 400, 2000) for day in numbers])
        cities = rng.integers(0, 4, len(users))
        odds = (cities == 1) * 1.5 - (users % 7) * 0.4 + 0.5
        bought = (rng.random(len(users)) < 1 / (1 + np.exp(-odds))).astype(int).tolist()
        names = {"user": [f"u{u}" for u in users], "city": [f"c{c}" for c in cities]}
        return tables.write_csv(tmp_path / f"{numbers[-1]}.csv", {**names, "bought": bought})

    flags = ("--label=bought", "--split=0.9,0.1,0", "--frequency_threshold=2")
    output = f"--output={tmp_path / 'daily'}"
    check("daily", warned(transcode, f"--input={days(1, 2, 3, 4, 5)}", *flags, output))
    flags = (f"--vocabulary={tmp_path / 'daily'}", "--grow", SPLIT)
    check("grown", warned(transcode, f"--input={days(6)}", *flags, f"--output={tmp_path / 'six'}"))
