"""The command line of `python -m preproc.transcode`."""

import functools
from dataclasses import dataclass
from pathlib import Path

from config import command
from config.command import CommandOptions
from config.flag import excludes, flag, requires
from dataloading.spec.data_set_files import ENCODER_FOLDER, SPEC_FILE
from dataloading.spec.feature_spec import TEST, TRAIN, VALIDATION
from preproc.arguments import MISSING_HELP, parse_missing
from preproc.checks.report import STRICT_HELP
from preproc.engines.size_flags import parse_bytes
from preproc.fitting.transformation import TRANSFORMATIONS
from preproc.transcode.per_feature import ALL
from preproc.transcode.raw.split import DEFAULT_SHARES, SplitRequest, parse_shares

TOOL = "preproc.transcode"
ENGINES = DUCKDB, SPARK = ("duckdb", "spark")
_role_flag = functools.partial(flag, group="columns of an --input without a feature spec")
_spark_flag = functools.partial(flag, needs=(requires("engine", SPARK),))
ROLES = ("label", "categorical", "numerical", "drop", "keep", "user", "item")


@dataclass(frozen=True)
class TranscodeOptions(CommandOptions):
    """Encodes tables as a data set of split binaries with a feature spec and an encoder.

    --output appears when it is whole.

    Raises:
        ValueError: a value out of range, or flags that contradict each other.
    """

    input: str = flag(
        ".",
        "a file (.csv, .tsv, .parquet, .jsonl; text also .gz or .zst), or a folder of such files, "
        "whose columns are inferred; or a folder with a simplified feature spec (default: the "
        "working folder)",
        alias="--path",
        metavar="PATH",
    )
    feature_spec_in: str = flag(
        SPEC_FILE, "its simplified feature spec, relative to --input", metavar="FILE"
    )
    output: str = flag("/data", "folder of the data set; new or empty", metavar="DIR")
    feature_spec_out: str = flag(SPEC_FILE, "name of its feature spec", metavar="FILE")
    categorify: str | None = flag(
        None,
        f"--input FOLDER with a feature spec: features, comma-separated, or '{ALL}' that are ids: "
        "texts or any whole numbers become ids by falling count in the training rows; 0 is for "
        "missing and unknown values (an --input file: all of them)",
        metavar="FEATURES",
    )
    frequency_threshold: str | None = flag(
        None,
        "values of ids that occur fewer than T times in train become id 0; 'auto' (default) is 2, "
        "up to 10 for features of which many values occur once, 0 for users and items",
        metavar="T",
    )
    hash_buckets: str | None = flag(
        None,
        "features whose id is a hash of the value, modulo N; comma-separated",
        metavar="FEATURE=N",
    )
    vocabulary: str | None = flag(
        None,
        "encode as this data set of an earlier run is encoded, to predict more rows: its folder, "
        f"or its feature spec where that is not named {SPEC_FILE}",
        metavar="DIR_OR_FILE",
    )
    date: str | None = flag(
        None,
        "day of the rows, e.g. 2026-11-26: the vocabularies keep for each value the last day on "
        "which it occurred in train, for --evict_after",
        metavar="DATE",
    )
    split: str | None = flag(
        None,
        "divide the rows of train into train, validation and test, by shares such as "
        f"{DEFAULT_SHARES}, at random",
        metavar="SHARES",
    )
    split_by_time: str | None = flag(
        None,
        "divide them in the order of this column, numbers or ISO 8601 dates or times (shares: "
        f"--split, default {DEFAULT_SHARES})",
        metavar="COLUMN",
    )
    fill_missing: str | None = flag(
        None,
        "fill missing numbers with 'mean' (of train; the default for an --input file), 0 or "
        "another value; per feature: price=mean,age=0. With --vocabulary: those that its data set "
        "does not fill",
        metavar="HOW",
    )
    transform: str | None = flag(
        None,
        f"transformation of numbers, one of {', '.join(TRANSFORMATIONS)}; per feature: "
        "price=log,age=bins (default: auto for an --input file, none for a folder with a feature "
        "spec)",
        metavar="HOW",
    )
    missing_values: tuple[str, ...] | None = flag(
        None, MISSING_HELP, metavar="TEXTS", parse=parse_missing
    )
    positive: str | None = flag(
        None,
        "value of the label that is 1; every other value is 0 (default: 1 of 0 and 1, true, yes, "
        "y or t, and the larger one of -1 and 1, or of 1 and 2)",
        metavar="VALUE",
    )
    label_above: float | None = flag(
        None, "labels are numbers: 1 above X, otherwise 0", metavar="X"
    )
    memory_limit_bytes: int | None = flag(
        None,
        "memory (default 1GB): DuckDB gets all but 256 MiB, the process may take some 100 MiB "
        "more. With --engine spark, memory of the driver (default 4GB), which is all of Spark with "
        "a local --master",
        metavar="SIZE",
        parse=parse_bytes,
    )
    master: str | None = _spark_flag(
        None,
        "--engine spark: local[N], spark://HOST:PORT, yarn or k8s://URL (default: local[*]). A "
        "cluster's memory is set by spark-submit or --spark_conf",
        metavar="URL",
    )
    label: str | None = _role_flag(None, "the column to predict, of two values", metavar="COLUMN")
    categorical: str | None = _role_flag(
        None, "columns, comma-separated, to take as categorical", metavar="COLUMNS"
    )
    numerical: str | None = _role_flag(None, "columns to take as numerical", metavar="COLUMNS")
    drop: str | None = _role_flag(None, "columns to leave out", metavar="COLUMNS")
    keep: str | None = _role_flag(
        None, "columns to keep although a check would leave them out", metavar="COLUMNS"
    )
    user: str | None = _role_flag(None, "the users of interactions, for ncf.py", metavar="COLUMN")
    item: str | None = _role_flag(None, "the items of interactions", metavar="COLUMN")
    engine: str = flag(
        DUCKDB,
        "what does the work: duckdb (this machine, the default) or spark (a cluster); rows, ids "
        "and vocabularies agree",
        choices=ENGINES,
    )
    spark_conf: tuple[str, ...] = _spark_flag(
        (), "--engine spark: a setting; may be repeated", is_repeated=True, metavar="KEY=VALUE"
    )
    on_bad_line: str = flag(
        "fail",
        "fail (default) at a row with a wrong number of fields, or skip up to 1 % of them",
        choices=("fail", "skip"),
    )
    no_header: bool = flag(
        False,
        "--input of CSV files without a header, whose columns are called c1, c2 and so on",
    )
    grow: bool = flag(
        False,
        "with --vocabulary: values that are frequent enough in train and have no id there get new "
        "ids, after its ids",
        needs=(requires("vocabulary"),),
    )
    evict_after: int | None = flag(
        None,
        "with --grow and --date: remove values that did not occur in train in the last N days, "
        "that of --date included",
        needs=(requires("grow"),),
    )
    allow_mostly_new: bool = flag(
        False,
        "with --grow: allow more than half of the values of a feature to be new",
        needs=(requires("grow"),),
    )
    split_seed: int = flag(
        0,
        "seed of --split (default 0)",
        at_least=0,
        needs=(requires("split"), excludes("split_by_time")),
    )
    missing_indicator: bool = flag(
        False,
        "a feature NAME_missing, 0 or 1, for each filled number that misses values in train; with "
        "--input this is the default",
    )
    no_missing_indicator: bool = flag(
        False, "with --input: fill missing numbers without a feature that marks them"
    )
    strict: bool = flag(False, STRICT_HELP)
    overwrite: bool = flag(
        False, "replace a data set at --output, at the end; its spec is --feature_spec_out"
    )

    @property
    def split_request(self) -> SplitRequest | None:
        """Division of the rows by --split, --split_seed and --split_by_time; None without them."""
        if self.split is None and self.split_by_time is None:
            return None
        shares = parse_shares(self.split or DEFAULT_SHARES)
        return SplitRequest(shares, self.split_seed, self.split_by_time)

    def __post_init__(self):
        super().__post_init__()
        if self.positive is not None and self.label_above is not None:
            raise ValueError(
                "--positive and --label_above both define labels of 1: give one of the two"
            )
        if self.date is not None and self.vocabulary is not None and not self.grow:
            raise ValueError("--date and --vocabulary: expected --grow, other vocabularies stay")
        is_read_here = () if self.engine == SPARK else ("input",)
        for name in ("output", "vocabulary", *is_read_here):
            if "://" in (getattr(self, name) or ""):
                only = f", or --engine {SPARK}, which reads it" if name == "input" else ""
                raise ValueError(
                    f"--{name} {getattr(self, name)}: expected a path of this machine{only}"
                )
        spec_file, request = self.feature_spec_out, self.split_request
        folders = (*(request.shares if request else (TRAIN, VALIDATION, TEST)), ENCODER_FOLDER)
        if Path(spec_file).name != spec_file or spec_file in ("", "..", *folders):
            raise ValueError(
                f"--feature_spec_out is '{spec_file}'; expected a file name without a folder, "
                f"other than {', '.join(folders)}, the folders of the data set"
            )
        if self.feature_spec_in != SPEC_FILE and not Path(self.input).is_dir():
            raise ValueError(
                f"--feature_spec_in: expected a folder with this file as --input, got {self.input}"
            )


def parse(argv: list[str] | None = None) -> TranscodeOptions:
    """Reads the command line; raises ValueError as `TranscodeOptions` does."""
    return command.parse(TranscodeOptions, argv, TOOL)
