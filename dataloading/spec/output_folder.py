"""A folder that appears under its name only when it is whole, for every tool that writes one."""

import contextlib
import os
import posixpath
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dataloading.spec.feature_spec import FeatureSpec

SPEC_FILE = "feature_spec.yaml"
VOCABULARY_FOLDER = "vocabulary"  # of a data set, beside its feature spec
_PREPARED = {"split_binary", "tfrecord"}  # types of chunks that tools write; others are raw data


@contextlib.contextmanager
def appears_whole(
    directory: Path, overwrite: bool = False, spec_file: str = SPEC_FILE
) -> Iterator[Path]:
    """A folder beside `directory` to write into, which takes its name when the block ends well.

    Killed before that, a run leaves at most a folder `.<name>.<random>` beside it, nothing under
    the name itself.

    Args:
        directory: new or empty.
        overwrite: allows a folder that holds a data set, too; it is replaced at the end.
        spec_file: the name of the feature spec of that data set.

    Raises:
        ValueError: `directory` cannot take its name, or is there and may not be replaced.
        OSError: it could not take its name; what was there before is there again.
    """
    directory = Path(directory)
    check_replaceable(directory, overwrite, spec_file)
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = _beside(directory)
    try:
        yield partial
        umask = os.umask(0)
        os.umask(umask)
        partial.chmod(0o777 & ~umask)  # mkdtemp makes folders for the owner alone
        if overwrite and directory.exists():
            _replace(directory, partial)
        else:
            partial.replace(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def check_replaceable(directory: Path, overwrite: bool = False, spec_file: str = SPEC_FILE) -> None:
    """Raises ValueError where `appears_whole` would.

    A data set is replaced when its feature spec is a valid one of prepared files and the folder
    holds nothing but these, the spec itself and the vocabularies.
    """
    _check_can_take_its_name(directory)
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return
    if not overwrite:
        raise ValueError(
            f"{directory} exists and is not an empty folder; remove it or choose another"
        )
    if not directory.is_dir() or not (directory / spec_file).is_file():
        raise ValueError(
            f"{directory} is no data set (it has no {spec_file}), so it is not replaced; choose "
            "another folder"
        )
    _check_data_set(directory, spec_file)


def check_apart(directory: Path, read: Path, flag: str) -> None:
    """Raises ValueError where replacing `directory` could take away what a run reads.

    Args:
        read: a folder with data that is read.
        flag: what names it, for the message.
    """
    ours, theirs = directory.resolve(), read.resolve()
    if ours.is_relative_to(theirs) or theirs.is_relative_to(ours):
        raise ValueError(
            f"--overwrite: --output {directory} is, holds or lies in {flag} {read}, which is read: "
            "choose a folder beside it"
        )


def _check_can_take_its_name(directory: Path) -> None:
    """A folder takes a name by renaming, which these names do not allow."""
    if directory.is_symlink():
        raise ValueError(
            f"{directory} is a symbolic link, which a folder cannot replace; name the folder that "
            "it points to"
        )
    if os.path.ismount(directory):
        raise ValueError(
            f"{directory} is a mount point, which cannot be replaced; name a folder in it"
        )
    if directory.name in ("", "..") or Path.cwd().is_relative_to(directory.resolve()):
        raise ValueError(
            f"{directory} is or holds the current folder, which cannot be replaced; name a folder "
            "in it"
        )


def _check_data_set(directory: Path, spec_file: str) -> None:
    try:
        spec = FeatureSpec.from_yaml(directory / spec_file)
    except ValueError as error:
        raise ValueError(
            f"{directory} is no data set, so it is not replaced; choose another folder ({error})"
        ) from None
    chunks = [chunk for chunks in spec.source_spec.values() for chunk in chunks]
    if not chunks or {chunk.type for chunk in chunks} - _PREPARED:
        raise ValueError(
            f"{directory} is no data set (its {spec_file} names no prepared files, or raw ones), "
            "so it is not replaced; choose another folder"
        )
    named = {spec_file, VOCABULARY_FOLDER}
    named |= {posixpath.normpath(file) for chunk in chunks for file in chunk.files}
    for path in sorted(directory.rglob("*")):
        relative = path.relative_to(directory)
        inside = {path.as_posix() for path in (relative, *relative.parents[:-1])}
        if not inside & named and (path.is_symlink() or not path.is_dir()):
            raise ValueError(
                f"{directory} holds {relative}, which is no part of the data set of its "
                f"{spec_file}, so it is not replaced; move that away or choose another folder"
            )


def _beside(directory: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))


def _replace(directory: Path, partial: Path) -> None:
    """Puts `partial` in the place of `directory`, or leaves that as it was."""
    replaced = _beside(directory)
    try:
        directory.replace(replaced)  # onto an empty folder; the next rename is the only gap
    except OSError:
        replaced.rmdir()
        raise
    try:
        partial.replace(directory)
    except OSError as error:
        replaced.replace(directory)
        raise OSError(
            f"{directory}: what was made could not take this name ({error}); what was there before "
            "is there again"
        ) from error
    shutil.rmtree(replaced)
