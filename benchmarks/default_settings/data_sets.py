"""Data sets of `default_settings`, prepared by the documented commands, once per folder."""

import csv
import re
from pathlib import Path

import numpy as np

from benchmarks.harness.recipe_runs import run

ROOT = Path(__file__).resolve().parents[2]


def criteo(data: Path, work: Path) -> Path:
    """The first 10,000 rows of the Kaggle log as in docs/criteo.md: the last 2,000 test."""
    rows = work / "criteo"
    if not rows.exists():
        run(
            *("-m", "preproc.criteo", "--input", data / "criteo_kaggle/train_10000.txt"),
            *("--output", rows, "--frequency_threshold", 10, "--holdout_fraction", 0.2),
            *("--vocabulary_days", "train", "--bin_numericals"),
        )
    return rows


def shop(data: Path, work: Path) -> Path:
    """The shop of docs/your_own_data.md, by the page's own program and feature spec."""
    rows, raw = work / "shop", work / "shop_raw"
    if not rows.exists():
        page = (ROOT / "docs/your_own_data.md").read_text()
        program, spec = (
            re.search(rf"^{command} <<'END'\n(.*?)^END$", page, re.DOTALL | re.MULTILINE)[1]
            for command in ("mkdir -p data/shop\npython -", "cat > data/shop/feature_spec.yaml")
        )
        raw.mkdir(exist_ok=True)
        run("-c", program.replace("data/shop", str(raw)))
        (raw / "feature_spec.yaml").write_text(spec)
        command = ("-m", "dataloading.transcode", "--input", raw, "--output", rows)
        run(*command, "--categorify", "city,tags")
    return rows


def generated(data: Path, work: Path) -> Path:
    """The rows of `make demo`."""
    rows = work / "generated"
    if not rows.exists():
        run("-m", "dataloading.synthetic", "--output", rows, "--rows", 2_000_000)
    return rows


def movielens_clicks(data: Path, work: Path) -> Path:
    """Ratings of at least 4 as clicks of a user on a film and its first genre; 10 % test."""
    rows, raw = work / "movielens_clicks", work / "movielens_clicks_raw"
    if rows.exists():
        return rows
    raw.mkdir(exist_ok=True)
    with open(data / "movielens_latest_small/movies.csv", newline="") as file:
        genres = {row["movieId"]: row["genres"].split("|")[0] for row in csv.DictReader(file)}
    with open(data / "movielens_latest_small/ratings.csv", newline="") as file:
        ratings = list(csv.DictReader(file))
    order = np.random.default_rng(0).permutation(len(ratings))
    cut = len(order) * 9 // 10
    for split, chosen in (("train", order[:cut]), ("test", order[cut:])):
        with open(raw / f"{split}.csv", "w") as file:
            for row in (ratings[i] for i in chosen):
                liked = int(float(row["rating"]) >= 4)
                film = row["movieId"]
                print(f"{liked},{row['userId']},{film},{genres[film]}", file=file)
    chunk = "{type: csv, features: [liked, user, film, genre], files: [%s.csv]}"
    (raw / "feature_spec.yaml").write_text(
        "feature_spec: {liked: {}, user: {}, film: {}, genre: {}}\n"
        "source_spec:\n"
        + "".join(f"  {split}: [{chunk % split}]\n" for split in ("train", "test"))
        + "channel_spec: {label: [liked], numerical: [], categorical: [user, film, genre]}\n"
    )
    command = ("-m", "dataloading.transcode", "--input", raw, "--output", rows)
    run(*command, "--categorify", "all")
    return rows


def _interactions(source: Path, rows: Path) -> Path:
    if not rows.exists():
        run("-m", "preproc.movielens", "--input", source, "--output", rows)
    return rows


def lastfm(data: Path, work: Path) -> Path:
    """Last.fm with the negatives of its test file."""
    return _interactions(data / "ncf_lastfm", work / "lastfm")


def ml_1m(data: Path, work: Path) -> Path:
    """MovieLens 1M with the negatives of its test file."""
    return _interactions(data / "ncf_ml1m", work / "ml_1m")


def movielens(data: Path, work: Path) -> Path:
    """The last interaction of each user among 100 drawn ones."""
    return _interactions(data / "movielens_latest_small/ratings.csv", work / "movielens")


def _histories(rows: Path, *flags: object) -> Path:
    if not rows.exists():
        parquet = rows.with_name(rows.name + "_parquet")
        run("-m", "preproc.amazon_books", *flags, "--min_events", 3, "--output_path", parquet)
        run(
            *("-m", "preproc.amazon_books.parquet_to_tfrecord", "--amazon_dataset_path", parquet),
            *("--tfrecord_output_dir", rows),
            *("--prebatch_train_size", 256, "--prebatch_test_size", 256),
        )
    return rows


def grocery(data: Path, work: Path) -> Path:
    """Purchases of groceries as in `sequence_accuracy`; a user's last but one event validates."""
    folder = data / "amazon_grocery"
    return _histories(
        work / "grocery",
        *("--input_format", "csv", "--delimiter", "tab", "--interactions", folder / "train.csv"),
        *("--items", folder / "item_meta.csv", "--item_features", "i_category"),
        "--validation_event",
    )


def musical(data: Path, work: Path) -> Path:
    """Reviews of musical instruments, without metadata."""
    raw = work / "musical_raw"
    raw.mkdir(exist_ok=True)
    link = raw / "reviews_Books.json"
    if not link.exists():
        link.symlink_to((data / "amazon_musical/Musical_Instruments.json").resolve())
    rows = work / "musical"
    return _histories(rows, "--amazon_dataset_path", raw, "--no_metadata", "--validation_event")
