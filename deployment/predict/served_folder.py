"""Which models a path means: a version folder, a model's folder, or a repository with one model."""

from pathlib import Path
from typing import NamedTuple

from deployment.serving import interface as interfaces
from deployment.serving.interface import DENSE, SCORER, SPARSE

_ALLOWED = (
    "allowed: a version folder, a model's folder or a repository with one model, as `python -m "
    "deployment.deploy --backend local` writes them"
)


class Served(NamedTuple):
    """Version folders that make up a model.

    Attributes:
      folder: of the model, or of the sparse part of an ensemble.
      dense_folder: of the ensemble's dense part; None: a model in one piece.
    """

    folder: Path
    dense_folder: Path | None = None


def find_served(path: str | Path) -> Served:
    """The model that a path means.

    Of a model's versions the highest is taken, as Triton does.

    Raises:
      ValueError: there is none that can be scored without a server, or more than one.
    """
    path = Path(path)
    if not path.is_dir():
        raise ValueError(f"--model {path}: there is no such folder; {_ALLOWED}")
    if (path / interfaces.FILE).is_file():
        return _of_version(path)
    if _latest_version(path) is not None:
        return _of_model(path)
    models = [folder for folder in sorted(path.iterdir()) if _latest_version(folder) is not None]
    whole = [folder for folder in models if _is_whole(folder)]
    if len(whole) != 1:
        found = ", ".join(folder.name for folder in whole or models) or "no models"
        raise ValueError(
            f"--model {path}: has {found}; "
            + (f"name one of them: {whole[0]}" if whole else _ALLOWED)
        )
    return _of_model(whole[0])


def _of_version(folder: Path) -> Served:
    role = interfaces.read(folder).role
    if role != SCORER:
        raise ValueError(
            f"--model {folder}: is the part {role} of an ensemble; name the ensemble's folder, or "
            "its repository"
        )
    return Served(folder)


def _of_model(folder: Path) -> Served:
    version = _latest_version(folder)
    if (version / interfaces.FILE).is_file():
        return _of_version(version)
    parts = _parts(folder)
    if parts is None:
        raise ValueError(
            f"--model {folder}: has no {interfaces.FILE} in its version {version.name}, and there "
            f"are no {folder.name}_{SPARSE} and {folder.name}_{DENSE} with one; {_ALLOWED}"
        )
    return parts


def _is_whole(folder: Path) -> bool:
    """Whether a model's folder is a model in one piece, or an ensemble of parts that are there."""
    version = _latest_version(folder)
    if (version / interfaces.FILE).is_file():
        return interfaces.read(version).role == SCORER
    return _parts(folder) is not None


def _parts(folder: Path) -> Served | None:
    """The models beside an ensemble's folder that it calls."""
    found = []
    for role in (SPARSE, DENSE):
        version = _latest_version(folder.with_name(f"{folder.name}_{role}"))
        if version is None or not (version / interfaces.FILE).is_file():
            return None
        found.append(version)
    return Served(*found)


def _latest_version(folder: Path) -> Path | None:
    """The version folder with the highest number; None where there is none."""
    if not folder.is_dir():
        return None
    versions = [path for path in folder.iterdir() if path.name.isdecimal() and path.is_dir()]
    return max(versions, key=lambda path: int(path.name), default=None)
