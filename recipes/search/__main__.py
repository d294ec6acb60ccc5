"""Searches flags of a recipe by the metric of validation samples, with Optuna.

    python -m recipes.search dlrm --study clicks --trials 50 --workers 2 \\
        --param learning_rate=log:1e-4..1e-1 --param embedding_dim=choice:16,32 \\
        -- --dataset_path data/clicks --evals_per_epoch 4

A repeated command resumes the search. Flags after -- are those of the recipe, for all trials.
"""

import sys
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path

from config.command import CommandOptions, parse
from config.flag import flag
from recipes.registry import BY_NAME, OWN_RECIPE, definition_of
from recipes.search.search import Search, run
from recipes.search.space import SYNTAX, parse_parameters
from runtime.cli import exit_status


def _check_name(text: str) -> None:
    if not text.replace("-", "_").replace(".", "_").isidentifier():
        raise ValueError(
            f"--study: expected letters, digits, '_', '-' and '.', not first a digit, got {text!r}"
        )


@dataclass(frozen=True)
class SearchOptions(CommandOptions):
    """Recipe, flags to vary, and number of trials."""

    recipe: str = flag(
        MISSING, f"recipe: {', '.join(BY_NAME)}, or {OWN_RECIPE}", is_positional=True
    )
    study: str = flag(MISSING, "name of the search", metavar="NAME", check=_check_name)
    storage: Path | None = flag(
        None, "file of SQLite with its trials (default runs/search/NAME.db)", metavar="FILE"
    )
    trials: int = flag(50, "trials in all, complete or pruned, of earlier runs too", at_least=1)
    workers: int = flag(1, "trainings at a time, a process each", at_least=1)
    param: tuple[str, ...] = flag(
        (),
        f"flag to vary, any number of times: {SYNTAX}; choices with commas: A|B",
        is_repeated=True,
        metavar="FLAG=KIND:VALUES",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the search; returns the exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    own, flags = argv, list[str]()
    if "--" in argv:
        own, flags = argv[: argv.index("--")], argv[argv.index("--") + 1 :]

    def search() -> None:
        try:
            options = parse(SearchOptions, own, "recipes.search", str(__doc__))
        except ValueError as error:
            if "unrecognized" not in str(error):
                raise
            raise ValueError(f"{error}; flags of the trainings follow after --") from None
        definition = definition_of(options.recipe)
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


if __name__ == "__main__":
    sys.exit(main())
