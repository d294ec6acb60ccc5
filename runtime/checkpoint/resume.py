"""Checkpoint that a run starts from, and folder that it saves to."""

import socket
import tempfile
from pathlib import Path
from typing import NamedTuple

from distributed_embeddings.collectives import World

from config import Config
from runtime.checkpoint.files import Index
from runtime.checkpoint.flags import adopt_flags, adopt_original, resume_flags
from runtime.checkpoint.folder import Folder, best_of, is_checkpoint, resolve, suggest_previous
from runtime.checkpoint.lock import RESUME_WAIT_S, WAIT_S
from runtime.checkpoint.nvidia.folders import is_original
from runtime.checkpoint.reader import describe
from runtime.cluster.distributed import run_on_all_ranks


class Start(NamedTuple):
    """Checkpoint that a run starts from, and folder that it saves to.

    Equal on all ranks, except that rank 0 holds the lock of `folder`.
    """

    folder: Folder | None  # of this run's checkpoints; None if it saves none
    path: Path | None  # checkpoint to start from; None for a start from scratch
    resumes: bool  # the training of that checkpoint
    is_newest: bool  # whether `path` is the newest checkpoint in `folder`
    note: str = ""  # on checkpoints of an earlier training, or on the folder

    @property
    def flag(self) -> str:
        """Flag that names another checkpoint to start from."""
        return "--resume" if self.resumes else "--restore_checkpoint_path"

    def release(self) -> None:
        if self.folder is not None:
            self.folder.release()

    def adopt(self, config: Config) -> tuple[Config, Index | None, list[str]]:
        """Adds the flags that the checkpoint stores.

        Returns:
            All flags, the checkpoint's index (None without one), and the names of the flags of a
            resumed training that differ.
        """
        if self.path is None:
            if config.awaits_checkpoint:  # not saved yet
                config.check_complete()
            return config, None, []
        with suggest_previous(self.path, self.flag):
            saved = describe(self.path)
        if self.resumes:
            adopted, changed = resume_flags(config, saved.description, f"checkpoint {self.path}")
            return config.replace(**adopted), saved, changed
        adopt = adopt_original if is_original(self.path) else adopt_flags
        return config.replace(**adopt(config, saved.description)), saved, []


def set_up_flags(config: Config) -> Config:
    """Returns the flags to set up processes and devices with: those of the training that resumes.

    Errors of the checkpoint are left to `find` and `Start.adopt`, when ranks can agree on them.
    """
    resume = _resume_flag(config)
    root = config.checkpoint.save_checkpoint_path if resume == "auto" else resume
    if not resume or root is None:
        return config
    try:
        adopted, _ = resume_flags(config, describe(resolve(root)).description, str(root))
        return config.with_values(adopted)
    except ValueError:
        return config


def find(config: Config, world: World) -> Start:
    """Returns what rank 0 finds, on all ranks.

    Raises:
        ValueError: the checkpoint does not exist, the folder cannot be written, or it belongs to
            another training.
    """
    nothing = Start(None, None, False, False)
    start = run_on_all_ranks(
        world, lambda: _find_on_chief(config, world) if world.is_chief else nothing
    )
    names = [start.folder and str(start.folder.root), start.path and str(start.path), *start[2:4]]
    root, path, resumes, is_newest = world.gather_objects(names, "checkpoint.start")[0]
    folder = start.folder or (Folder(root) if root else None)
    if folder is not None and world.size > 1:
        token = world.gather_objects(folder.lock.token, "checkpoint.mark")[0]
        run_on_all_ranks(world, lambda: _check_shared(folder, token))
    return Start(folder, Path(path) if path else None, resumes, is_newest, start.note)


def _find_on_chief(config: Config, world: World) -> Start:
    resume, path = _resume_flag(config), _named_start(config)
    resumes_path = path if resume else None
    root, note = _folder_to_save(config, path)
    if root is None:
        return Start(None, path, resumes_path is not None, False)
    folder = Folder(root)
    wait_s = RESUME_WAIT_S if resume else WAIT_S
    if world.size > 1:  # the other ranks wait for this one, which waits for the lock
        wait_s = min(wait_s, 0.8 * config.distribution.rank_timeout_s)
    folder.acquire(wait_s)
    newest = folder.newest()
    # As in NVIDIA's NCF, with --checkpoint_dir a training may follow one that has not ended.
    is_replaced = config.collaborative.checkpoint_dir is not None
    if newest is not None and not resume and (is_replaced or _is_finished(newest.path)):
        path, note, newest = *_set_aside(folder, path), None
    if resume == "auto":
        path = resumes_path = newest.path if newest else None
    elif newest is not None:
        if resumes_path is None or resumes_path.resolve().parent != folder.root:
            folder.release()
            raise ValueError(
                f"--save_checkpoint_path {root} holds checkpoints of a training that has not "
                f"ended ({newest.path.name}): resume it with --resume auto, or give another folder"
            )
        folder.abandon_newer_than(resumes_path.resolve())
    is_newest = newest is not None and path is not None and newest.path == path.resolve()
    return Start(folder, path, resumes_path is not None, is_newest, note)


def _folder_to_save(config: Config, path: Path | None) -> tuple[str | None, str]:
    """Returns the folder of a training's checkpoints, None without one, and a note on it."""
    flags, output = config.checkpoint, config.original.saved_model_output_path
    if config.run.mode != "train":
        return None, ""
    if flags.save_checkpoint_path:
        return flags.save_checkpoint_path, ""
    if flags.resume:
        assert path is not None
        return str(path.resolve().parent), ""  # saves where it resumes from
    if not output:
        return None, ""
    parent = Path(output).absolute().parent  # the SavedModel is made from a checkpoint
    parent.mkdir(parents=True, exist_ok=True)
    root = tempfile.mkdtemp(prefix=f".{Path(output).name}.checkpoint-", dir=parent)
    return root, f"checkpoints are in {root} until {output} is written"


def _named_start(config: Config) -> Path | None:
    resume = _resume_flag(config)
    if config.checkpoint.restore_checkpoint_path:
        return resolve(best_of(config.checkpoint.restore_checkpoint_path))
    if not resume or resume == "auto" or _is_new(config):
        return None
    return resolve(resume, "--resume")


def _set_aside(folder: Folder, path: Path | None) -> tuple[Path | None, str]:
    """Moves the checkpoints of a folder; returns the new place of one, if it moved, and a note."""
    earlier = folder.set_aside()
    if path is not None and folder.root in path.resolve().parents:
        path = earlier / path.resolve().relative_to(folder.root)
    return path, f"checkpoints of an earlier training were moved to {earlier}"


def _is_finished(path: Path) -> bool:
    """Returns whether a checkpoint is of the end of its training; earlier versions store none."""
    try:
        return bool(describe(path).state.get("finished"))
    except ValueError:  # damaged
        return False


def _resume_flag(config: Config) -> str | None:
    flags = config.checkpoint
    return (flags.resume or flags.load_checkpoint_path) if config.run.mode == "train" else None


def _is_new(config: Config) -> bool:
    """Returns whether `--load_checkpoint_path` names a place without a checkpoint."""
    path = config.checkpoint.load_checkpoint_path
    if not path:
        return False
    folder = Path(path)
    return not folder.is_dir() or not (is_checkpoint(folder) or Folder(folder).newest())


def _check_shared(folder: Folder, token: str | None) -> None:
    if token is not None and not folder.lock.sees(token):
        raise ValueError(
            f"--save_checkpoint_path {folder.root} on {socket.gethostname()} is not the folder of "
            "rank 0, or cannot be read; all processes write to it: give one that all machines share"
        )
