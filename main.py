"""Command line of every recipe: parse, set up, run a mode, map errors to exit codes.

A recipe such as `dlrm.py` calls `run`. `python main.py --model NAME` is `NAME.py`, if there is one,
and `--model module:NAME` a recipe of one's own; without `--model` it is the recipe that has most of
the flags, and `dlrm.py` if several have as many.
"""

import functools
import importlib.util
import sys
from collections.abc import Sequence

from config.command_line import parse
from config.family import Definition
from config.help import usage
from config.recipe_choice import recipe_of
from recipes.execution import execute
from recipes.from_flags import load_feature_spec, report_plan
from recipes.preset_choice import with_preset
from recipes.registry import BY_NAME, definition_of
from runtime.cli import USER_ERROR, exit_status
from runtime.cluster import launcher
from runtime.tensorflow_start import prepare_tensorflow
from training.failures import report_failure

_HELP = {"--help", "-h", "-help", "--helpshort", "--helpfull"}


def run(definition: Definition, doc: str, argv: Sequence[str] | None = None) -> int:
    """Runs a recipe from its command line; returns the exit code of the process.

    Args:
        definition: the recipe.
        doc: text before the flags in `--help`.
        argv: the command line; None for that of the process.
    """
    argv = sys.argv if argv is None else argv
    if _HELP & set(argv[1:]):
        return exit_status(functools.partial(_print_help, definition, doc, argv))
    prepare_tensorflow()  # and, by the log level, TensorFlow's traces of errors reported here
    try:
        config = parse(argv, definition)
        if config.distribution.plan_only:
            if not definition.has_plan:
                raise ValueError(f"--plan_only: the recipe {definition.name} has no plan")
            spec = load_feature_spec(config)
            config = with_preset(config, spec)
            plan = report_plan(config, spec)
            if launcher.rank() == 0:
                print(f"{config.preset_note}\n{plan}")
            return 0
        execute(config)
        return 0
    except (Exception, KeyboardInterrupt) as error:
        return report_failure(definition.name, error)


def _print_help(definition: Definition, doc: str, argv: Sequence[str]) -> None:
    """Prints the flags, with the values for the data set if the command line names one."""
    rest = [word for word in argv if word not in _HELP]
    names = {"dataset_path", *(a for a, to in definition.aliases.items() if to == "dataset_path")}
    config = None
    if names & {word.lstrip("-").partition("=")[0].replace("-", "_") for word in rest}:
        config = parse(rest, definition)
        config = with_preset(config, load_feature_spec(config))
    print(doc.strip())
    print(usage(definition, "--helpfull" in argv, config))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the recipe that the command line names; returns the exit code."""
    argv = list(sys.argv if argv is None else argv)
    try:
        recipe, rest = recipe_of(argv, BY_NAME)
    except ValueError as error:
        print(f"main: error: {error}", file=sys.stderr)
        return USER_ERROR
    if _HELP & set(rest):
        print(f"python main.py --model {'|'.join(BY_NAME)}; flags of {recipe}:\n")
    if recipe in BY_NAME and importlib.util.find_spec(recipe):
        return int(importlib.import_module(recipe).main(rest))
    try:
        definition = definition_of(recipe)
    except ValueError as error:
        return report_failure("main", error)
    return run(definition, f"Trains the recipe {recipe}.", rest)


if __name__ == "__main__":
    sys.exit(main())
