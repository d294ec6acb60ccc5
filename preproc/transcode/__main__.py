"""Your own tables -> a data set of split binaries to train on, with its encoder.

    python -m preproc.transcode --input shop.csv --label bought --split 0.8,0.1,0.1 \\
        --output data/shop
    python -m preproc.transcode --input raw --output data/mine --categorify all

`docs/reference/transcode.md` explains the simplified feature spec of a folder of raw files.
"""

import os
import sys
from pathlib import Path

from preproc.arguments import run_command
from preproc.engines.open_engine import open_engine
from preproc.transcode.known import parse_date
from preproc.transcode.run import Run
from preproc.transcode.transcode_flags import TOOL, TranscodeOptions
from runtime.files.outputs import DATA_SET
from runtime.files.staging import Staging

_DEFAULT_MEMORY_BYTES = {"duckdb": 10**9, "spark": 4 * 10**9}


def main(argv: list[str] | None = None) -> int:
    """Runs the tool; returns the status of `runtime.cli.exit_status`."""
    interrupted = "interrupted; nothing was written under --output"
    return run_command("transcode", TranscodeOptions, run, interrupted, argv)


def run(flags: TranscodeOptions) -> str:
    """Transcodes as requested by the flags; returns a report for people."""
    parse_date(flags.date)
    source = Path(flags.input)
    known = [] if flags.vocabulary is None else [Path(flags.vocabulary)]
    read = [source, source / flags.feature_spec_in, *known]
    output = Path(flags.output)
    with (
        Staging(output, TOOL, DATA_SET, flags.overwrite, read, resumes=False) as staging,
        open_engine(
            flags.engine,
            staging.scratch,
            memory_limit_bytes=flags.memory_limit_bytes or _DEFAULT_MEMORY_BYTES[flags.engine],
            threads=len(os.sched_getaffinity(0)),
            master=flags.master,
            spark_conf=flags.spark_conf,
        ) as engine,
    ):
        report = Run(flags, engine, staging.data).transcode()
        staging.publish()
    return report


if __name__ == "__main__":
    sys.exit(main())
