"""A model repository of Triton: the models of a deployment appear in it together, or not at all."""

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deployment.triton.moves import claimed, clear_up, move
from runtime.files.atomic import write_errors_name

# In the folder of every model that this package wrote: what it was made of.
MARKER = "deployed.json"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def check_name(name: str) -> None:
    """Raises ValueError for a name that is none for a model."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"--model_name {name!r}: a model's name is that of its folder and part of URLs: "
            "letters, digits, _ . and -, the first a letter or digit, at most 100"
        )


@contextlib.contextmanager
def appear_together(
    repository: Path, models: Sequence[str], overwrite: bool, say: Callable[[str], None]
) -> Iterator[Path]:
    """A folder to write models into, which move into the repository when the block ends well.

    The folder, `.<repository>.<random>`, lies beside the repository, not in it: a server that polls
    takes every folder in there for a model. What is replaced leaves the repository in the opposite
    order, the last model first, so that a server sees no ensemble without its models.

    A deployment that is killed leaves that folder, and the repository as it was. Only if it is
    killed between the renames, which take milliseconds, models are missing there: they lie in the
    folder, and the next deployment into the repository brings them back before all else.

    Args:
      repository: its folder; need not exist.
      models: names of the models, those that others need in front of these; the last one's name is
        that of the deployment.
      overwrite: allows models of ours to be replaced; those of the same deployment that are not in
        `models` (an ensemble's, where there is one model now) are removed.
      say: gets a sentence on each killed deployment that was cleared up.

    Raises:
      ValueError: a model is there and may not be replaced, or the repository cannot be one.
      OSError: they could not be moved; what was there before is there again, or the message says
        where it is.
    """
    clear_up(repository, say)
    replaced = check_replaceable(repository, models, overwrite)
    made = not repository.exists()
    with write_errors_name(repository):
        repository.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{repository.name}.", dir=repository.parent))
    try:
        with claimed(staging, repository):
            yield staging
            umask = os.umask(0)
            os.umask(umask)
            for model in models:
                (staging / model).chmod(0o777 & ~umask)
            with write_errors_name(repository):
                repository.mkdir(exist_ok=True)
            move(staging, repository, models, replaced)
    except BaseException:
        if made:
            with contextlib.suppress(OSError):
                repository.rmdir()  # only an empty one goes
        raise


def check_replaceable(repository: Path, models: Sequence[str], overwrite: bool) -> list[str]:
    """The models that a deployment replaces, in the order in which they may be taken away.

    Raises:
      ValueError: as `appear_together`.
    """
    if os.path.ismount(repository):
        raise ValueError(
            f"--model_repository {repository} is a mount point: models are written beside the "
            "repository and moved into it, which works within one file system. Name a folder in it"
        )
    if repository.exists() and not repository.is_dir():
        raise ValueError(f"--model_repository {repository} is no folder")
    there = [model for model in models if os.path.lexists(repository / model)]
    if there and not overwrite:
        raise ValueError(
            f"--model_repository {repository} has a model {there[-1]} already: replace it with "
            "--overwrite, or choose another --model_name"
        )
    found = set()
    for model in there:
        found |= {model, *_deployed_with(repository / model, models[-1])}
    order = [*models, *sorted(found - set(models))]
    return [model for model in reversed(order) if model in found]


def write_marker(model: Path, made_of: Mapping[str, Any], models: Sequence[str]) -> None:
    """Says in a model's folder what it is.

    Args:
      model: the folder.
      made_of: JSON-able.
      models: names of the models of this deployment.
    """
    with write_errors_name(model / MARKER):
        (model / MARKER).write_text(json.dumps({**made_of, "models": list(models)}, indent=1))


def read_marker(model: Path) -> dict[str, Any] | None:
    """What a model's folder says that it is; None where we did not write it."""
    try:
        made_of = json.loads((model / MARKER).read_text())
    except (OSError, ValueError):
        return None
    models = made_of.get("models") if isinstance(made_of, dict) else None
    ours = isinstance(models, list) and all(isinstance(name, str) for name in models)
    return made_of if ours else None


def _deployed_with(model: Path, name: str) -> set[str]:
    """The models that were deployed with one, as the deployment `name`, and are there still."""
    made_of = None if model.is_symlink() else read_marker(model)
    if made_of is None:
        raise ValueError(
            f"--overwrite: {model} is no model that this tool wrote (it has no {MARKER} of ours), "
            "so it is not replaced: move it away, or choose another --model_name"
        )
    if made_of["models"][-1:] != [name]:
        raise ValueError(
            f"--overwrite: {model} is of another deployment, {' '.join(made_of['models'][-1:])}, "
            "and stays: choose another --model_name"
        )
    found = set()
    for other in made_of["models"]:
        theirs = read_marker(model.parent / other) if _NAME.fullmatch(other) else None
        if theirs is not None and theirs["models"] == made_of["models"]:
            found.add(other)
    return found
