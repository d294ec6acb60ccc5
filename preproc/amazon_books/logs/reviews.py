"""Reviews and metadata of Amazon.

Review lines are JSON objects with reviewerID and asin, which are not empty, and unixReviewTime, an
integer of 64 bits; other fields are ignored. See `metadata_lines` for the others.
"""

import sys
from pathlib import Path

import pyarrow.parquet as pq

from preproc.amazon_books.logs.event_log import EventLog, FeatureTable, bad_row
from preproc.amazon_books.logs.metadata_lines import SCHEMA, stage_metadata
from preproc.amazon_books.options import AmazonOptions
from preproc.engines.bad_lines import FAIL
from preproc.engines.engine import ROW, Engine, count_rows
from preproc.events.raw_table import is_whole, read_raw
from preproc.sources.chunk import SourceChunk
from runtime.files.paths import absent

REVIEW_COLUMNS = {"user": "reviewerID", "item": "asin", "time": "unixReviewTime"}
_CATEGORY = "item_0"


def read_reviews(options: AmazonOptions, engine: Engine, scratch: Path) -> EventLog:
    """Reads reviews and metadata.

    Raises:
        ValueError: files are missing, or a line is bad and may not be skipped.
    """
    folder, meta = options.amazon_dataset_path, options.meta
    files = options.reviews or find_files(folder, "reviews_", "name the files with --reviews")
    if not meta and not options.no_metadata:
        remedy = "name the files with --meta, or put all items in one category with --no_metadata"
        meta = find_files(folder, "meta_", remedy)
    paths = tuple(str(path.absolute()) for path in files)
    chunk = SourceChunk("json", paths, columns=tuple(REVIEW_COLUMNS.values()))
    missing = options.missing_values
    reviews = read_raw(
        engine, [chunk], REVIEW_COLUMNS, on_bad_line=options.bad_lines, missing=missing
    )
    faults = {key: reviews.rows[key].isnull() for key in ("user", "item")}
    faults["time"] = ~is_whole(reviews.rows.time)
    num_bad, _ = reviews.inspect(faults)
    if num_bad and options.bad_lines == FAIL:
        raise bad_row(reviews, faults)
    num_bad += reviews.num_skipped
    good = reviews.without(faults)
    events = good.select("user", "item", time=good.time.cast("int64"), row=good[ROW])
    events = engine.store_table(events, "events")
    staged = [scratch / f"meta_{i}.parquet" for i in range(max(1, len(meta)))]
    pq.write_table(SCHEMA.empty_table(), staged[0])  # without metadata
    for file, target in zip(meta, staged, strict=False):
        settings = (options.on_bad_line, options.category_list, missing)
        num_bad += stage_metadata(file, target, *settings)
    items = engine.read([SourceChunk("parquet", tuple(map(str, staged)))], "fail")
    titles = {_CATEGORY: f"category in {', '.join(map(str, meta))}"}
    features = FeatureTable(items.select("item", _CATEGORY), titles, gaps_count=False)
    return EventLog(events, count_rows(engine, events), num_bad, {"item": features})


def find_files(folder: Path, start: str, remedy: str = "") -> tuple[Path, ...]:
    """Returns the files <start>*.json and <start>*.json.gz of a folder, and prints their names.

    Raises:
        ValueError: the folder does not exist, has no such file, or one both plain and as gzip;
            remedy: what helps against the second.
    """
    if not folder.exists():
        raise ValueError(f"--amazon_dataset_path {absent(folder)}")
    if not folder.is_dir():
        raise ValueError(
            f"--amazon_dataset_path {folder}: expected a folder, got a file: name files with "
            "--reviews and --meta (or tables with --input_format and --interactions)"
        )
    candidates = [*folder.glob(f"{start}*.json"), *folder.glob(f"{start}*.json.gz")]
    files = sorted(path for path in candidates if path.is_file())
    for path in files:
        if (packed := path.with_name(path.name + ".gz")) in files:
            raise ValueError(
                f"{folder} holds {path.name} and {packed.name}, whose lines would count twice; "
                "remove one of them, or name the files to read with --reviews and --meta"
            )
    if not files:
        raise ValueError(
            f"--amazon_dataset_path {folder} holds no {start}*.json or {start}*.json.gz; {remedy}"
        )
    names = ", ".join(path.name for path in files)
    print(f"{start}*.json of {folder}: {names}", file=sys.stderr, flush=True)
    return tuple(files)
