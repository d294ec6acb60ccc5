"""Messages about flags, values and permissions whose remedy is another flag or another mode."""

import contextlib
import os
import tempfile
from pathlib import Path

import pytest
import yaml

from preproc.amazon_books.generate_reviews import main as generate_reviews
from tests.deployment.trained import BOTTOM, DLRM
from tests.remedies.remedy import LOG, ROWS, TABLE, Remedy, check, run, then, written

COLUMNS = ("--user_column=person", "--item_column=thing", "--time_column=when")
RATINGS = ("movielens", "--input=log.csv", "--output=data", "--valid_negative=5")
TRAIN = ("dlrm", "--dataset_path=data", *DLRM, BOTTOM, "--epochs=1", "--run_dir=run")
SPEC = {
    "feature_spec": {"click": {}, "price": {}, "city": {}},
    "source_spec": {
        "train": [
            {
                "type": "csv",
                "header": True,
                "features": ["city", "price", "click"],
                "files": ["rows.csv"],
            }
        ]
    },
    "channel_spec": {"label": ["click"], "numerical": ["price"], "categorical": ["city"]},
}
FOLDER = ("transcode", "--input=raw", "--output=data")


log = written("log.csv", LOG)


def two_logs(folder):
    (folder / "raw").mkdir()
    (folder / "raw/ratings.csv").write_text(LOG)
    (folder / "raw/ratings.dat").write_text("1::2::3::4\n")


def reviews(folder):
    assert generate_reviews(["--output", str(folder / "logs"), "--reviews=2000"]) == 0
    (folder / "alone").mkdir()
    (folder / "logs/reviews_Books.json").rename(folder / "alone/reviews_Books.json")


def encoded(*flags):
    def prepare(folder):
        (folder / "rows.csv").write_text(ROWS)
        assert run((*TABLE, "--input=rows.csv", *flags))[0] == 0

    return prepare


def spec(content: str):
    def prepare(folder):
        (folder / "raw").mkdir()
        (folder / "raw/rows.csv").write_text(content)
        (folder / "raw/feature_spec.yaml").write_text(yaml.safe_dump(SPEC, sort_keys=False))

    return prepare


def prepared_again(*flags):
    def apply(folder):
        command = (*TABLE, "--input=rows.csv", "--overwrite", *flags)
        assert run(command)[0] == 0
        return TRAIN

    return apply


