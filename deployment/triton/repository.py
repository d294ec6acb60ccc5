"""Model repository of Triton, in which a deployment's models are replaced together.

A deployment is one folder, that of the model which clients request. It holds the parts of an
ensemble, to which the repository has links:

    repository/m/config.pbtxt
    repository/m/1/m_sparse/...
    repository/m_sparse -> m/1/m_sparse

So one rename replaces all models of a deployment.
"""

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runtime.files.disk import sync, sync_tree, write_errors_name

VERSION = 1  # version folder of each part, and of a model by default
MARKER = "deployed.json"  # in each model's folder: its origin

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def check_name(name: str) -> None:
    """Raises ValueError for an invalid model name."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"--model_name {name!r}: a model's name is that of its folder and part of URLs: "
            "letters, digits, _ . and -, the first a letter or digit, at most 100"
        )


@contextlib.contextmanager
def staged_models(
    repository: Path, models: Sequence[str], overwrite: bool, version: int = VERSION
) -> Iterator[Path]:
    """Yields a folder for new models, which move into the repository if the block succeeds.

    The folder is a hidden neighbour of the repository: a polling server takes every folder in a
    repository as a model. After a kill it may be left, and be removed by hand. The last model's
    name is that of the deployment, `version` its version folder; `overwrite` allows to replace an
    earlier one, with all of its models.

    Raises:
        ValueError: a model exists and may not be replaced, or the repository is invalid.
        OSError: the models could not be moved; the repository is unchanged.
    """
    *parts, name = models
    previous_parts = check_replaceable(repository, models, overwrite)
    is_new = not repository.exists()
    with write_errors_name(repository):
        repository.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{repository.name}.", dir=repository.parent))
    try:
        yield staging
        for part in parts:
            (staging / part).rename(staging / name / str(version) / part)
        sync_tree(staging)
        with write_errors_name(repository):
            repository.mkdir(exist_ok=True)
            _swap(repository / name, staging / name, staging / "replaced")
            for part in previous_parts - set(parts):
                _remove(repository / part, staging)
            for part in parts:
                target = f"{name}/{version}/{part}"
                if _target(repository / part) != target:
                    _remove(repository / part, staging)
                    (repository / part).symlink_to(target)
            sync(repository)
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):
                repository.rmdir()  # only if empty
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def check_replaceable(repository: Path, models: Sequence[str], overwrite: bool) -> set[str]:
    """Returns the parts of the deployment that new models replace; raises as `staged_models`."""
    if os.path.ismount(repository):
        raise ValueError(
            f"--model_repository {repository} is a mount point: models are written next to the "
            "repository and renamed, which works within one file system. Name a folder in it"
        )
    if repository.exists() and not repository.is_dir():
        raise ValueError(f"--model_repository {repository} is not a folder")
    *parts, name = models
    existing = [model for model in models if os.path.lexists(repository / model)]
    if existing and not overwrite:
        raise ValueError(
            f"--model_repository {repository} has a model {existing[-1]} already: replace it with "
            "--overwrite, or choose another --model_name"
        )
    for model in existing:
        owner = _deployment_of(repository / model)
        if owner is None:
            raise ValueError(
                f"--overwrite: {repository / model} was not written by this tool (it has no "
                f"{MARKER} of ours), so it is not replaced: move it away, or choose another "
                "--model_name"
            )
        if owner != name:
            raise ValueError(
                f"--overwrite: {repository / model} is of another deployment, {owner}, and stays: "
                "choose another --model_name"
            )
    previous = (read_marker(repository / name) or {"models": [name]})["models"][:-1]
    named = {part for part in previous if _NAME.fullmatch(part)} | set(parts)
    return {part for part in named if _deployment_of(repository / part) == name}


def write_marker(model: Path, origin: Mapping[str, Any], models: Sequence[str]) -> None:
    """Writes the origin of a model of a deployment, JSON-able, into its folder."""
    with write_errors_name(model / MARKER):
        (model / MARKER).write_text(json.dumps({**origin, "models": list(models)}, indent=1))


def read_marker(model: Path) -> dict[str, Any] | None:
    """Returns a model's origin; None if this tool did not write the model."""
    try:
        origin = json.loads((model / MARKER).read_text())
    except (OSError, ValueError):
        return None
    models = origin.get("models") if isinstance(origin, dict) else None
    ours = isinstance(models, list) and models and all(isinstance(name, str) for name in models)
    return origin if ours else None


def _deployment_of(model: Path) -> str | None:
    """Returns the name of a model's deployment; None if this tool did not write the model."""
    if model.is_symlink():
        target = os.readlink(model)
        match = re.fullmatch(rf"([^/]+)/\d+/{re.escape(model.name)}", target)
        return match and match[1]
    origin = read_marker(model)
    return None if origin is None else origin["models"][-1]


def _target(part: Path) -> str | None:
    return os.readlink(part) if part.is_symlink() else None


def _swap(target: Path, new: Path, previous: Path) -> None:
    """Renames `new` to `target`, and what had that name to `previous`; undone after an error."""
    try:
        if target.exists():
            target.rename(previous)
        new.rename(target)
    except BaseException:
        if previous.exists() and not target.exists():
            previous.rename(target)
        raise


def _remove(part: Path, staging: Path) -> None:
    """Removes a link, or the folder of a part as earlier versions wrote it."""
    if part.is_symlink():
        part.unlink()
    elif part.exists():
        part.rename(Path(tempfile.mkdtemp(dir=staging)) / part.name)
