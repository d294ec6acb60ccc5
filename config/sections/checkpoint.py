"""Flags of checkpoints."""

import functools
from dataclasses import dataclass

from config.flag import OWN, TRAIN, Need, Rules, Values, excludes

_MODEL = excludes("plan_only")
SAVES = Need(
    "with --save_checkpoint_path or --resume",
    lambda flags: any(
        flags.value(name) for name in ("save_checkpoint_path", "resume", "saved_model_output_path")
    ),
)
_KEEPS = Need(SAVES.text, lambda flags: flags.value("keep_best") is False or SAVES.holds(flags))
_saving = functools.partial(Rules, modes=TRAIN, needs=(SAVES,))


@dataclass(frozen=True)
class CheckpointConfig:
    """Checkpoints and resuming."""

    save_checkpoint_path: str | None = Rules(resume=OWN, modes=TRAIN, needs=(_MODEL,)).flag(
        None, "folder of this training's checkpoints; one is always saved at the end"
    )
    restore_checkpoint_path: str | None = Rules(resume=OWN, needs=(_MODEL,)).flag(
        None,
        "checkpoint to load; of a folder of checkpoints the best one (--keep_best), else the "
        "newest",
    )
    load_checkpoint_path: str | None = Rules(resume=OWN, part="sequential", needs=(_MODEL,)).flag(
        None,
        "checkpoint to continue from, as in NVIDIA's recipe; in training as --resume, or without a "
        "checkpoint there a new training; in other modes as --restore_checkpoint_path",
    )
    resume: str | None = Rules(resume=OWN, modes=TRAIN, needs=(_MODEL,)).flag(
        None,
        "training to resume, or auto; auto: the newest checkpoint in --save_checkpoint_path, or "
        "without one a new training; otherwise the path of a checkpoint or of a folder of "
        "checkpoints",
    )
    checkpoint_every: int | None = _saving(at_least=1).flag(None, "steps between checkpoints")
    checkpoint_every_minutes: float | None = _saving(above=0).flag(
        None, "minutes between checkpoints"
    )
    keep_checkpoints: int = _saving(at_least=1).flag(2, "number of the newest checkpoints to keep")
    keep_best: bool | None = Rules(modes=TRAIN, needs=(_KEEPS,)).flag(
        None,
        "keep the checkpoint of the best evaluation by --metric; it is saved after each evaluation "
        "that is the best so far, as the link `best` in --save_checkpoint_path; by default with "
        "--early_stopping, --preset small and a validation split, or NCF's --checkpoint_dir; "
        "--nokeep_best also switches the early stopping of --preset small off",
    )
    on_checkpoint_error: str = _saving(choices=("continue", "stop")).flag(
        "continue",
        "reaction to a failed write, e.g. a full disk",
    )
    checkpoint_memory_mb: int = _saving(at_least=8).flag(
        32,
        "memory per rank (MiB) for weights that are copied and not yet written; with more, "
        "training waits less",
    )


def _check_trained_model(flags: Values) -> None:
    mode = flags.value("mode")
    if mode in ("train", "inference", "deploy", *flags.family.untrained_modes):
        return  # the speed can be measured without one
    if flags.value("plan_only"):
        return
    if not flags.value("restore_checkpoint_path") and not flags.value("saved_model_input_path"):
        raise ValueError(
            f"--mode {mode} needs a trained model: pass its folder with "
            "--restore_checkpoint_path (train one with --save_checkpoint_path)"
        )


def _check_resume(flags: Values) -> None:
    resume = flags.value("resume")
    if flags.value("mode") != "train":
        return
    if flags.value("load_checkpoint_path"):
        for name in ("resume", "restore_checkpoint_path"):
            if flags.value(name):
                raise ValueError(
                    f"--load_checkpoint_path and --{name} both name the start of the training: "
                    "pass only one of them"
                )
    if not resume:
        return
    if flags.value("restore_checkpoint_path"):
        raise ValueError(
            "--resume resumes a training, --restore_checkpoint_path starts another one from its "
            "weights: pass only one of them"
        )
    if resume == "auto" and not flags.value("save_checkpoint_path"):
        raise ValueError(
            "--resume auto looks for checkpoints in --save_checkpoint_path, which is missing; "
            "pass it, or the path of a checkpoint"
        )


RULES = (_check_trained_model, _check_resume)
