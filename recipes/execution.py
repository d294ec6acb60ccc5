"""Execution of one mode of a recipe, for the command line and the Python API."""

import dataclasses
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config import Config
from recipes.baseline.after_training import compare_after_training
from runtime.cluster import launcher
from runtime.files.outputs import SAVED_MODEL, check_folder
from training import setup
from training.modes import MODES


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


def execute(
    config: Config,
    catches_signals: bool = True,
    on_evaluation: Callable[[float], None] = lambda metric: None,
) -> Result:
    """Runs the `--mode` of a recipe, on all ranks together.

    Args:
        config: the flags of the recipe.
        catches_signals: whether a training that saves checkpoints takes SIGTERM and SIGINT as
            requests to save one and stop.
        on_evaluation: called with the goal's metric after each evaluation of a training; its
            exceptions end the run.

    Raises:
        ValueError: flags, data or checkpoint cannot be used.
        OSError: a file cannot be read or written.
        TrainingDiverged: the loss, a score or a weight became infinite or NaN.
        Stopped: a signal ended the training.
        CollectiveError, RankLost: on several ranks, one of them failed.
    """
    if config.original.saved_model_output_path:
        output = Path(config.original.saved_model_output_path)
        check_folder(output, SAVED_MODEL, overwrite=True)  # before the training
    if config.run.mode == "deploy":
        checkpoint = Path(config.checkpoint.restore_checkpoint_path or "")
        _write_saved_model(config, checkpoint)
        return Result({}, checkpoint, (), None)
    if config.evaluation.baseline and config.run.mode == "train":
        config.family.check_baseline()  # before the training
    with setup.open_run(config) as context:
        context = dataclasses.replace(
            context, catches_signals=catches_signals, on_evaluation=on_evaluation
        )
        summary = MODES[context.config.run.mode](context)
        summary, plots = setup.finish(context, summary)
        config, folder, data = context.config, context.start.folder, context.data
    if config.evaluation.baseline and folder is not None and launcher.rank() == 0:
        assert data is not None
        plots += compare_after_training(Path(data.origin), folder.root, context.run_dir)
    path = folder.root if folder is not None else context.start.path
    if (
        config.run.mode == "train"
        and folder is not None
        and _write_saved_model(config, folder.root)
    ):
        path = None
    return Result(summary, path, tuple(plots), context.run_dir)


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
    write_saved_model(str(checkpoint), output, dataset_path, half_precision=original.fp16)
    if is_for_it:  # this run has made the folder, see `runtime.checkpoint.resume`
        shutil.rmtree(checkpoint)
    print(f"deployed to: {output}", flush=True)
    return is_for_it
