"""Reviews and metadata of Amazon.

Review lines are JSON objects with a user and an item, which are not empty, and a time, an integer
of 64 bits; see `formats` for their keys, and `metadata_lines` for the others. Other fields are
ignored.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from preproc.engines.bad_lines import SKIP
from preproc.engines.engine import ROW, Engine, count_rows
from preproc.events.raw_table import RATING, above_rating, is_whole, read_raw
from preproc.histories.logs.event_log import SKIP_HELP, EventLog, FeatureTable
from preproc.histories.logs.formats import format_of, no_category
from preproc.histories.logs.metadata_lines import SCHEMA, stage_metadata
from preproc.histories.options import HistoryOptions
from preproc.sources.column_chunk import SourceChunk
from runtime.files.paths import absent

_CATEGORY = "item_0"
_OTHERS = "leave it out, and name the files with --reviews and --meta"


def read_reviews(options: HistoryOptions, engine: Engine, scratch: Path) -> EventLog:
    """Reads reviews and metadata.

    Raises:
        ValueError: files are missing, or a line is bad and may not be skipped.
    """
    folder, meta = options.amazon_dataset_path, options.meta
    files = options.reviews or find_files(folder, "reviews_", _OTHERS)
    if not meta and not options.no_metadata:
        remedy = "name the files with --meta, or put all items in one category with --no_metadata"
        meta = find_files(folder, "meta_", remedy)
    form = format_of(files, meta)
    names = {**form.columns}
    if options.min_rating is not None:
        names[RATING] = form.rating
    paths = tuple(str(path.absolute()) for path in files)
    chunk = SourceChunk("json", paths, columns=tuple(names.values()))
    missing = options.missing_values
    reviews = read_raw(engine, [chunk], names, on_bad_line=options.on_bad_line, missing=missing)
    faults = reviews.required("user", "item") | {"time": ~is_whole(reviews.rows.time)}
    num_bad, _ = reviews.inspect(faults)
    if num_bad and options.on_bad_line != SKIP:
        raise reviews.bad_row(faults, SKIP_HELP)
    num_bad += reviews.num_skipped
    good = reviews.without(faults)
    events, num_below = above_rating(engine, good, options.min_rating)
    events = events.select("user", "item", time=events.time.cast("int64"), row=events[ROW])
    events = engine.store_table(events, "events")
    features, num_bad_meta = _read_metadata(options, engine, meta, form.item, scratch)
    return EventLog(
        events=events,
        num_events=count_rows(engine, events),
        num_bad=num_bad + num_bad_meta,
        columns=form.columns,
        num_below=num_below,
        features={"item": features},
    )


def _read_metadata(
    options: HistoryOptions, engine: Engine, files: Sequence[Path], item: str, scratch: Path
) -> tuple[FeatureTable, int]:
    """Returns the categories of items, and the number of bad lines; item: its key."""
    staged = [scratch / f"meta_{i}.parquet" for i in range(max(1, len(files)))]
    pq.write_table(SCHEMA.empty_table(), staged[0])  # without metadata
    num_bad, has_category = 0, False
    settings = (options.on_bad_line, options.category_list, options.missing_values, item)
    for file, target in zip(files, staged, strict=False):
        bad_lines, has_some = stage_metadata(file, target, *settings)
        num_bad, has_category = num_bad + bad_lines, has_category or has_some
    if files and not has_category:
        raise no_category(files)
    items = engine.read([SourceChunk("parquet", tuple(map(str, staged)))], "fail")
    source = ", ".join(map(str, files))
    titles = {_CATEGORY: f"category in {source}"}
    table = items.select("item", _CATEGORY)
    return FeatureTable(table, titles, gaps_count=False, source=source), num_bad


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
            f"--amazon_dataset_path (--input) {folder} holds no {start}*.json or {start}*.json.gz; "
            f"{remedy}"
        )
    names = ", ".join(path.name for path in files)
    print(f"{start}*.json of {folder}: {names}", file=sys.stderr, flush=True)
    return tuple(files)
