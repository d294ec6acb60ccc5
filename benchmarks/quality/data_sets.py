"""Data sets of the studies, prepared by the documented commands, once per folder."""

import csv
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.quality.recipe_runs import run

ROOT = Path(__file__).resolve().parents[2]


def _make_once(rows: Path, module: str, *arguments: object) -> Path:
    """Runs a preparation whose --output is `rows`, unless the folder exists; returns it."""
    if not rows.exists():
        run("-m", module, "--output", rows, *arguments)
    return rows


def criteo(data: Path, work: Path) -> Path:
    """The first 10,000 rows of the Kaggle log; the last 2,000 are the test split."""
    log = ("--input", data / "criteo_kaggle/train_10000.txt", "--bin_numericals")
    split = ("--holdout_fraction", 0.2, "--vocabulary_days", "train")
    return _make_once(work / "criteo", "preproc.criteo", *log, *split, "--frequency_threshold", 10)


def shop(data: Path, work: Path) -> Path:
    """The shop of docs/how_to/prepare_data.md, by the page's own program and feature spec."""
    rows, raw = work / "shop", work / "shop_raw"
    if not rows.exists():
        page = (ROOT / "docs/how_to/prepare_data.md").read_text()
        program, spec = (
            re.search(rf"^{command} <<'END'\n(.*?)^END$", page, re.DOTALL | re.MULTILINE)[1]
            for command in ("mkdir -p data/shop\npython -", "cat > data/shop/feature_spec.yaml")
        )
        raw.mkdir(exist_ok=True)
        run("-c", program.replace("data/shop", str(raw)))
        (raw / "feature_spec.yaml").write_text(spec)
    return _make_once(rows, "dataloading.transcode", "--input", raw, "--categorify", "city,tags")


def generated(data: Path, work: Path) -> Path:
    """The rows of `make demo`."""
    return _make_once(work / "generated", "dataloading.synthetic", "--rows", 2_000_000)


def movielens_clicks(data: Path, work: Path) -> Path:
    """Ratings of at least 4 as clicks of a user on a film and its first genre; 10 % test."""
    rows, raw = work / "movielens_clicks", work / "movielens_clicks_raw"
    if rows.exists():
        return rows
    raw.mkdir(exist_ok=True)
    tables = []
    for name in ("movies", "ratings"):
        with open(data / f"movielens_latest_small/{name}.csv", newline="") as file:
            tables.append(list(csv.DictReader(file)))
    genres = {movie["movieId"]: movie["genres"].split("|")[0] for movie in tables[0]}
    clicks = [
        f"{int(float(r['rating']) >= 4)},{r['userId']},{r['movieId']},{genres[r['movieId']]}\n"
        for r in tables[1]
    ]
    order = np.random.default_rng(0).permutation(len(clicks))
    sources = ""
    for split, chosen in zip(
        ("train", "test"), np.split(order, [len(order) * 9 // 10]), strict=True
    ):
        (raw / f"{split}.csv").write_text("".join(clicks[i] for i in chosen))
        features = "features: [liked, user, film, genre]"
        sources += f"  {split}: [{{type: csv, {features}, files: [{split}.csv]}}]\n"
    (raw / "feature_spec.yaml").write_text(
        "feature_spec: {liked: {}, user: {}, film: {}, genre: {}}\n"
        f"source_spec:\n{sources}"
        "channel_spec: {label: [liked], numerical: [], categorical: [user, film, genre]}\n"
    )
    return _make_once(rows, "dataloading.transcode", "--input", raw, "--categorify", "all")


def interactions(source: Path, rows: Path, *flags: object) -> Path:
    """Users and items of a log of ratings, or of files with published negatives."""
    return _make_once(rows, "preproc.movielens", "--input", source, *flags)


def ratings(source: str, name: str) -> Callable[[Path, Path], Path]:
    """The preparation of a log, or of a data set with the negatives of its test file."""
    return lambda data, work: interactions(data / source, work / name)


def parquet_of(rows: Path) -> Path:
    """The Parquet files that histories were made of."""
    return rows.with_name(f"{rows.name}_parquet")


def _histories(rows: Path, batch_size: int, *flags: object) -> Path:
    parquet = parquet_of(rows)
    if not rows.exists():
        flags = (*flags, "--min_events", 3, "--validation_event", "--output_path", parquet)
        run("-m", "preproc.amazon_books", *flags)
        run(
            *("-m", "preproc.amazon_books.parquet_to_tfrecord", "--amazon_dataset_path", parquet),
            *("--tfrecord_output_dir", rows, "--prebatch_train_size", batch_size),
            *("--prebatch_test_size", batch_size),
        )
    return rows


def purchases(folder: Path, rows: Path, batch_size: int) -> Path:
    """Purchases of items of a category; a user's last but one event validates."""
    files = ("--interactions", folder / "train.csv", "--items", folder / "item_meta.csv")
    form = ("--input_format", "csv", "--delimiter", "tab", "--item_features", "i_category")
    return _histories(rows, batch_size, *form, *files)


def grocery(data: Path, work: Path) -> Path:
    """Purchases of groceries as in `sequence_accuracy`."""
    return purchases(data / "amazon_grocery", work / "grocery", 256)


def musical(data: Path, work: Path) -> Path:
    """Reviews of musical instruments, without metadata."""
    raw = work / "musical_raw"
    raw.mkdir(exist_ok=True)
    link = raw / "reviews_Books.json"
    if not link.exists():
        link.symlink_to((data / "amazon_musical/Musical_Instruments.json").resolve())
    return _histories(work / "musical", 256, "--amazon_dataset_path", raw, "--no_metadata")
