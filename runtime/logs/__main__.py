"""Compares runs by their logs.

    python -m runtime.logs compare runs/a runs/b --plot runs/comparison.png

Prints the flags that differ and the metrics, and draws the learning curves in one picture.
"""

import argparse
import sys
from collections.abc import Sequence

from runtime.cli import exit_status
from runtime.logs.compare import draw_curves, read_run, report


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status, see `exit_status`."""
    flags = _parser().parse_args(argv)
    return exit_status(lambda: _compare(flags))


def _compare(flags: argparse.Namespace) -> None:
    records = [read_run(path) for path in flags.runs]
    print(report(records), flush=True)
    if flags.plot:
        draw_curves(flags.plot, records)
        print(f"\nplot: {flags.plot}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m runtime.logs",
        description="Compares runs by their logs.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    compare = commands.add_parser(
        "compare",
        help="print the flags that differ and the metrics of runs",
        description="Prints the flags that differ and the metrics of runs.",
        allow_abbrev=False,
    )
    add = compare.add_argument
    add("runs", nargs="+", metavar="RUN", help="folder of a run, or its log")
    add("--plot", metavar="FILE", help="picture (.png) of the learning curves")
    return parser


if __name__ == "__main__":
    sys.exit(main())
