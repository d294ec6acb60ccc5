"""Model repository of Triton, in which a deployment's models are replaced together.

    repository/m/config.pbtxt         the model that clients request: a single one, or an ensemble
    repository/m_sparse_1a2b3c4d/     part of an ensemble, named by its content
    repository/sparse -> m/1/sparse   part of an ensemble with a name that was given

New parts get new names. Then one exchange of names replaces `m`, so that a server that starts at
any moment serves the previous or the new models. Previous parts are removed last.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runtime.files import outputs
from runtime.files.disk import sync_tree, write_errors_name
from runtime.files.staging import OwnedFolder

VERSION = 1  # version folder of each part, and of a model by default
ORIGIN = "deployed.json"  # in each model's folder

_TOOL = "deployment.deploy"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def check_name(name: str) -> None:
    """Raises ValueError for an invalid model name."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"--model_name {name!r}: a model's name is that of its folder and part of URLs: "
            "letters, digits, _ . and -, the first a letter or digit, at most 100"
        )


class Deployment:
    """Models of one deployment in a repository.

    Args:
        repository: absolute path of the folder, which may be new.
        models: names of the parts, then that of the model which clients request.
        linked: parts with names that were given, which an earlier deployment may have, too.
        overwrite: replace the models of an earlier deployment of this name.
        version: version folder of the model which clients request.

    Raises:
        ValueError: a model exists and may not be replaced, or the repository is invalid.
    """

    def __init__(
        self,
        repository: Path,
        models: Sequence[str],
        linked: Sequence[str] = (),
        overwrite: bool = False,
        version: int = VERSION,
    ):
        self._repository, self._overwrite, self._version = repository, overwrite, version
        *self._parts, self._name = models
        self._linked = linked
        self._kinds = {part: f"part of model {self._name}" for part in self._parts}
        self._kinds[self._name] = f"model {self._name}"
        if os.path.ismount(repository):
            raise ValueError(
                f"--model_repository {repository} is a mount point: models are written next to the "
                "repository and renamed, which works within one file system. Name a folder in it"
            )
        if repository.exists() and not repository.is_dir():
            raise ValueError(f"--model_repository {repository} is not a folder")
        for model, kind in self._kinds.items():
            if model not in linked:
                # A part of this content may be left by a run that was killed.
                outputs.check_folder(repository / model, kind, overwrite or model != self._name)
            elif os.path.lexists(repository / model) and not self._is_link(repository / model):
                raise ValueError(
                    f"{repository / model} is not a part of {self._name} and stays: choose other "
                    "names of parts"
                )

    @contextlib.contextmanager
    def staging(self) -> Iterator[Path]:
        """Yields an empty folder for the new models, which one run at a time holds.

        It is a neighbour of the repository: a polling server takes every folder in a repository as
        a model.
        """
        parent = self._repository.parent
        owned = OwnedFolder(parent, self._repository / self._name, _TOOL)
        owned.acquire(keep=False)
        try:
            yield owned.path
        finally:
            owned.release(remove=True)

    def publish(self, staging: Path, later: Sequence[str] = ()) -> None:
        """Moves complete models into the repository.

        Args:
            staging: folder with the models.
            later: files that the serving machine may add to a model.

        Raises:
            ValueError: as the constructor, for what has appeared since then.
            OSError: the repository cannot be written.
        """
        for part in self._linked:
            (staging / part).rename(staging / self._name / str(self._version) / part)
        with write_errors_name(self._repository):
            self._repository.mkdir(exist_ok=True)
        try:
            for model, kind in self._kinds.items():
                if model not in self._linked:
                    outputs.write_marker(staging / model, _TOOL, kind, later=later)
                    sync_tree(staging / model)
                    target, overwrite = self._repository / model, self._overwrite
                    is_part = model != self._name
                    outputs.publish_folder(staging / model, target, kind, overwrite or is_part)
        except BaseException:
            with contextlib.suppress(OSError):
                self._repository.rmdir()  # only if empty
            raise
        for part in self._linked:
            target, link = f"{self._name}/{self._version}/{part}", self._repository / part
            if not link.is_symlink() or os.readlink(link) != target:
                link.unlink(missing_ok=True)
                link.symlink_to(target)

    def previous_parts(self) -> list[str]:
        """Returns parts of earlier deployments of this name that are still in the repository."""
        kind = f"part of model {self._name}"
        return [
            path.name
            for path in sorted(self._repository.iterdir())
            if path.name not in self._parts
            and (
                self._is_link(path)
                if path.is_symlink()
                else (outputs.read_marker(path) or {}).get("kind") == kind
            )
        ]

    def remove(self, parts: Sequence[str]) -> None:
        """Removes parts of `previous_parts`."""
        for part in parts:
            path = self._repository / part
            if path.is_symlink():
                path.unlink()
            else:
                outputs.remove_folder(path)

    def _is_link(self, path: Path) -> bool:
        target = os.readlink(path) if path.is_symlink() else ""
        pattern = rf"{re.escape(self._name)}/\d+/{re.escape(path.name)}"
        return re.fullmatch(pattern, target) is not None


def write_origin(model: Path, origin: Mapping[str, Any], models: Sequence[str]) -> None:
    """Writes the origin of a model of a deployment, JSON-able, into its folder."""
    (model / ORIGIN).write_text(json.dumps({**origin, "models": list(models)}, indent=1))


def models_of(model: Path) -> list[str]:
    """Returns the names of the models of a deployment, the last its own; empty for others."""
    try:
        models = json.loads((model / ORIGIN).read_text())["models"]
    except (OSError, ValueError, TypeError, KeyError):
        return []
    is_valid = isinstance(models, list) and all(_NAME.fullmatch(str(name)) for name in models)
    return models if is_valid else []
