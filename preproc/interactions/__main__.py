"""Prepares ratings, or any log of who touched what when, for NCF.

python -m preproc.interactions --input likes.csv --user_column who --item_column what \\
    --time_column at --output data/likes
"""

import functools
import sys
from collections.abc import Mapping

from preproc.arguments import run_command
from preproc.interactions.options import parse
from preproc.interactions.prepare import prepare


def main(
    argv: list[str] | None = None, name: str = "interactions", preset: Mapping[str, str] = {}
) -> int:
    """Runs a command, by default that of this process; see `runtime.cli.exit_status`.

    Args:
        argv: the command line.
        name: of the command in `preproc`.
        preset: its defaults of flags that differ.
    """
    read = functools.partial(parse, tool=f"preproc.{name}", preset=preset)
    return run_command(name, read, prepare, "interrupted; nothing was made", argv)


if __name__ == "__main__":
    sys.exit(main())
