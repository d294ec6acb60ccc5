"""Prepares reviews, or any log of who did what when, for SIM, DIEN and DIN.

python -m preproc.amazon_books --amazon_dataset_path raw --output histories
"""

import sys

from preproc.amazon_books.options import AmazonOptions, parse
from preproc.amazon_books.prepare import prepare
from preproc.arguments import run_command


def main(argv: list[str] | None = None) -> int:
    """Runs a command, by default that of this process; see `runtime.cli.exit_status`."""

    def work(options: AmazonOptions) -> str:
        counts = ", ".join(f"{name} {count:,} rows" for name, count in prepare(options).items())
        return f"{options.output_path}: {counts}"

    return run_command("amazon_books", parse, work, "interrupted; nothing was made", argv)


if __name__ == "__main__":
    sys.exit(main())
