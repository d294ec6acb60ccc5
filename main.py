"""Command line of every recipe: parse, set up, run a mode, map errors to exit codes.

A recipe such as `dlrm.py` calls `run`. `python main.py --model NAME` is `NAME.py`; without
`--model` it is the recipe that has most of the flags, and `dlrm.py` if several have as many.
"""

import importlib
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import config as configuration
from config import Config
from config.flag import RECIPES
from config.recipe_choice import recipe_of
from dataloading.spec.feature_spec import FeatureSpec
from recipes.from_flags import load_feature_spec
from runtime.cluster import launcher
from runtime.start_messages import hide_start_messages
from training import setup
from training.errors import USER_ERROR
from training.failures import report_failure
from training.guard import restart_elastically
from training.modes import MODES


def run(
    recipe: str,
    build: setup.Build,
    doc: str,
    defaults: Mapping[str, Any] | None = None,
    argv: Sequence[str] | None = None,
    *,
    aliases: Mapping[str, str] | None = None,
    flags_of: str | None = None,
    report_plan: Callable[[Config, FeatureSpec | None], str] | None = None,
) -> int:
    """Runs a recipe from its command line; returns the exit code of the process.

    Args:
        recipe: name of the recipe.
        build: composes model and data, see `recipes.recipe.Recipe`.
        doc: text before the flags in `--help`.
        defaults: flags whose default differs.
        argv: the command line; None for that of the process.
        aliases: other names of flags, and the flag that each stands for.
        flags_of: recipe whose flags this one has; None for a built-in recipe.
        report_plan: returns the output of `--plan_only` from the flags and the feature spec.
    """
    argv = sys.argv if argv is None else argv
    hide_start_messages()  # and, by the log level, TensorFlow's traces of errors reported here
    try:
        if "--helpxml" in argv[1:]:
            print(configuration.usage_xml(flags_of or recipe, defaults, aliases), flush=True)
            return 0
        if wanted := {"--help", "-h", "-help", "--helpshort", "--helpfull"} & set(argv[1:]):
            full = "--helpfull" in wanted
            text = configuration.usage(flags_of or recipe, defaults, aliases, full)
            print(doc.strip() + "\n" + text, flush=True)
            return 0
        config = configuration.parse(argv, recipe, defaults, aliases, flags_of)
        if config.distribution.plan_only:
            if report_plan is None:
                raise ValueError(f"--plan_only: the recipe {recipe} has no plan")
            config = setup.with_preset(config)
            text = f"{config.preset_note}\n{report_plan(config, load_feature_spec(config))}"
            if launcher.rank() == 0:  # --plan_measure may be started on several ranks
                print(text)
            return 0
        if config.run.mode == "deploy":
            _write_saved_model(config, config.checkpoint.restore_checkpoint_path)
            return 0
        setup.check_paths(config)
        with restart_elastically(config), setup.open_run(config, build, defaults) as context:
            summary = MODES[context.config.run.mode](context)
            setup.finish(context, summary)
            config, folder = context.config, context.start.folder
        if config.run.mode == "train" and folder is not None:
            _write_saved_model(config, folder.root)
        return 0
    except (Exception, KeyboardInterrupt) as error:
        return report_failure(recipe, error)


def _write_saved_model(config: Config, checkpoint: str | Path | None) -> None:
    """Writes `--saved_model_output_path`, on the first rank."""
    original = config.original
    if not original.saved_model_output_path or checkpoint is None or launcher.rank() != 0:
        return
    from deployment.export import write_saved_model

    output, dataset_path = original.saved_model_output_path, config.data.dataset_path
    write_saved_model(str(checkpoint), output, dataset_path, half_precision=original.fp16)
    if config.run.mode == "train" and "save_checkpoint_path" not in config.explicit:
        shutil.rmtree(checkpoint)  # see `config.command_line`: it was for the SavedModel only
    print(f"deployed to: {output}", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the recipe that the command line names; returns the exit code."""
    argv = list(sys.argv if argv is None else argv)
    try:
        recipe, rest = recipe_of(argv, lambda name: importlib.import_module(name).ALIASES)
    except ValueError as error:
        print(f"main: error: {error}", file=sys.stderr)
        return USER_ERROR
    if {"--help", "-h", "-help", "--helpshort"} & set(rest):
        print(f"python main.py --model {'|'.join(RECIPES)}; flags of {recipe}:\n")
    return int(importlib.import_module(recipe).main(rest))


if __name__ == "__main__":
    sys.exit(main())
