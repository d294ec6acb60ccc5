"""Reads a model repository: which version folders a path means, and their interfaces."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from deployment.serving import interface as interfaces
from deployment.serving.interface import DENSE, SCORER, SPARSE, Interface
from deployment.triton.repository import models_of
from runtime.files.paths import absent

_ALLOWED = (
    "expected a version folder, a model's folder or a repository with one model, as `python -m "
    "deployment.deploy --backend local` writes them"
)


class ModelFolders(NamedTuple):
    """Version folders of a monolithic model, or of the sparse and the dense part of an ensemble."""

    folder: Path
    dense_folder: Path | None = None


def find_model(path: str | Path) -> ModelFolders:
    """Returns the model that a path means, in its highest version, which Triton serves."""
    path = Path(path)
    if not path.is_dir():
        problem = f"{path}: is a file" if path.exists() else absent(path, "folder")
        raise ValueError(f"--model {problem}; {_ALLOWED}")
    if (path / interfaces.FILE).is_file():
        models = {path: _whole_model([path])}
    else:
        folders = [path] if _latest_version(path) is not None else sorted(path.iterdir())
        models = {folder: _whole_model(_versions(folder)) for folder in folders}
    models = {folder: model for folder, model in models.items() if model is not None}
    if len(models) > 1:
        names = ", ".join(map(str, models))
        raise ValueError(f"--model {path}: has several models; name one of them: {names}")
    if not models:
        raise ValueError(f"--model {path}: has no model, or only a part of an ensemble; {_ALLOWED}")
    return next(iter(models.values()))


def entry_interface(repository: str | Path, model_name: str) -> tuple[Path, Interface]:
    """Returns the version folder and the interface of a model's requests: of an ensemble, those of
    its first part."""
    for version in _versions(Path(repository, model_name)):
        if (interface := interfaces.read(version)).role != DENSE:
            return version, interface
    raise ValueError(
        f"{repository} has no {interfaces.FILE} of {model_name}, which describes the allowed ids: "
        "name another --model_repository, or take rows of a data set (--checkpoint_dir)"
    )


def _whole_model(folders: Iterable[Path]) -> ModelFolders | None:
    """Returns a monolithic model, or a complete ensemble."""
    versions = {interfaces.read(version).role: version for version in folders}
    if versions.keys() == {SPARSE, DENSE}:
        return ModelFolders(versions[SPARSE], versions[DENSE])
    return ModelFolders(versions[SCORER]) if SCORER in versions else None


def _versions(folder: Path) -> list[Path]:
    """Returns the version folders with an interface of a deployment's models, in their order."""
    *parts, name = models_of(folder) or [folder.name]
    is_ensemble = parts and name == folder.name
    folders = [folder.parent / part for part in parts] if is_ensemble else [folder]
    versions = filter(None, map(_latest_version, folders))
    return [version for version in versions if (version / interfaces.FILE).is_file()]


def _latest_version(folder: Path) -> Path | None:
    """Returns the version folder with the highest number; None without one."""
    if not folder.is_dir():
        return None
    versions = [path for path in folder.iterdir() if path.name.isdecimal() and path.is_dir()]
    return max(versions, key=lambda path: int(path.name), default=None)
