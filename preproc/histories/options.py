"""Settings of the preparation of interaction histories."""

import functools
from dataclasses import MISSING, dataclass
from pathlib import Path

from config import command
from config.flag import Need, Values, flag, requires
from dataloading.histories.negatives import NEGATIVES, UNIFORM
from preproc.arguments import (
    DELIMITER_HELP,
    MISSING_HELP,
    MachineOptions,
    check_columns,
    parse_delimiter,
    parse_missing,
)
from preproc.checks.report import STRICT_HELP
from preproc.encoding.arrow_columns import MISSING_VALUES
from preproc.histories.engines import default_engine
from preproc.histories.logs.metadata_lines import CATEGORY_LISTS, LAST_LIST

AMAZON, TABLES = "amazon", "tables"
_amazon_flag = functools.partial(
    flag, group="--input_format amazon", needs=(requires("input_format", AMAZON),)
)
_TABLES = requires("input_format", TABLES)
_table_flag = functools.partial(flag, group="--input_format tables", needs=(_TABLES,))
_sample_flag = functools.partial(flag, group="samples")


def _reads_folder(flags: Values) -> bool:
    has_metadata = flags.value("meta") or flags.value("no_metadata")
    return not (flags.value("reviews") and has_metadata)


_FOLDER = Need("without --reviews and --meta (or --no_metadata)", _reads_folder)


@dataclass(frozen=True)
class HistoryOptions(MachineOptions):
    """Prepares any log of who did what when, or reviews of Amazon, for SIM, DIEN and DIN.

    The result is a data set of histories that sim.py reads. `python -m
    preproc.amazon_books.parquet_to_tfrecord` converts it to TFRecords.

    Raises:
        ValueError: a value out of range, or flags that contradict each other.
    """

    output_path: Path = flag(
        MISSING,
        "new folder; appears when complete. What a killed run leaves, the next one for the same "
        "folder, with the same --temp_dir, removes",
        alias="--output",
    )
    amazon_dataset_path: Path | None = _amazon_flag(
        None,
        "folder with reviews_*.json and meta_*.json, plain or gzip",
        alias="--input",
        needs=(requires("input_format", AMAZON), _FOLDER),
    )
    reviews: tuple[Path, ...] = _amazon_flag(
        (), "review files, instead of the folder's", spaced=True, metavar="FILE"
    )
    meta: tuple[Path, ...] = _amazon_flag(
        (), "metadata files, instead of the folder's", spaced=True, metavar="FILE"
    )
    no_metadata: bool = _amazon_flag(False, "read no metadata: all items are of one category")
    input_format: str = flag(
        TABLES,
        "tables of your own (csv and parquet are other names of it), or amazon: reviews and "
        "metadata",
        choices=(AMAZON, TABLES),
        parse=lambda text: TABLES if text in ("csv", "parquet") else text,
    )
    interactions: tuple[Path, ...] = _table_flag(
        (),
        "tables with a row for each event, CSV with a header, Parquet or JSON lines: files, "
        "folders of part files, patterns",
        spaced=True,
        metavar="FILE",
    )
    user_column: str = _table_flag("user_id", "who: integers or text")
    item_column: str = _table_flag("item_id", "what: integers or text")
    time_column: str = _table_flag("time", "when: numbers or ISO timestamps")
    rating_column: str = _table_flag(
        "rating",
        "how much, for --min_rating: numbers",
        needs=(_TABLES, requires("min_rating")),
    )
    user_features: tuple[str, ...] = _table_flag(
        (),
        "columns of --users, or else of --interactions",
        parse=command.separated(str),
        metavar="A,B",
    )
    item_features: tuple[str, ...] = _table_flag(
        (),
        "columns of --items, or else of --interactions",
        parse=command.separated(str),
        metavar="A,B",
    )
    users: Path | None = _table_flag(None, "table of users, with --user_column")
    items: Path | None = _table_flag(None, "table of items, with --item_column")
    delimiter: str | None = _table_flag(None, DELIMITER_HELP, parse=parse_delimiter)
    missing_values: tuple[str, ...] = flag(
        MISSING_VALUES, MISSING_HELP, parse=parse_missing, metavar="TEXTS"
    )
    category_list: str = _amazon_flag(
        LAST_LIST,
        "list of category names whose last name is an item's category: last (the default), or "
        "first, as the original takes it",
        choices=CATEGORY_LISTS,
    )
    min_rating: float | None = _sample_flag(
        None, "leave out events with a lower rating (default: all events count)"
    )
    min_events: int = _sample_flag(
        20,
        "leave out users with fewer events",
        alias="--shortest_sequence_for_user",
        at_least=2,
    )
    max_history: int = _sample_flag(
        100, "length of a history", alias="--max_sequence_length", at_least=1
    )
    min_training_history: int = _sample_flag(
        1,
        "leave out training samples with a shorter history",
        alias="--shortest_sequence_for_training",
        at_least=1,
    )
    validation_event: bool = _sample_flag(
        False, "keep each user's event before the last for validation/", alias="--validation"
    )
    negatives: str = _sample_flag(
        UNIFORM,
        "distribution of negative items: uniform over all items but the positive one (the "
        "default), or in proportion to the items' numbers of events, as the original draws them",
        choices=NEGATIVES,
    )
    seed: int = _sample_flag(
        0,
        "of the negatives, and of the order of ties where that of the log is by item",
        at_least=0,
        below=1 << 64,
    )
    strict: bool = flag(False, STRICT_HELP)
    overwrite: bool = flag(False, "replace an existing --output at the end")
    on_bad_line: str = flag(
        "fail",
        "malformed lines (at most 1 %) and rows without a user, item or time: stop at the first, "
        "or leave them out and count them. Values that are not times are errors either way",
        choices=("fail", "skip"),
    )
    engine: str = flag(
        default_engine,
        "what reads, numbers and sorts; all give the same rows (default: nvtabular where there is "
        "a GPU with cuDF, else duckdb). spark works on a cluster; this machine writes the rows",
        choices=("duckdb", "spark", "nvtabular"),
    )

    def __post_init__(self):
        super().__post_init__()
        names = ("user_column", "item_column", "time_column")
        check_columns(self.delimiter, {name: getattr(self, name) for name in names})
        self._check_sources()

    def _check_sources(self):
        if self.input_format != AMAZON:
            if not self.interactions:
                raise ValueError(
                    f"--input_format {TABLES} needs --interactions: files with a row for each event"
                )
        elif self.amazon_dataset_path is None and not (
            self.reviews and (self.meta or self.no_metadata)
        ):
            raise ValueError(
                "--amazon_dataset_path is missing: the folder of reviews_*.json and meta_*.json "
                "(or give --reviews and --meta; or other logs with --input_format tables)"
            )
        if self.meta and self.no_metadata:
            raise ValueError("--meta and --no_metadata contradict each other; leave one out")
        for name in ("reviews", "meta", "interactions"):
            paths = [path.resolve() for path in getattr(self, name)]
            if len(set(paths)) < len(paths):
                raise ValueError(f"--{name} names a file twice, whose rows would count twice")
        for name, table in (("user", self.users), ("item", self.items)):
            if table is not None and not getattr(self, f"{name}_features"):
                raise ValueError(
                    f"--{name}s {table} needs --{name}_features: which of its columns to take"
                )
