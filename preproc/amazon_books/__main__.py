"""Prepares reviews, or any log of who did what when, for SIM, DIEN and DIN.

python -m preproc.amazon_books --amazon_dataset_path raw --output_path parquet
"""

import sys

from preproc.amazon_books import INTERRUPTED, USER_ERROR
from preproc.amazon_books.arguments import parse
from preproc.amazon_books.prepare import prepare


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 when the data set is there, 2 (130 for Ctrl-C) with a message
    otherwise."""
    try:
        options = parse(argv)
        rows = prepare(options)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print("interrupted; nothing was made", file=sys.stderr)
        return INTERRUPTED
    counts = ", ".join(f"{name} {count:,} rows" for name, count in rows.items())
    print(f"{options.output_path}: {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
