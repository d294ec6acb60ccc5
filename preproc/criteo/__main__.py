"""Prepares raw Criteo click logs for training.

python -m preproc.criteo --input raw --output data --frequency_threshold 15 --days 0-23
"""

import sys

from dataloading.engines import environment
from preproc.criteo.options import parse
from preproc.criteo.prepare import prepare
from runtime.cli import exit_status


def main(argv: list[str] | None = None) -> int:
    """Runs a command, by default that of this process; see `runtime.cli.exit_status`."""

    def work() -> None:
        options = parse(argv)
        if argv is None:
            environment.enter(options.engine, "preproc.criteo")
        prepare(options)

    return exit_status(work, "interrupted; run it again to resume")


if __name__ == "__main__":
    sys.exit(main())
