"""Prepares any log of who did what when, or reviews of Amazon, for SIM, DIEN and DIN.

python -m preproc.histories --interactions plays.csv --user_column who --item_column what \\
    --time_column at --output histories
"""

import sys
from collections.abc import Mapping

from preproc.arguments import run_command
from preproc.histories.options import HistoryOptions
from preproc.histories.prepare import prepare


def main(
    argv: list[str] | None = None, name: str = "histories", preset: Mapping[str, str] = {}
) -> int:
    """Runs a command, by default that of this process; see `preproc.arguments.run_command`."""

    def work(options: HistoryOptions) -> str:
        counts = ", ".join(f"{name} {count:,} rows" for name, count in prepare(options).items())
        return f"{options.output_path}: {counts}"

    return run_command(name, HistoryOptions, work, "interrupted; nothing was made", argv, preset)


if __name__ == "__main__":
    sys.exit(main())
