"""Checkpoint that a run starts from, and folder that it saves to."""

import socket
import tempfile
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

from distributed_embeddings.collectives import World

from runtime.checkpoint.folder import Folder, best_of, is_checkpoint, resolve
from runtime.checkpoint.lock import RESUME_WAIT_S, WAIT_S
from runtime.checkpoint.reader import describe
from runtime.cluster.distributed import run_on_all_ranks


class Action(Enum):
    """Start of a run, whose checkpoints a folder holds."""

    BEGIN = auto()  # with the named weights, or without any
    RESUME = auto()  # the named checkpoint, or the newest one; newer ones are abandoned
    SET_ASIDE = auto()  # the checkpoints in the folder, then BEGIN
    REFUSE = auto()  # the folder is that of another training


_BEGIN, _RESUME, _SET_ASIDE, _REFUSE = Action

# All cases: what names the start, and the newest checkpoint in the folder that the run saves to.
CASES = {
    #                           none      before the end   at the end of its training
    "nothing, or weights":     (_BEGIN,   _REFUSE,         _SET_ASIDE),
    "the same, replacing":     (_BEGIN,   _SET_ASIDE,      _SET_ASIDE),
    "auto":                    (_BEGIN,   _RESUME,         _RESUME),
    "a checkpoint in it":      (_RESUME,  _RESUME,         _RESUME),
    "a checkpoint elsewhere":  (_RESUME,  _REFUSE,         _REFUSE),
}  # fmt: skip


class Request(NamedTuple):
    """Start of a run, and place of its checkpoints, as flags name them.

    Attributes:
        weights: checkpoint, or a folder of them, from whose weights the run starts.
        resume: training to resume, in place of `weights`: a checkpoint, a folder of them, or "auto"
            for the newest checkpoint in `save`.
        is_optional: whether a new training begins where `resume` has no checkpoint.
        save: folder of the checkpoints of a training.
        output: SavedModel that is made from a checkpoint: without another folder, checkpoints are
            in a temporary one next to it.
        replaces: whether the training may follow one in `save` that has not ended.
        data: fingerprint of the data set; None: unknown. A training that has ended resumes on
            another one from its best checkpoint, if it kept that.
    """

    weights: str | None = None
    resume: str | None = None
    is_optional: bool = False
    save: str | None = None
    output: str | None = None
    replaces: bool = False
    data: str | None = None

    @property
    def resume_path(self) -> str | None:
        """Path of the training to resume."""
        return self.save if self.resume == "auto" else self.resume


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


def find(request: Request, world: World, rank_timeout_s: float) -> Start:
    """Returns what rank 0 finds, on all ranks.

    Args:
        rank_timeout_s: seconds for which ranks wait for each other.

    Raises:
        ValueError: the checkpoint does not exist, the folder cannot be written, or it belongs to
            another training.
    """
    wait_s = RESUME_WAIT_S if request.resume else WAIT_S
    if world.size > 1:  # the other ranks wait for rank 0, which waits for the lock
        wait_s = min(wait_s, 0.8 * rank_timeout_s)
    nothing = Start(None, None, False, False)
    start = run_on_all_ranks(
        world, lambda: _find_on_chief(request, wait_s) if world.is_chief else nothing
    )
    names = [start.folder and str(start.folder.root), start.path and str(start.path), *start[2:4]]
    root, path, resumes, is_newest = world.gather_objects(names, "checkpoint.start")[0]
    folder = start.folder or (Folder(root) if root else None)
    if folder is not None and world.size > 1:
        token = world.gather_objects(folder.lock.token, "checkpoint.mark")[0]
        run_on_all_ranks(world, lambda: _check_shared(folder, token))
    return Start(folder, Path(path) if path else None, resumes, is_newest, start.note)


def _find_on_chief(request: Request, wait_s: float) -> Start:
    path = named_checkpoint(request)
    resumes = path is not None and request.resume is not None
    root, note = _folder_to_save(request, path)
    if root is None:
        return Start(None, path, resumes, False)
    folder = Folder(root)
    folder.acquire(wait_s)
    newest = folder.newest()
    if request.resume == "auto":
        case = "auto"
    elif resumes and path is not None:
        is_inside = path.resolve().parent == folder.root
        case = "a checkpoint in it" if is_inside else "a checkpoint elsewhere"
    else:
        case = "the same, replacing" if request.replaces else "nothing, or weights"
    action = CASES[case][0 if newest is None else 1 + _is_finished(newest.path)]
    if newest is not None and action is Action.REFUSE:
        folder.release()
        raise ValueError(
            f"--save_checkpoint_path {root} holds checkpoints of a training that has not "
            f"ended ({newest.path.name}): resume it with --resume auto, or give another folder"
        )
    if newest is not None and action is Action.RESUME:
        path = path or _best_for_other_data(newest.path, request.data)
        folder.abandon_newer_than(path.resolve())
    if action is Action.SET_ASIDE:
        path, note, newest = *_set_aside(folder, path), None
    is_newest = newest is not None and path is not None and newest.path == path.resolve()
    return Start(folder, path, action is Action.RESUME, is_newest, note)


def named_checkpoint(request: Request) -> Path | None:
    """Returns the checkpoint that the flags name; None with "auto", too."""
    if request.weights:
        return resolve(best_of(request.weights))
    if not request.resume or request.resume == "auto":
        return None
    if request.is_optional and not _has_checkpoint(Path(request.resume)):
        return None
    path = resolve(request.resume, "--resume")
    return path if is_checkpoint(Path(request.resume)) else _best_for_other_data(path, request.data)


def _best_for_other_data(newest: Path, data: str | None) -> Path:
    """Returns the best checkpoint of a training if that has ended, on another data set, else the
    newest one."""
    if data is None or not _is_finished(newest):
        return newest
    has_other_data = describe(newest).description.get("feature_spec") != data
    return resolve(best_of(newest.parent)) if has_other_data else newest


def _has_checkpoint(path: Path) -> bool:
    return path.is_dir() and (is_checkpoint(path) or Folder(path).newest() is not None)


def _folder_to_save(request: Request, path: Path | None) -> tuple[str | None, str]:
    """Returns the folder of a training's checkpoints, None without one, and a note on it."""
    if request.save:
        return request.save, ""
    if request.resume and not request.is_optional:
        assert path is not None
        return str(path.resolve().parent), ""  # saves where it resumes from
    if not request.output:
        return None, ""
    parent = Path(request.output).absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    root = tempfile.mkdtemp(prefix=f".{Path(request.output).name}.checkpoint-", dir=parent)
    return root, f"checkpoints are in {root} until {request.output} is written"


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


def _check_shared(folder: Folder, token: str | None) -> None:
    if token is not None and not folder.lock.sees(token):
        raise ValueError(
            f"--save_checkpoint_path {folder.root} on {socket.gethostname()} is not the folder of "
            "rank 0, or cannot be read; all processes write to it: give one that all machines share"
        )
