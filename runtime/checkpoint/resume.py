"""What a run starts from, and where it saves."""

import socket
from pathlib import Path
from typing import NamedTuple

from config import Config
from runtime.checkpoint.files import Index
from runtime.checkpoint.flags import adopt_flags, adopt_original, resume_flags
from runtime.checkpoint.folder import Folder, resolve, suggest_previous
from runtime.checkpoint.lock import RESUME_WAIT_S, WAIT_S
from runtime.checkpoint.reader import describe, is_original
from runtime.cluster.distributed import World, run_on_all_ranks


class Start(NamedTuple):
    """The same on every rank, but for the lock of `folder`, which rank 0 has.

    Attributes:
      folder: of this run's checkpoints; None where it saves none.
      path: the checkpoint that it starts from; None for the beginning.
      resumes: whether it goes on with that checkpoint's training.
      is_newest: whether `path` is the newest checkpoint in `folder`.
    """

    folder: Folder | None
    path: Path | None
    resumes: bool
    is_newest: bool

    @property
    def flag(self) -> str:
        """What names the checkpoint on a command line."""
        return "--resume" if self.resumes else "--restore_checkpoint_path"

    def release(self) -> None:
        """Lets others write to the folder."""
        if self.folder is not None:
            self.folder.release()

    def adopt(self, config: Config) -> tuple[Config, Index | None, list[str]]:
        """(all flags, what the checkpoint says of itself, the flags that a resumed training has
        otherwise than before)."""
        if self.path is None:
            return config.replace(), None, []
        with suggest_previous(self.path, self.flag):
            saved = describe(self.path)
        if self.resumes:
            adopted, changed = resume_flags(config, saved.description, f"checkpoint {self.path}")
            return adopted, saved, changed
        adopt = adopt_original if is_original(self.path) else adopt_flags
        return adopt(config, saved.description), saved, []


def _resume_of(config: Config) -> str | None:
    return config.checkpoint.resume if config.run.mode == "train" else None


def set_up_flags(config: Config) -> Config:
    """The flags that processes and devices are set up with: those of the training that goes on.

    Looks at the checkpoint before ranks can agree on it; what is wrong with it is left to `find`
    and `Start.adopt`.
    """
    resume = _resume_of(config)
    root = config.checkpoint.save_checkpoint_path if resume == "auto" else resume
    if not resume:
        return config
    try:
        return resume_flags(config, describe(resolve(root)).description, str(root))[0]
    except ValueError:
        return config


def find(config: Config, world: World) -> Start:
    """What rank 0 sees, for all.

    Raises:
      ValueError: there is no such checkpoint, or the folder cannot be written or is another
        training's.
    """
    resume, training = _resume_of(config), config.run.mode == "train"
    root = config.checkpoint.save_checkpoint_path

    def look() -> Start:
        if not world.is_chief:
            return Start(None, None, False, False)
        path = None
        if config.checkpoint.restore_checkpoint_path:
            path = resolve(config.checkpoint.restore_checkpoint_path)
        elif resume and resume != "auto":
            path = resolve(resume, "--resume")
        folder = None
        if training and (root or resume):
            folder = Folder(root or path.resolve().parent)  # goes on where it was
            folder.acquire(_lock_wait_s(config, world))
        newest = folder.newest() if folder else None
        if resume == "auto":
            path = newest.path if newest else None
        elif newest and not (resume and path.resolve().parent == folder.root):
            folder.release()
            raise ValueError(
                f"--save_checkpoint_path {root} holds checkpoints of an earlier training "
                f"({newest.path.name}): go on with it by --resume auto, or give another folder"
            )
        elif newest:
            folder.abandon_newer_than(path.resolve())
        is_newest = bool(newest and path and newest.path == path.resolve())
        return Start(folder, path, bool(resume and path), is_newest)

    found = run_on_all_ranks(world, look)
    told = [found.folder and str(found.folder.root), found.path and str(found.path), *found[2:]]
    where, path, resumes, is_newest = world.gather_objects(told, "checkpoint.start")[0]
    folder = found.folder or (Folder(where) if where else None)
    if folder is not None and world.size > 1:
        token = folder.write_token() if world.is_chief else None
        token = world.gather_objects(token, "checkpoint.mark")[0]
        run_on_all_ranks(world, lambda: _check_seen(folder, token))
    return Start(folder, Path(path) if path else None, resumes, is_newest)


def _lock_wait_s(config: Config, world: World) -> float:
    """How long to wait for who has the folder; the other ranks wait meanwhile, and not for ever."""
    wait_s = RESUME_WAIT_S if _resume_of(config) else WAIT_S
    return wait_s if world.size == 1 else min(wait_s, 0.8 * config.distribution.rank_timeout_s)


def _check_seen(folder: Folder, word: str | None) -> None:
    """Raises ValueError where this process does not see the folder that rank 0 has marked."""
    if word is not None and not folder.sees_token(word):
        raise ValueError(
            f"--save_checkpoint_path {folder.root} on {socket.gethostname()} is not the folder of "
            "rank 0, or cannot be read; all processes write to it: give one that all machines share"
        )
