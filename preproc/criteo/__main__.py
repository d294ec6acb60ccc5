"""Prepares raw Criteo click logs for training.

python -m preproc.criteo --input raw --output data --frequency_threshold 15 --days 0-23
"""

import sys

from preproc.criteo import INTERRUPTED, USER_ERROR
from preproc.criteo.arguments import parse
from preproc.criteo.estimate import estimate
from preproc.criteo.prepare import prepare


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 when the data set (or estimate) is there, 2 (130 for Ctrl-C) with
    a message otherwise."""
    try:
        options = parse(argv)
        if options.estimate:
            print(estimate(options).report())
        else:
            prepare(options)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print("interrupted; run it again to go on", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
