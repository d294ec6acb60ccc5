"""The preparation in titled stages: raw files, events, ids, rows."""

import sys
import time
from pathlib import Path

from dataloading.histories import negatives
from dataloading.spec.data_set_files import ENCODER_FOLDER, SPEC_FILE
from dataloading.spec.feature_spec import TEST, TRAIN, VALIDATION
from preproc.checks.report import Report
from preproc.checks.short_users import short_users
from preproc.engines.open_engine import open_engine
from preproc.events.numbering import save_encoder
from preproc.histories.engines.encoded_events import FIRST_ID, number_log
from preproc.histories.logs.event_log import EventLog
from preproc.histories.logs.own_tables import read_tables
from preproc.histories.logs.reviews import read_reviews
from preproc.histories.options import AMAZON, HistoryOptions
from preproc.histories.samples import (
    ColumnNames,
    NumberedLog,
    spec_of,
    write_events,
    write_split,
)
from runtime.files.outputs import DATA_SET
from runtime.files.staging import Staging

TOOL = "preproc.histories"


def prepare(options: HistoryOptions) -> dict[str, int]:
    """Makes the data set `options.output_path`, under that name only when it is whole.

    Returns:
        the number of rows of each split.

    Raises:
        ValueError: options or input are wrong, or the memory limit is too small.
        OSError: no space left, among others.
    """
    is_amazon = options.input_format == AMAZON
    columns = ColumnNames(("user_id",), ("item_id", "cat_id"))
    if not is_amazon:
        columns = ColumnNames(
            ("user_id", *options.user_features), ("item_id", *options.item_features)
        )
    named = (options.amazon_dataset_path, options.users, options.items)
    read = [*filter(None, named), *options.reviews, *options.meta, *options.interactions]
    say = _Reporter()
    output = (options.output_path, TOOL, DATA_SET, options.overwrite, read)
    with Staging(*output, resumes=False) as staging:
        folder, scratch = staging.data, staging.temp_folder(options.temp_dir)
        name = "spark" if options.engine == "spark" else "duckdb"
        with open_engine(name, scratch, **options.engine_settings()) as engine:
            log = (
                read_reviews(options, engine, scratch)
                if is_amazon
                else read_tables(options, engine)
            )
            say(f"staged {log.num_events:,} events; left out {log.num_bad:,} bad lines or rows")
            numbered = number_log(options, engine, log, scratch)
        if log.num_below:
            say(f"left out {log.num_below:,} events below --min_rating {options.min_rating:g}")
        users, events = numbered.num_users, int(numbered.num_events.sum())
        say(
            f"kept {events:,} of {log.num_events:,} events, of {users:,} of "
            f"{numbered.num_users_before:,} users and {numbered.num_items:,} items"
        )
        for name, number in numbered.num_missing.items():
            if number and not options.no_metadata:
                say(f"{number:,} users or items have no {name}; they share one id")
        short = short_users(
            "--min_events",
            options.min_events,
            (numbered.num_users_before, users),
            (log.num_events, events),
        )
        report = Report((*numbered.checks, short))
        report.refuse_warnings(options.strict)
        report.write(folder)
        rows = _write_data_set(options, numbered, folder, columns, log, say)
        print(report.text(), file=sys.stderr, flush=True)
        staging.publish()
    return rows


class _Reporter:
    def __init__(self):
        self._last = time.perf_counter()

    def __call__(self, what: str) -> None:
        now = time.perf_counter()
        print(f"{what}, {now - self._last:.1f} s", file=sys.stderr, flush=True)
        self._last = now


# Ids -> samples


def _write_data_set(
    options: HistoryOptions,
    log: NumberedLog,
    folder: Path,
    columns: ColumnNames,
    raw: EventLog,
    say: _Reporter,
) -> dict[str, int]:
    """Writes the files and the feature spec; returns the number of rows of each split."""
    splits = [TRAIN, VALIDATION, TEST] if options.validation_event else [TRAIN, TEST]
    names = ("min_events", "max_history", "min_training_history", "category_list")
    metadata = {name: getattr(options, name) for name in names}
    metadata[negatives.METADATA] = {"distribution": options.negatives, "seed": options.seed}
    metadata["bad_lines"] = raw.num_bad
    if options.min_rating is not None:
        metadata["min_rating"] = options.min_rating
    features = {"user": columns.user[0], "item": columns.target[0]}
    vocabularies = {
        features[kind]: (raw.columns[kind], log.vocabularies[kind]) for kind in features
    }
    others = {"user": columns.user[1:], "item": columns.target[1:]}
    ids = {"user": log.user_features, "item": log.item_features}
    attributes = {
        features[kind]: {
            name: array[1:] for name, array in zip(others[kind], ids[kind], strict=True)
        }
        for kind in features
    }
    metadata[ENCODER_FOLDER] = save_encoder(
        folder, vocabularies, FIRST_ID, attributes, options.missing_values
    )
    spec = spec_of(log, columns, splits, options.max_history, metadata)
    write_events(log, folder / "events", columns)
    rows = {}
    for split in splits:
        settings = (options.validation_event, options.min_training_history)
        rows[split] = write_split(log, folder / split, *settings)
        say(f"{split}: {rows[split]:,} rows")
    spec.to_yaml(folder / SPEC_FILE)
    return rows
