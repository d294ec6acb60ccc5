"""Reads a model repository: which version folders a path means, and their interfaces."""

from pathlib import Path
from typing import NamedTuple

from deployment.serving import interface as interfaces
from deployment.serving.interface import CHECKS, DENSE, KEYS, SCORER, SPARSE, Interface

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
        raise ValueError(f"--model {path}: the folder does not exist; {_ALLOWED}")
    if (path / interfaces.FILE).is_file():
        return _of_version(path)
    if _latest_version(path) is not None:
        return _of_model(path)
    models = [folder for folder in sorted(path.iterdir()) if _latest_version(folder) is not None]
    whole = [folder for folder in models if _is_whole(folder)]
    if len(whole) != 1:
        names = ", ".join(folder.name for folder in whole or models) or "no models"
        raise ValueError(
            f"--model {path}: has {names}; "
            + (f"name one of them: {whole[0]}" if whole else _ALLOWED)
        )
    return _of_model(whole[0])


def entry_interface(repository: str | Path, model_name: str) -> Interface:
    """Returns the interface of a model's requests: of an ensemble, that of its first part."""
    # The first part depends on the backend: local, tensorflow, hps.
    for name in (model_name, *(f"{model_name}_{role}" for role in (SPARSE, CHECKS, KEYS))):
        version = _latest_version(Path(repository, name))
        if version is not None and (version / interfaces.FILE).is_file():
            interface = interfaces.read(version)
            if interface.role != DENSE:
                return interface
    raise ValueError(
        f"{repository} has no {interfaces.FILE} of {model_name}, which describes the allowed ids: "
        "name another --model_repository, or take rows of a data set (--checkpoint_dir)"
    )


def _of_version(folder: Path) -> ModelFolders:
    role = interfaces.read(folder).role
    if role != SCORER:
        raise ValueError(
            f"--model {folder}: is the part {role} of an ensemble; name the ensemble's folder, or "
            "its repository"
        )
    return ModelFolders(folder)


def _of_model(folder: Path) -> ModelFolders:
    version = _latest_version(folder)
    if (version / interfaces.FILE).is_file():
        return _of_version(version)
    parts = _ensemble_parts(folder)
    if parts is None:
        raise ValueError(
            f"--model {folder}: has no {interfaces.FILE} in its version {version.name}, and there "
            f"are no {folder.name}_{SPARSE} and {folder.name}_{DENSE} with one; {_ALLOWED}"
        )
    return parts


def _is_whole(folder: Path) -> bool:
    """Returns whether a model's folder is a monolithic model or a complete ensemble."""
    version = _latest_version(folder)
    if (version / interfaces.FILE).is_file():
        return interfaces.read(version).role == SCORER
    return _ensemble_parts(folder) is not None


def _ensemble_parts(folder: Path) -> ModelFolders | None:
    """Returns the models that an ensemble calls; None if one is missing."""
    versions = []
    for role in (SPARSE, DENSE):
        version = _latest_version(folder.with_name(f"{folder.name}_{role}"))
        if version is None or not (version / interfaces.FILE).is_file():
            return None
        versions.append(version)
    return ModelFolders(*versions)


def _latest_version(folder: Path) -> Path | None:
    """Returns the version folder with the highest number; None without one."""
    if not folder.is_dir():
        return None
    versions = [path for path in folder.iterdir() if path.name.isdecimal() and path.is_dir()]
    return max(versions, key=lambda path: int(path.name), default=None)
