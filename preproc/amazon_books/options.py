"""Settings of the preparation of interaction histories."""

from dataclasses import dataclass
from pathlib import Path

from preproc.amazon_books.negatives import UNIFORM
from preproc.arguments import MachineOptions, check_delimiter

AMAZON, CSV, PARQUET = "amazon", "csv", "parquet"


@dataclass(frozen=True)
class AmazonOptions(MachineOptions):
    """One run; `python -m preproc.amazon_books --help` describes each field.

    Raises:
        ValueError: a value out of range, or flags that contradict each other.
    """

    output_path: Path
    amazon_dataset_path: Path | None = None
    reviews: tuple[Path, ...] = ()
    meta: tuple[Path, ...] = ()
    no_metadata: bool = False
    input_format: str = AMAZON
    interactions: tuple[Path, ...] = ()
    user_column: str = "user_id"
    item_column: str = "item_id"
    time_column: str = "time"
    user_features: tuple[str, ...] = ()
    item_features: tuple[str, ...] = ()
    users: Path | None = None
    items: Path | None = None
    delimiter: str = ","
    min_events: int = 20
    max_history: int = 100
    validation_event: bool = False
    negatives: str = UNIFORM
    seed: int = 0
    rows_per_file: int = 200_000
    on_bad_line: str = "error"
    engine: str = "duckdb"

    def __post_init__(self):
        super().__post_init__()
        for name, least in (("min_events", 2), ("max_history", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"--{name} must be {least} or more, got {getattr(self, name)}")
        if self.seed >= 1 << 64:
            raise ValueError(f"--seed must be below 2^64, got {self.seed}")
        if self.rows_per_file < 2 or self.rows_per_file % 2:
            raise ValueError(
                "--rows_per_file must be even, because rows come in pairs, and 2 or more; got "
                f"{self.rows_per_file}"
            )
        check_delimiter(self.delimiter)
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
        columns = (self.user_column, self.item_column, self.time_column)
        if len(set(columns)) < 3:
            raise ValueError(
                "--user_column, --item_column and --time_column must be three columns, got "
                f"{', '.join(columns)}"
            )
        for name, table in (("user", self.users), ("item", self.items)):
            if table is not None and not getattr(self, f"{name}_features"):
                raise ValueError(
                    f"--{name}s {table} needs --{name}_features: which of its columns to take"
                )
