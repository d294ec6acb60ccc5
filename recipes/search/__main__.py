"""Searches flags of a recipe by the metric of validation samples, with Optuna.

    python -m recipes.search dlrm --study clicks --trials 50 --workers 2 \\
        --param learning_rate=log:1e-4..1e-1 --param embedding_dim=choice:16,32 \\
        -- --dataset_path data/clicks --evals_per_epoch 4

A repeated command resumes the search. Flags after -- are those of the recipe, for all trials.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from recipes.registry import BY_NAME
from recipes.search.search import Search, run
from recipes.search.space import SYNTAX, parse_parameters
from runtime.cli import exit_status
from runtime.options import tool_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the search; returns the exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    own, flags = argv, list[str]()
    if "--" in argv:
        own, flags = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    options = _parser().parse_args(own)

    def search() -> None:
        definition = BY_NAME[options.recipe]
        storage = options.storage or Path("runs/search") / f"{options.study}.db"
        storage.parent.mkdir(parents=True, exist_ok=True)
        run(
            Search(
                definition=definition,
                arguments=flags,
                parameters=parse_parameters(options.param, definition),
                study=options.study,
                storage=storage,
                num_trials=options.trials,
                num_workers=options.workers,
            )
        )

    return exit_status(search, "interrupted: the same command resumes the search")


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(
        "recipes.search", __doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("recipe", choices=list(BY_NAME))
    add("--study", required=True, type=_name, metavar="NAME", help="name of the search")
    text = "file of SQLite with its trials (default runs/search/NAME.db)"
    add("--storage", type=Path, metavar="FILE", help=text)
    text = "trials in all, complete or pruned, of earlier runs too (default %(default)s)"
    add("--trials", type=_positive, default=50, metavar="N", help=text)
    text = "trainings at a time, a process each (default %(default)s)"
    add("--workers", type=_positive, default=1, metavar="N", help=text)
    text = f"flag to vary, any number of times: {SYNTAX}; choices with commas: A|B"
    add("--param", action="append", default=[], metavar="FLAG=KIND:VALUES", help=text)
    return parser


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {text}")
    return number


def _name(text: str) -> str:
    if not text or not text.replace("-", "_").replace(".", "_").isidentifier():
        raise argparse.ArgumentTypeError(
            f"expected letters, digits, '_', '-' and '.', not first a digit, got {text!r}"
        )
    return text


if __name__ == "__main__":
    sys.exit(main())
