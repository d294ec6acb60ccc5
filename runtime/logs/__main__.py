"""Compares runs by their logs, and writes a page of them.

    python -m runtime.logs compare runs/a runs/b --plot runs/comparison.png
    python -m runtime.logs dashboard runs

`compare` prints the flags that differ and the metrics, and draws the learning curves in one
picture. `dashboard` writes one HTML file with all runs of a folder.
"""

import sys
from collections.abc import Sequence
from dataclasses import MISSING, dataclass

from config.command import CommandOptions, parse
from config.flag import flag
from runtime.cli import exit_status
from runtime.logs.compare import draw_curves, read_run, report
from runtime.logs.dashboard import write_dashboard


@dataclass(frozen=True)
class CompareOptions(CommandOptions):
    """Prints the flags that differ and the metrics of runs."""

    runs: tuple[str, ...] = flag(
        MISSING, "folder of a run, or its log", is_positional=True, spaced=True, metavar="RUN"
    )
    plot: str | None = flag(None, "picture (.png) of the learning curves", metavar="FILE")
    sort: str | None = flag(None, "metric by which runs are sorted, the best first", metavar="NAME")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.plot and not self.plot.endswith(".png"):
            raise ValueError(f"--plot: expected a file name that ends with .png, got {self.plot}")


@dataclass(frozen=True)
class DashboardOptions(CommandOptions):
    """Writes one HTML file with the runs of a folder."""

    folder: str = flag(MISSING, "folder with runs, at any depth, such as runs", is_positional=True)
    output: str | None = flag(None, "(default: FOLDER/dashboard.html)", metavar="FILE")
    sort: str | None = flag(
        None,
        "metric by which the runs of a data set are sorted, the best first (default: the first one "
        "that they have, of test samples if one has them)",
        metavar="NAME",
    )


_COMMANDS: dict[str, type[CommandOptions]] = {
    "compare": CompareOptions,
    "dashboard": DashboardOptions,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status, see `exit_status`."""

    def work() -> None:
        text = "Compares runs by their logs, and writes a page of them."
        options: CommandOptions = parse(_COMMANDS, argv, "runtime.logs", text)
        if isinstance(options, CompareOptions):
            records = [read_run(path) for path in options.runs]
            print(report(records, options.sort), flush=True)
            if options.plot:
                draw_curves(options.plot, records)
                print(f"\nplot: {options.plot}")
        elif isinstance(options, DashboardOptions):
            output = options.output or f"{options.folder}/dashboard.html"
            number, num_unreadable = write_dashboard(options.folder, output, options.sort)
            note = f"; {num_unreadable:,} logs cannot be read, see the page"
            print(f"{output}: {number:,} runs{note if num_unreadable else ''}")

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
