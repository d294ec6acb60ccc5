"""Command line of every recipe: parse, set up, run a mode, map errors to exit codes.

A recipe such as `dlrm.py` calls `run`. `python main.py` is `dlrm.py`.
"""

import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import config as configuration
from config import Config
from dataloading.spec.feature_spec import FeatureSpec
from recipes.from_flags import load_feature_spec
from runtime.cluster import distributed, signals
from runtime.cluster.elastic import LeftTraining
from runtime.start_messages import hide_start_messages
from training import setup
from training.errors import DIVERGED, INTERRUPTED, STOPPED, USER_ERROR, Stopped, TrainingDiverged
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
        if wanted := {"--help", "-h", "-help", "--helpfull"} & set(argv[1:]):
            full = "--helpfull" in wanted
            text = configuration.usage(flags_of or recipe, defaults, aliases, full)
            print(doc.strip() + "\n" + text, flush=True)
            return 0
        config = configuration.parse(argv, recipe, defaults, aliases, flags_of)
        if config.distribution.plan_only:
            if report_plan is None:
                raise ValueError(f"--plan_only: the recipe {recipe} has no plan")
            config = setup.with_preset(config)
            print(f"{config.preset_note}\n{report_plan(config, load_feature_spec(config))}")
            return 0
        setup.check_paths(config)
        with restart_elastically(config), setup.open_run(config, build, defaults) as context:
            summary = MODES[context.config.run.mode](context)
            setup.finish(context, summary)
        return 0
    except (Exception, KeyboardInterrupt) as error:
        return report_failure(recipe, error)


def report_failure(recipe: str, error: BaseException) -> int:
    """Prints the error that ended a run, once for all ranks; returns the exit code.

    A defect of the program is raised again.
    """
    text, code, is_printed = f"error: {error}", USER_ERROR, True
    match error:
        case distributed.CollectiveError():
            world = distributed.current()
            if world.size > 1:
                signals.ignore_sigterm()
            is_printed = world.is_chief
        case BrokenPipeError():  # later output has no reader either
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            text = "error: stdout was closed by its reader (a pipe, such as `| head`); with "
            text += "--rank_logs a run continues without it"
        case ValueError() | OSError():
            pass
        case TrainingDiverged():
            text, code = f"training diverged: {error}", DIVERGED
            is_printed = distributed.current().is_chief
        case LeftTraining():
            text, code = str(error), error.exit_code
        case Stopped():
            text, code, is_printed = str(error), STOPPED, distributed.current().is_chief
        case KeyboardInterrupt():
            text, code = "interrupted", INTERRUPTED
        case _:
            reason = distributed.failure_message(error)
            if reason is None:
                raise error
            text, code = f"error: {reason}", distributed.RANK_LOST
    if is_printed:
        print(f"{recipe}: {text}", file=sys.stderr)
    return code


if __name__ == "__main__":
    runpy.run_module("dlrm", run_name="__main__")
