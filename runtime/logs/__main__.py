"""Compares runs by their logs, and writes a page of them.

    python -m runtime.logs compare runs/a runs/b --plot runs/comparison.png
    python -m runtime.logs dashboard runs

`compare` prints the flags that differ and the metrics, and draws the learning curves in one
picture. `dashboard` writes one HTML file with all runs of a folder.
"""

import argparse
import sys
from collections.abc import Sequence

from runtime.cli import exit_status
from runtime.logs.compare import draw_curves, read_run, report
from runtime.logs.dashboard import write_dashboard
from runtime.options import tool_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status, see `exit_status`."""
    flags = _parser().parse_args(argv)
    return exit_status(lambda: flags.work(flags))


def _compare(flags: argparse.Namespace) -> None:
    if flags.plot and not flags.plot.endswith(".png"):
        raise ValueError(f"--plot: expected a file name that ends with .png, got {flags.plot}")
    records = [read_run(path) for path in flags.runs]
    print(report(records), flush=True)
    if flags.plot:
        draw_curves(flags.plot, records)
        print(f"\nplot: {flags.plot}")


def _dashboard(flags: argparse.Namespace) -> None:
    output = flags.output or f"{flags.folder}/dashboard.html"
    number, num_unreadable = write_dashboard(flags.folder, output)
    note = f"; {num_unreadable:,} logs cannot be read, see the page" if num_unreadable else ""
    print(f"{output}: {number:,} runs{note}")


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser("runtime.logs", "Compares runs by their logs, and writes a page of them.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    text = "the flags that differ and the metrics of runs"
    compare = commands.add_parser(
        "compare", help=f"print {text}", description=f"Prints {text}.", allow_abbrev=False
    )
    add = compare.add_argument
    add("runs", nargs="+", metavar="RUN", help="folder of a run, or its log")
    add("--plot", metavar="FILE", help="picture (.png) of the learning curves")
    compare.set_defaults(work=_compare)
    text = "one HTML file with the runs of a folder"
    dashboard = commands.add_parser(
        "dashboard", help=f"write {text}", description=f"Writes {text}.", allow_abbrev=False
    )
    dashboard.add_argument("folder", help="folder with runs, at any depth, such as runs")
    dashboard.add_argument("--output", metavar="FILE", help="(default: FOLDER/dashboard.html)")
    dashboard.set_defaults(work=_dashboard)
    return parser


if __name__ == "__main__":
    sys.exit(main())
