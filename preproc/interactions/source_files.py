"""Input files and their form, by their names."""

import glob
from dataclasses import dataclass
from pathlib import Path

from preproc.sources.part_files import find_table, is_table
from runtime.files.paths import absent

TABLE, DAT, NCF = "table", "dat", "ncf"
_TRAIN_ENDINGS = (".train.rating", ".train.pairs.tsv")
_TEST_ENDING, _NEGATIVE_ENDING = ".test.rating", ".test.negative"
_RATINGS = ("ratings.csv", "ratings.dat")
_GZIP = ".gz"


@dataclass(frozen=True)
class Source:
    """Input files."""

    # TABLE (named columns), DAT (user::item::rating::time, no header), or NCF (the files of the NCF
    # paper)
    form: str
    # of TABLE and DAT, the parts of one log; of NCF, training, test and negatives
    files: tuple[Path, ...]


def find_source(inputs: tuple[Path, ...]) -> Source:
    """The files that are named, those of patterns, or those of the one folder that is.

    Raises:
        ValueError: files are missing, of several forms, or more than one log lies in the folder.
    """
    if len(inputs) == 1 and inputs[0].is_dir():
        inputs = _log_of(inputs[0])
    else:
        inputs = tuple(file for path in inputs for file in _files(path))
    for path in inputs:
        if path.is_dir():
            raise ValueError(f"--input {path}: expected files or one folder, got both: give one")
        if not path.exists():
            raise ValueError(f"--input {absent(path)}")
    if len(set(inputs)) < len(inputs):
        raise ValueError("--input names a file twice, whose rows would count twice")
    forms = {_form(path) for path in inputs}
    if len(forms) > 1 or (forms == {NCF} and len(inputs) > 1):
        raise ValueError(
            f"--input {' '.join(map(str, inputs))}: files of one form, or one *.train.rating (or "
            "*.train.pairs.tsv), with *.test.rating and *.test.negative in the same folder"
        )
    if forms == {NCF}:
        return Source(NCF, _with_tests(inputs[0]))
    return Source(forms.pop(), inputs)


def _files(path: Path) -> list[Path]:
    """Returns the path of a file or folder, or the files of a pattern."""
    is_pattern = not path.exists() and glob.glob(str(path))
    return [Path(file) for file in find_table(path).files] if is_pattern else [path.absolute()]


def _log_of(folder: Path) -> tuple[Path, ...]:
    """Returns the file with a known name in a folder, or else all its part files."""
    known = {name + packed for name in _RATINGS for packed in ("", _GZIP)}
    logs = sorted(path for path in folder.iterdir() if path.name in known or _form(path) == NCF)
    if not logs and any(is_table(str(path)) for path in folder.rglob("*")):
        return tuple(map(Path, find_table(folder).files))
    if len(logs) != 1:
        names = ", ".join(path.name for path in logs) or "none of them"
        raise ValueError(
            f"--input {folder}: a folder must hold one of ratings.csv, ratings.dat, *.train.rating "
            f"and *.train.pairs.tsv (or one of these as .gz), or part files; got {names}. "
            "Name the file itself"
        )
    return tuple(logs)


def _form(path: Path) -> str:
    name = path.name.removesuffix(_GZIP)
    if name.endswith(_TRAIN_ENDINGS):
        return NCF
    return DAT if name.endswith(".dat") else TABLE


def _with_tests(train: Path) -> tuple[Path, Path, Path]:
    name = train.name.removesuffix(_GZIP)
    (stem,) = (name.removesuffix(end) for end in _TRAIN_ENDINGS if name.endswith(end))
    files = [train]
    for ending in (_TEST_ENDING, _NEGATIVE_ENDING):
        plain = train.with_name(stem + ending)
        matches = [path for path in (plain, plain.with_name(plain.name + _GZIP)) if path.is_file()]
        if len(matches) != 1:
            number = "both of them" if matches else "neither"
            raise ValueError(
                f"--input {train}: {plain.name} or {plain.name}{_GZIP} must be in the same "
                f"folder, got {number}"
            )
        files += matches
    return tuple(files)
