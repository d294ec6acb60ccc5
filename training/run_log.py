"""Log of a run, opened from its flags, and its lines at the start."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from distributed_embeddings.collectives import World

from config import flag_file
from config.config import Config
from config.sections import original
from dataloading.spec import data_checks
from recipes.recipe import Recipe
from runtime.checkpoint import Index, is_original
from runtime.files.line_file import set_aside
from runtime.files.outputs import output_file
from runtime.hardware import device
from runtime.logs.dlll import LogNames, unit_of
from runtime.logs.mlflow_tracking import MLflowRun
from runtime.logs.run_folder import FLAGS
from runtime.logs.run_logger import RunLogger
from runtime.readable import readable
from training import checkpoints
from training.state import RunContext


def open_log(
    config: Config,
    recipe: Recipe,
    run_dir: Path,
    world: World,
    total_steps: int | None,
    initial_step: int,
) -> RunLogger:
    """Opens the run's log, whose first line has the flags in effect; a resumed run appends to it.

    The chief also writes the flags to `flags`, a file for `--flagfile`. Log and flags of an earlier
    run in the folder are renamed.
    """
    metrics, goal = recipe.metric_splits(), recipe.goal.metric
    definition, names = config.definition, LogNames()
    if definition.log_names is not None:
        names = definition.log_names(config.run.mode, metrics.get(goal), goal)
    parameters = {"recipe": config.recipe, **config.in_effect(), **device.describe()}
    parameters["ranks"] = world.size
    uri, mlflow_run = config.logs.mlflow_uri, None
    if uri and world.is_chief:
        mlflow_run = MLflowRun(uri, config.recipe, run_dir.name, parameters)
    log = RunLogger(
        config.logs.log_path or run_dir / config.logs.log_filename,
        parameters,
        tensorboard_dir=config.logs.tensorboard_dir,
        mlflow_run=mlflow_run,
        enabled=world.is_chief,
        total_steps=total_steps,
        initial_step=initial_step,
        append=initial_step > 0,
        names=names,
        bar_values=("loss", goal),
        prints_dlll=config.logs.verbose or original.is_requested(config),
    )
    if world.is_chief:
        try:
            if not initial_step:
                set_aside(run_dir / FLAGS)
            with output_file(run_dir / FLAGS) as stream:
                stream.write(flag_file.text(config).encode())
        except OSError as error:
            log.message(f"note: the flags of this run are in no file: {error}")
    for name, split in metrics.items():
        log.metadata(name, format=".5f", split=split)
    for name in names.measurements():
        if name not in metrics:
            unit = unit_of(name)
            log.metadata(name, unit, format=None if unit else ".5f")
    return log


def start_lines(
    run: RunContext,
    notes: Sequence[str | None],
    pretrained: str | None,
    saved: Index | None,
    changed: Sequence[str],
) -> Iterator[str]:
    """Yields what runs, fallbacks, flags without effect, choices to know of, and the checkpoint.

    Args:
        notes: on the set-up.
        pretrained: description of other models that the run starts from.
        saved: the checkpoint that the run starts from.
        changed: flags of a resumed training that differ from the checkpoint's.
    """
    yield _start_block(run)
    config = run.config
    load = config.checkpoint.load_checkpoint_path
    if load and config.run.mode == "train" and run.start.path is None:
        yield f"note: --load_checkpoint_path {load} has no checkpoint: a new training starts"
    if unused := config.unused():
        flags = ", ".join(f"--{name}" for name in unused)
        yield f"note: not used in this run (--mode {config.run.mode}): {flags}"
    is_default = config.device.loss_scale == config.default("loss_scale")
    if not is_default and run.device.compute_dtype == "bfloat16":
        yield "note: --loss_scale is not used, bfloat16 has the range of float32"
    from distributed_embeddings.ops import kernels

    reason = kernels.reason_for_fallback()
    lookup_note = reason and f"TensorFlow's own operations look embeddings up, for {reason}"
    warnings = None
    if config.run.mode == "train" and run.data is not None and run.world.is_chief:
        warnings = data_checks.describe_warnings(run.data.base_directory)
    own = (lookup_note, ranks_note(run), run.start.note, *original.notes(config), warnings)
    for note in filter(None, (*notes, *own, *run.recipe.notes)):
        yield f"note: {note}"
    if pretrained:
        yield f"start from other models: {pretrained}"
    if run.start.path is not None and saved is not None:
        yield from _describe_checkpoint(run, run.start.path, saved, changed)


def ranks_note(run: RunContext) -> str | None:
    """Returns the advice to train on one process; None where several ranks may pay."""
    ranks = run.world.local_size
    shares = run.device.kind == "CPU" and 1 < ranks == run.world.size
    if not shares or run.config.run.mode != "train":
        return None
    return (
        f"{ranks} ranks share the processors and the memory of one machine: one process was faster "
        "at every batch size that was measured (docs/how_to/several_ranks.md)"
    )


def _start_block(run: RunContext) -> str:
    """Returns what runs, on what, by which settings, and where its log is, in a few lines."""
    config, place = run.config, f"{run.device.kind} in {run.device.compute_dtype}"
    facts = {**run.recipe.facts}
    draws = config.run.mode in ("train", "importance") or run.data is None
    facts |= {"seed": str(config.run.seed)} if draws or run.start.path is None else {}
    data = {name: facts.pop(name) for name in list(facts) if name.endswith("_rows")}
    facts |= {"ranks": run.world.size} if run.world.size > 1 else {}
    texts = {
        "data": f"{config.data.dataset_path or 'generated'}  {_listed(data)}",
        "model": f"{config.model_name}, {config.run.mode} on {place}  {_listed(facts)}",
        "preset": config.preset_note.removeprefix("preset "),
        "log": str(run.log.path),
    }
    preset = textwrap.wrap(texts["preset"], 110, break_on_hyphens=False)
    texts["preset"] = f"\n{'':8}".join(preset)
    return "\n".join(f"{name:7} {text}".rstrip() for name, text in texts.items() if text)


def _listed(values: Mapping[str, Any]) -> str:
    return "  ".join(f"{name} {readable(value)}" for name, value in values.items())


def _describe_checkpoint(
    run: RunContext, path: Path, saved: Index, changed: Sequence[str]
) -> Iterator[str]:
    """Yields log lines on the checkpoint that a run starts from, and on `changed` flags."""
    step, total_steps = run.position.step, run.total_steps
    if step:
        text = f"resumed {path} at step {step} of {total_steps}"
        if total_steps is not None and step >= total_steps:
            text += ": nothing is left to do"
        if changed:
            flags = ", ".join(f"--{name} {run.config.value(name)}" for name in changed)
            text += f"; other than before: {flags}"
        yield text
        if saved.description["feature_spec"] != checkpoints.fingerprint(run.data):
            yield "note: the data set has grown; training starts at its first sample"
    elif is_original(path):
        is_whole = "dense" in saved.description["original_layout"]
        rest = "" if is_whole else ": its tables; the MLPs and the interaction are initialized"
        yield f"weights of {path} (NVIDIA's layout{rest})"
    else:
        trained = saved.description.get("recipe", run.config.recipe)
        yield f"weights of {path}" + f", a model of {trained}" * (trained != run.config.recipe)
    current, versions = device.describe(), saved.description.get("versions", {})
    for name in ("python", "tensorflow", "numpy"):
        if versions.get(name, current[name]) != current[name]:
            yield (
                f"note: the checkpoint is of {name} {versions[name]}, this process runs "
                f"{current[name]}"
            )
