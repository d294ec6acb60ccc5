"""Prepares raw Criteo click logs for training.

python -m preproc.criteo --input raw --output data --frequency_threshold 15 --days 0-23
"""

import sys

from preproc.arguments import run_command
from preproc.criteo.options import CriteoOptions
from preproc.criteo.prepare import prepare


def main(argv: list[str] | None = None) -> int:
    """Runs a command, by default that of this process; see `runtime.cli.exit_status`."""

    def work(options: CriteoOptions) -> None:
        prepare(options)  # which prints its summary

    return run_command("criteo", CriteoOptions, work, "interrupted; run it again to resume", argv)


if __name__ == "__main__":
    sys.exit(main())