PREPARATIONS = [
    Remedy(
        "columns of other names", log, RATINGS, "has no column 'userId'",
        "--user_column, --item_column and --time_column", then(*RATINGS, *COLUMNS),
    ),
    Remedy(
        "few items that a user did not touch", log,
        (*RATINGS[:3], *COLUMNS), "touched 21 of 30 items, so 9 are unseen",
        "--valid_negative 9 or less", then(*RATINGS[:3], *COLUMNS, "--valid_negative=9"),
    ),
    Remedy(
        "no user with enough ratings", log, (*RATINGS, *COLUMNS, "--min_ratings=22"),
        "no user has --min_ratings 22 items or more",
        "the most that one has is 21: require at most that",
        then(*RATINGS, *COLUMNS, "--min_ratings=21"),
    ),
    Remedy(
        "two logs in a folder", two_logs,
        ("movielens", "--input=raw", "--output=data", "--valid_negative=5", *COLUMNS),
        "got ratings.csv, ratings.dat", "Name the file itself",
        then("movielens", "--input=raw/ratings.csv", *RATINGS[2:], *COLUMNS),
    ),
    Remedy(
        "reviews elsewhere", reviews, ("amazon_books", "--input=.", "--output=data"),
        "(--input) . holds no reviews_*.json", "leave it out, and name the files with --reviews",
        then("amazon_books", "--output=data", "--reviews=alone/reviews_Books.json",
             "--meta=logs/meta_Books.json"),
    ),
    Remedy(
        "no metadata of the items", reviews,
        ("amazon_books", "--amazon_dataset_path=alone", "--output=data"),
        "holds no meta_*.json", "put all items in one category with --no_metadata",
        then("amazon_books", "--amazon_dataset_path=alone", "--output=data", "--no_metadata"),
    ),
    Remedy(
        "a split without rows", written("rows.csv", "".join(ROWS.splitlines(True)[:4])),
        (*TABLE, "--input=rows.csv", "--split=0.8,0.1,0.1"),
        "the split 'validation' has none of the 3 rows", "a larger share for it, more rows",
        written("rows.csv", ROWS),
    ),
    Remedy(
        "no label", written("rows.csv", ROWS), ("transcode", "--input=rows.csv", "--output=data"),
        "--label is missing", "one of city, price, click", then(*TABLE, "--input=rows.csv"),
    ),
    Remedy(
        "a label with a slip", written("rows.csv", ROWS),
        ("transcode", "--input=rows.csv", "--label=clik", "--output=data"),
        "expected a column of rows.csv", "did you mean 'click'?",
        then(*TABLE, "--input=rows.csv"),
    ),
    Remedy(
        "texts as ids", spec(ROWS), FOLDER, "feature 'city': expected an integer", "--categorify",
        then(*FOLDER, "--categorify=city"),
    ),
    Remedy(
        "ids out of range", spec(ROWS.replace("\na,", "\n-7,").replace("b,", "8,").replace(
            "\nc,", "\n9,")), FOLDER, "expected an id in [0, 10)", "or --hash_buckets of",
        then(*FOLDER, "--hash_buckets=city=16"),
    ),
    Remedy(
        "a number that is too large", spec(ROWS.replace(",0.87,", ",1000000,")),
        (*FOLDER, "--categorify=city"), "expected a number that float16 holds, at most 65504",
        "use --transform log or quantile", then(*FOLDER, "--categorify=city", "--transform=log"),
    ),
]  # fmt: skip
TRAININGS = [
    Remedy(
        "no rows to evaluate", encoded(), TRAIN, "neither 'validation' nor 'test' rows",
        "prepare the data with --split 0.8,0.1,0.1", prepared_again("--split=0.8,0.1,0.1"),
    ),
    Remedy(
        "no rows to evaluate, kept so", encoded(), TRAIN, "neither 'validation' nor 'test' rows",
        "evaluate on training rows with --eval_mapping train", then(*TRAIN, "--eval_mapping=train"),
    ),
    Remedy(
        "nothing to evaluate", encoded(), TRAIN, "neither 'validation' nor 'test' rows",
        "or not at all with --evals_per_epoch 0", then(*TRAIN, "--evals_per_epoch=0"),
    ),
    Remedy(
        "no data set", encoded("--split=0.8,0.1,0.1"), ("dlrm", *TRAIN[2:]),
        "--dataset_path is missing", "the --output of a preparation such as preproc.transcode",
        then(*TRAIN[:2], "--plan_only", "--plan_world_size=1"),
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", [*PREPARATIONS, *TRAININGS], ids=lambda case: case.cause)
def test_remedies(case, tmp_path, monkeypatch):
    check(case, tmp_path, monkeypatch)


def test_diverged_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    encoded("--split=0.8,0.1,0.1")(tmp_path)
    status, errors = run((*TRAIN, "--optimizer=sgd", "--learning_rate=1e30", "--batch_size=8"))
    assert status == 3 and "Try a smaller --learning_rate" in errors


@contextlib.contextmanager
def as_user():
    """Runs as a user whom permissions bind, which they do not root."""
    is_root = os.geteuid() == 0
    try:
        if is_root:
            os.seteuid(65534)
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.parametrize(
    ("path", "command", "named"),
    [
        ("rows.csv", (*TABLE, "--input=rows.csv"), "rows.csv"),
        ("raw", (*TABLE, "--input=raw/rows.csv"), "raw"),
        ("raw", (*TABLE, "--input=raw"), "raw"),
        ("out", ("transcode", "--label=click", "--input=rows.csv", "--output=out/data"), "out"),
    ],
)
def test_permissions(path, command, named, monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # whose parents anyone may read
        folder = Path(name)
        folder.chmod(0o777)
        monkeypatch.chdir(folder)
        for kind in ("raw", "out"):
            (folder / kind).mkdir()
            (folder / kind).chmod(0o777)
        for file in ("rows.csv", "raw/rows.csv"):
            (folder / file).write_text(ROWS)
        (folder / path).chmod(0o000 if path != "out" else 0o555)
        with as_user():
            status, errors = run(command)
        assert status == 2
        assert f"{folder / named}: user " in errors and "has no permission" in errors
        assert "change its owner or mode (chown, chmod)" in errors
        (folder / path).chmod(0o777)
        with as_user():
            assert run(command) == (0, "")
