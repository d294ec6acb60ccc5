"""Flags of `python -m deployment.predict`."""

import os
from dataclasses import MISSING, dataclass

from config import command
from config.command import CommandOptions, refuse
from config.flag import Need, Values, flag, requires
from dataloading.spec.data_set_files import SPEC_FILE
from preproc.checks.report import STRICT_HELP
from preproc.engines.size_flags import parse_bytes

LOCAL, SPARK = "local", "spark"  # engines
_DEFAULT_MEMORY_BYTES = {LOCAL: 10**9, SPARK: 4 * 10**9}


def _is_on_machine(flags: Values) -> bool:
    return str(flags.value("master") or "local").startswith("local")


def _reads_data_set(flags: Values) -> bool:
    return bool(flags.value("is_data_set"))


_TABLE = Need("with a table as --input", lambda flags: not _reads_data_set(flags))
_DATA_SET = Need("with a data set as --input", _reads_data_set)
_OWN_MACHINE = Need("with a local --master", _is_on_machine)


@dataclass(frozen=True)
class PredictOptions(CommandOptions):
    """Scores the rows of a table or a data set by a deployed model, without a server."""

    model: str = flag(MISSING, "repository with one model, model's or version folder")
    input: str = flag(
        MISSING,
        "raw rows: what preproc.transcode reads, a file (.csv, .tsv, .parquet, .jsonl; text "
        "also .gz or .zst) or a folder of such files; or the folder of an encoded data set in "
        "split binaries",
    )
    mapping: str | None = flag(
        None,
        "split of a data set's folder, e.g. test (default: the only one)",
        metavar="SPLIT",
        needs=(_DATA_SET,),
    )
    output: str | None = flag(
        None,
        "file for the scores: .csv or .parquet (columns row and score), or .npy (float32 "
        "[rows]); it appears when it is complete (default: stdout, as CSV, some 65,000 rows at a "
        "time: after a bad row, with exit status 2, earlier scores are there)",
        metavar="FILE",
    )
    keep: tuple[str, ...] = flag(
        (),
        "columns of --input that are written before the scores",
        metavar="A,B",
        needs=(_TABLE,),
    )
    on_bad_line: str = flag(
        "fail",
        "fail (default) at a line of text that is not a row, or skip up to 1 % of them",
        choices=("fail", "skip"),
        needs=(_TABLE,),
    )
    strict: bool = flag(False, STRICT_HELP, needs=(_TABLE,))
    no_header: bool = flag(
        False,
        "a table of CSV without a header: its columns are c1, c2 and so on, as in transcode",
        needs=(_TABLE,),
    )
    engine: str = flag(
        LOCAL,
        "local (default): this process; spark: a cluster, for tables of any size; --output is "
        "a new folder of part files then, which all workers must see",
        choices=(LOCAL, SPARK),
    )
    master: str | None = flag(
        None,
        "of Spark (default: local[--threads], or that of spark-submit)",
        metavar="URL",
        needs=(requires("engine", SPARK),),
    )
    spark_conf: tuple[str, ...] = flag(
        (),
        "setting of Spark, repeatable",
        metavar="KEY=VALUE",
        is_repeated=True,
        needs=(requires("engine", SPARK),),
    )
    memory_limit_bytes: int | None = flag(
        None,
        "memory for the rows of a table (default 1GB), in addition to tables of the model and "
        "some 350 MB; of a local master of Spark, all of its heap (default 4GB)",
        metavar="SIZE",
        parse=parse_bytes,
        needs=(_TABLE, _OWN_MACHINE),
    )
    batch_size: int | None = flag(None, "maximum rows per batch (default: the model's)", at_least=1)
    threads: int = flag(
        0, "threads per batch (default: one per core)", at_least=0, needs=(_OWN_MACHINE,)
    )

    @property
    def is_data_set(self) -> bool:
        """True if the input is the folder of an encoded data set, False of a table."""
        return os.path.isfile(os.path.join(self.input, SPEC_FILE))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory_limit_bytes is None:
            object.__setattr__(self, "memory_limit_bytes", _DEFAULT_MEMORY_BYTES[self.engine])
        on_spark = self.engine == SPARK
        refuse(
            {
                "--engine spark: expected --output, a folder (.parquet or .csv)": on_spark
                and not self.output,
                "--engine spark: expected a table as --input, got a data set": on_spark
                and self.is_data_set,
            }
        )

    def check_passed(self, passed: frozenset[str]) -> None:
        """Raises ValueError for a flag of the command line without effect."""
        super().check_passed(passed)
        refuse({"--keep: expected --output, .parquet or .csv": self.keep and not self.output})


def parse(argv: list[str] | None = None) -> PredictOptions:
    """Reads the command line; raises ValueError as `command.parse` does."""
    return command.parse(
        PredictOptions,
        argv,
        "deployment.predict",
        epilog="A table has the columns of the model's encoder, as the file that the data set was "
        "made from; others are ignored. The columns of a model without an encoder are its "
        "features, with ids and numbers as in training. A list is a list in Parquet and JSON, and "
        "separated by ';' in text. Rows are counted from 0 in the output, and from 1 in messages.",
    )
