"""Your own tables -> a data set of split binaries to train on, with its encoder.

    python -m preproc.transcode --input shop.csv --label bought --split 0.8,0.1,0.1 \\
        --output data/shop
    python -m preproc.transcode --input raw --output data/mine --categorify all

`docs/reference/transcode.md` explains the simplified feature spec of a folder of raw files.
"""

import argparse
import os
import sys
from pathlib import Path

from dataloading.spec.data_set_files import ENCODER_FOLDER, SPEC_FILE
from dataloading.spec.feature_spec import TEST, TRAIN, VALIDATION
from preproc.engines import environment
from preproc.engines.memory import parse_bytes
from preproc.engines.open_engine import open_engine
from preproc.transcode.arguments import SPARK, TOOL, parser
from preproc.transcode.known import parse_date
from preproc.transcode.raw.split import parse_split
from preproc.transcode.run import Run
from runtime.cli import exit_status
from runtime.files.outputs import DATA_SET
from runtime.files.staging import Staging

_DEFAULT_MEMORY = {"duckdb": "1GB", "spark": "4GB"}


def main(argv: list[str] | None = None) -> int:
    """Runs the tool; returns the status of `runtime.cli.exit_status`."""
    flags = parser().parse_args(argv)

    def work() -> None:
        if argv is None:
            environment.enter(flags.engine, TOOL)
        print(run(flags))

    return exit_status(work, "interrupted; nothing was written under --output")


def run(flags: argparse.Namespace) -> str:
    """Transcodes as requested by the flags; returns a report for people."""
    _check(flags)
    source = Path(flags.input)
    known = [] if flags.vocabulary is None else [Path(flags.vocabulary)]
    read = [source, source / flags.feature_spec_in, *known]
    memory = parse_bytes(flags.memory_limit or _DEFAULT_MEMORY[flags.engine])
    output = Path(flags.output)
    with (
        Staging(output, TOOL, DATA_SET, flags.overwrite, read, resumes=False) as staging,
        open_engine(
            flags.engine,
            staging.scratch,
            memory_limit_bytes=memory,
            threads=len(os.sched_getaffinity(0)),
            master=flags.master,
            spark_conf=tuple(flags.spark_conf or ()),
        ) as engine,
    ):
        report = Run(flags, engine, staging.data).transcode()
        staging.publish()
    return report


def _check(flags: argparse.Namespace) -> None:
    """Raises ValueError for flags that do not fit together."""
    spec_file = flags.feature_spec_out
    if Path(spec_file).name != spec_file or spec_file in ("", ".."):
        raise ValueError(
            f"--feature_spec_out is '{spec_file}'; expected a file name without a folder, the file "
            "is in --output"
        )
    _check_engine(flags)
    split = parse_split(flags)
    if spec_file in (*(split.shares if split else (TRAIN, VALIDATION, TEST)), ENCODER_FOLDER):
        raise ValueError(
            f"--feature_spec_out is '{spec_file}', the name of a folder of the data set; choose "
            "another"
        )
    if flags.feature_spec_in != SPEC_FILE and not Path(flags.input).is_dir():
        raise ValueError(
            f"--feature_spec_in: expected a folder with this file as --input, got {flags.input}"
        )
    parse_date(flags.date)
    if flags.grow and flags.vocabulary is None:
        raise ValueError("--grow is for the ids of an earlier data set: expected --vocabulary DIR")
    if flags.evict_after is not None and not flags.grow:
        raise ValueError("--evict_after is for vocabularies that grow: expected --grow")
    if flags.allow_mostly_new and not flags.grow:
        raise ValueError("--allow_mostly_new is for vocabularies that grow: expected --grow")
    if flags.date is not None and flags.vocabulary is not None and not flags.grow:
        raise ValueError("--date and --vocabulary: expected --grow, other vocabularies stay")


def _check_engine(flags: argparse.Namespace) -> None:
    for name in ("master", "spark_conf") if flags.engine != SPARK else ():
        if getattr(flags, name) is not None:
            raise ValueError(f"--{name} is only read with --engine {SPARK}; leave it out")
    for name in ("output", "vocabulary", *(() if flags.engine == SPARK else ("input",))):
        if "://" in (getattr(flags, name) or ""):
            only = f", or --engine {SPARK}, which reads it" if name == "input" else ""
            raise ValueError(
                f"--{name} {getattr(flags, name)}: expected a path of this machine{only}"
            )


if __name__ == "__main__":
    sys.exit(main())
