"""Prepares reviews of Amazon for SIM, DIEN and DIN: `preproc.histories` with their format.

python -m preproc.amazon_books --amazon_dataset_path raw --output histories
"""

import sys

from preproc.histories import __main__ as histories
from preproc.histories.options import AMAZON


def main(argv: list[str] | None = None) -> int:
    """Runs a command, by default that of this process; see `runtime.cli.exit_status`."""
    return histories.main(argv, "amazon_books", {"input_format": AMAZON})


if __name__ == "__main__":
    sys.exit(main())
