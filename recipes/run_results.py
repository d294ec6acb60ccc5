"""Results of a run: plots and summary, comparison with simple models, SavedModel."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.config import Config
from recipes.baseline.after_training import compare_after_training
from recipes.registry import path_of
from runtime.cluster import launcher
from runtime.files.outputs import SAVED_MODEL, check_folder
from runtime.logs import run_folder
from training.epoch_log import result_columns, result_notes
from training.state import RunContext


@dataclass(frozen=True)
class Result:
    """Results of a run.

    Attributes:
        metrics: the summary of the run, under the names of the log (docs/reference/log.md).
        checkpoint: folder of the training's checkpoints, or the checkpoint that was read; None if
            nothing was saved.
        plots: files of the plots, on rank 0.
        run_dir: folder of the run, with its log and its complete flags; None with `--mode deploy`.
    """

    metrics: dict[str, Any]
    checkpoint: Path | None
    plots: tuple[Path, ...]
    run_dir: Path | None


def check_outputs(config: Config) -> None:
    """Raises ValueError or OSError if results cannot be written or packages for them are absent."""
    if config.original.saved_model_output_path:
        output = Path(config.original.saved_model_output_path)
        check_folder(output, SAVED_MODEL, overwrite=True)
    if config.evaluation.baseline and config.run.mode == "train":
        config.family.check_baseline()
        path_of(config.definition)


def finish(run: RunContext, summary: dict[str, Any]) -> tuple[dict[str, Any], list[Path]]:
    """Adds the best AUC that any model can reach to the summary, draws plots, ends the log.

    Returns:
        The summary under the names of the log, and the plots.
    """
    recipe, mode, drawn = run.recipe, run.config.run.mode, list[Path]()
    if mode not in ("predict", "recommend") and run.world.is_chief:
        best_auc = recipe.best_auc()  # may generate millions of samples
        summary |= {} if best_auc is None else {"best_reachable_auc": best_auc}
    for note in result_notes(run, summary):
        run.log.message(note)
    try:
        if run.world.is_chief and mode in ("train", "eval"):
            drawn = run_folder.draw_plots(run.run_dir, run.log, _pictures(run, summary))
    finally:
        summary = run.log.summary(summary, result_columns(run, summary))
    return summary, drawn


def _pictures(
    run: RunContext, summary: Mapping[str, Any]
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yields the pictures of a training or an evaluation, see `run_folder.draw_plots`."""
    position, recipe, is_training = run.position, run.recipe, run.config.run.mode == "train"
    evaluator = recipe.evaluator if recipe.goal.metric in summary else None
    if is_training:
        curve = {
            "history": position.history,
            "best_reachable_auc": summary.get("best_reachable_auc"),
        }
        curve |= {"split": evaluator.split} if evaluator is not None else {}
        curve |= {"best_step": position.best.step} if position.best is not None else {}
        yield "learning_curve", "learning_curve.png", curve
    if evaluator is not None and (last := evaluator.picture(summary)) is not None:
        step = {"step": position.evaluated_step} if is_training else {}
        yield "evaluation", "roc.png", run.kept_picture or {**last, **step}


def result_of(run: RunContext, summary: dict[str, Any], plots: list[Path]) -> Result:
    """Returns the result of a run whose log is closed; of a training, with what follows it."""
    config, folder = run.config, run.start.folder
    if config.evaluation.baseline and folder is not None and run.world.is_chief:
        assert run.data is not None
        recipe = path_of(config.definition)
        plots += compare_after_training(Path(run.data.origin), folder.root, run.run_dir, recipe)
    path = folder.root if folder is not None else run.start.path
    if folder is not None and _write_saved_model(config, folder.root):
        path = None
    return Result(summary, path, tuple(plots), run.run_dir)


def deploy(config: Config) -> Result:
    """Writes the SavedModel of a checkpoint (`--mode deploy`)."""
    checkpoint = Path(config.checkpoint.restore_checkpoint_path or "")
    _write_saved_model(config, checkpoint)
    return Result({}, checkpoint, (), None)


def _write_saved_model(config: Config, checkpoint: Path) -> bool:
    """Writes `--saved_model_output_path`, on the first rank; returns whether that removed the
    checkpoint."""
    original, saved = config.original, config.checkpoint
    is_for_it = config.run.mode == "train" and not (saved.save_checkpoint_path or saved.resume)
    if not original.saved_model_output_path:
        return False
    if launcher.rank() != 0:
        return is_for_it
    from deployment.export import write_saved_model

    output, dataset_path = original.saved_model_output_path, config.data.dataset_path
    names = str(checkpoint), output, dataset_path
    write_saved_model(*names, config.definition, half_precision=original.fp16)
    if is_for_it:  # this run has made the folder, see `runtime.checkpoint.resume`
        shutil.rmtree(checkpoint)
    print(f"deployed to: {output}", flush=True)
    return is_for_it
