"""Prepares ratings, or any log of who touched what when, for NCF.

python -m preproc.interactions --input likes.csv --user_column who --item_column what \\
    --time_column at --output data/likes
"""

import sys
from collections.abc import Mapping

from preproc.arguments import run_command
from preproc.interactions.options import InteractionLogOptions
from preproc.interactions.prepare import prepare


def main(
    argv: list[str] | None = None, name: str = "interactions", preset: Mapping[str, str] = {}
) -> int:
    """Runs a command, by default that of this process; see `preproc.arguments.run_command`."""
    interrupted = "interrupted; nothing was made"
    return run_command(name, InteractionLogOptions, prepare, interrupted, argv, preset)


if __name__ == "__main__":
    sys.exit(main())
