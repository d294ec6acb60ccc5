"""Compares simple models, and a checkpoint, on the test rows of a prepared data set.

    python -m recipes.baseline --dataset_path data/clicks --checkpoint_path runs/clicks/model

Settings of the simple models are chosen by validation rows; without a validation split, by the last
tenth of train. Without a test split, the validation rows are evaluated.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dataloading.spec.data_set_files import SPEC_FILE
from recipes.baseline.compare import compare
from runtime.cli import exit_status
from runtime.options import check_range, tool_parser

MAX_ROWS = 2_000_000


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the comparison; returns the exit status."""
    options = _parser().parse_args(argv)

    def work() -> None:
        check_range("max_rows", options.max_rows, 100)
        folder = options.output or Path("runs") / f"baseline-{options.dataset_path.resolve().name}"
        compare(
            options.dataset_path,
            options.checkpoint_path,
            folder,
            spec_file=options.feature_spec,
            max_rows=options.max_rows,
        )

    return exit_status(work)


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(
        "recipes.baseline", __doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--dataset_path", required=True, type=Path, metavar="DIR", help="folder of the data set")
    text = "name of its feature spec (default %(default)s)"
    add("--feature_spec", default=SPEC_FILE, metavar="FILE", help=text)
    text = "checkpoint, or folder of them, of which the best or newest is compared"
    add("--checkpoint_path", type=Path, metavar="PATH", help=text)
    text = "folder of baseline.json and baseline.png (default runs/baseline-NAME)"
    add("--output", type=Path, metavar="DIR", help=text)
    text = "rows of train that simple models are fitted to, at random of more (default %(default)s)"
    add("--max_rows", type=int, default=MAX_ROWS, metavar="N", help=text)
    return parser


if __name__ == "__main__":
    sys.exit(main())
