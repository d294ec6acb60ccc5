"""Settings of the preparation of interaction histories."""

from dataclasses import MISSING, dataclass
from pathlib import Path

from dataloading.histories.negatives import NEGATIVES, UNIFORM
from preproc.amazon_books.logs.metadata_lines import CATEGORY_LISTS, LAST_LIST
from preproc.arguments import (
    MISSING_HELP,
    SparkMachineOptions,
    check_columns,
    parse_delimiter,
    parse_missing,
)
from preproc.checks.report import STRICT_HELP
from preproc.encoding.columns import MISSING_VALUES
from runtime.options import flag

AMAZON, CSV, PARQUET = "amazon", "csv", "parquet"
# Groups of flags.
AMAZON_FLAGS, TABLE_FLAGS = "--input_format amazon", "--input_format csv or parquet"
_SAMPLES = "samples"


@dataclass(frozen=True)
class AmazonOptions(SparkMachineOptions):
    """One run; `python -m preproc.amazon_books --help` describes each field.

    Raises:
        ValueError: a value out of range, or flags that contradict each other.
    """

    output_path: Path = flag(
        MISSING,
        "new folder; appears when complete. What a killed run leaves, the next one for the same "
        "folder, with the same --temp_dir, removes",
        alias="--output",
    )
    amazon_dataset_path: Path | None = flag(
        None,
        "folder with reviews_*.json and meta_*.json, plain or gzip",
        AMAZON_FLAGS,
        alias="--input",
    )
    reviews: tuple[Path, ...] = flag((), "review files, instead of the folder's", AMAZON_FLAGS)
    meta: tuple[Path, ...] = flag((), "metadata files, instead of the folder's", AMAZON_FLAGS)
    no_metadata: bool = flag(False, "read no metadata: all items are of one category", AMAZON_FLAGS)
    input_format: str = flag(
        AMAZON,
        "amazon (the default), or tables of your own: csv (with a header) or parquet",
        choices=(AMAZON, CSV, PARQUET),
    )
    interactions: tuple[Path, ...] = flag(
        (), "tables with a row for each event: files, folders of part files, patterns", TABLE_FLAGS
    )
    user_column: str = flag("user_id", "who: integers or text", TABLE_FLAGS)
    item_column: str = flag("item_id", "what: integers or text", TABLE_FLAGS)
    time_column: str = flag("time", "when: numbers or ISO timestamps", TABLE_FLAGS)
    rating_column: str = flag("rating", "how much, for --min_rating: numbers", TABLE_FLAGS)
    user_features: tuple[str, ...] = flag(
        (), "columns of --users, or else of --interactions", TABLE_FLAGS, nargs=None, metavar="A,B"
    )
    item_features: tuple[str, ...] = flag(
        (), "columns of --items, or else of --interactions", TABLE_FLAGS, nargs=None, metavar="A,B"
    )
    users: Path | None = flag(None, "table of users, with --user_column", TABLE_FLAGS)
    items: Path | None = flag(None, "table of items, with --item_column", TABLE_FLAGS)
    delimiter: str = flag(
        ",", "of CSV files: a character, or 'tab' (default ',')", TABLE_FLAGS, type=parse_delimiter
    )
    missing_values: tuple[str, ...] = flag(
        MISSING_VALUES, MISSING_HELP, type=parse_missing, nargs=None, metavar="TEXTS"
    )
    category_list: str = flag(
        LAST_LIST,
        "list of category names whose last name is an item's category: last (the default), or "
        "first, as the original takes it",
        AMAZON_FLAGS,
        choices=CATEGORY_LISTS,
    )
    min_rating: float | None = flag(
        None, "leave out events with a lower rating (default: all events count)", _SAMPLES
    )
    min_events: int = flag(
        20,
        "leave out users with fewer events",
        _SAMPLES,
        alias="--shortest_sequence_for_user",
        at_least=2,
    )
    max_history: int = flag(
        100, "length of a history", _SAMPLES, alias="--max_sequence_length", at_least=1
    )
    min_training_history: int = flag(
        1,
        "leave out training samples with a shorter history",
        _SAMPLES,
        alias="--shortest_sequence_for_training",
        at_least=1,
    )
    validation_event: bool = flag(
        False, "keep each user's event before the last for validation/", _SAMPLES
    )
    negatives: str = flag(
        UNIFORM,
        "distribution of negative items: uniform over all items but the positive one (the "
        "default), or in proportion to the items' numbers of events, as the original draws them",
        _SAMPLES,
        choices=NEGATIVES,
    )
    seed: int = flag(
        0,
        "of the negatives, and of the order of ties where that of the log is by item",
        _SAMPLES,
        at_least=0,
    )
    strict: bool = flag(False, STRICT_HELP)
    on_bad_line: str = flag(
        "error",
        "malformed lines (at most 1 %%) and rows without a user, item or time: stop at the first, "
        "or leave them out and count them. Values that are not times are errors either way",
        choices=("error", "skip"),
    )
    engine: str = flag(
        "duckdb",
        "what reads, numbers and sorts; all give the same rows (default: nvtabular where there is "
        "a GPU with cuDF, else duckdb). spark works on a cluster; this machine writes the rows",
        choices=("duckdb", "spark", "nvtabular"),
    )

    @property
    def bad_lines(self) -> str:
        """`on_bad_line` of `Engine.read`."""
        return "skip" if self.on_bad_line == "skip" else "fail"

    def __post_init__(self):
        super().__post_init__()
        if self.seed >= 1 << 64:
            raise ValueError(f"--seed must be below 2^64, got {self.seed}")
        names = ("user_column", "item_column", "time_column")
        check_columns(self.delimiter, {name: getattr(self, name) for name in names})
        self._check_sources()

    def _check_sources(self):
        if self.input_format != AMAZON:
            if not self.interactions:
                raise ValueError(
                    f"--input_format {self.input_format} needs --interactions: files with a row "
                    "for each event"
                )
        elif self.amazon_dataset_path is None and not (
            self.reviews and (self.meta or self.no_metadata)
        ):
            raise ValueError(
                "--amazon_dataset_path is missing: the folder of reviews_*.json and meta_*.json "
                "(or give --reviews and --meta; or other logs with --input_format csv or parquet)"
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
