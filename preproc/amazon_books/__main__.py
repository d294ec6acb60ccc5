"""Prepares reviews, or any log of who did what when, for SIM, DIEN and DIN.

python -m preproc.amazon_books --amazon_dataset_path raw --output_path parquet
"""

import sys

from dataloading.engines import environment
from preproc.amazon_books.arguments import parse
from preproc.amazon_books.prepare import prepare
from runtime.cli import exit_status


def main(argv: list[str] | None = None) -> int:
    """Runs a command, by default that of this process; see `runtime.cli.exit_status`."""

    def work() -> None:
        options = parse(argv)
        if argv is None:
            environment.enter(options.engine, "preproc.amazon_books")
        rows = prepare(options)
        counts = ", ".join(f"{name} {count:,} rows" for name, count in rows.items())
        print(f"{options.output_path}: {counts}")

    return exit_status(work, "interrupted; nothing was made")


if __name__ == "__main__":
    sys.exit(main())
