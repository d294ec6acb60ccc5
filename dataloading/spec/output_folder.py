"""Folders of data sets that tools write and, on request, replace."""

import contextlib
import posixpath
from collections.abc import Iterator
from pathlib import Path

from dataloading.spec.feature_spec import FeatureSpec
from runtime.files.atomic import atomic_folder, check_folder_name

SPEC_FILE = "feature_spec.yaml"
VOCABULARY_FOLDER = "vocabulary"  # of a data set, next to its feature spec
METADATA = "transcode"  # key of what transcode stores in the metadata of a data set
# Files of split TFRecords that no feature spec names.
FORMAT_FILE, LENGTH_FILE = "format.json", "length.json"
_PREPARED = {"split_binary", "tfrecord"}  # types of chunks that tools write; others are raw data


@contextlib.contextmanager
def data_set_folder(
    directory: Path, overwrite: bool = False, spec_file: str = SPEC_FILE
) -> Iterator[Path]:
    """Yields a new folder that takes its name when the block ends without error.

    Args:
        directory: see `check_replaceable`; unchanged after an error.
        overwrite: replace a data set at the end.
        spec_file: name of the feature spec of that data set.
    """
    check_replaceable(directory, overwrite, spec_file)
    with atomic_folder(directory, overwrite) as folder:
        yield folder


def check_replaceable(directory: Path, overwrite: bool = False, spec_file: str = SPEC_FILE) -> None:
    """Raises ValueError unless `data_set_folder` can create or replace the folder.

    A data set is replaced if its feature spec is a valid one of prepared files and the folder holds
    only these, the spec itself, the vocabularies and the JSON files of split TFRecords.
    """
    check_folder_name(directory)
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return
    if not overwrite:
        raise ValueError(
            f"{directory} exists and is not an empty folder; remove it or choose another folder"
        )
    if not directory.is_dir() or not (directory / spec_file).is_file():
        raise ValueError(
            f"{directory} is not a data set (it has no {spec_file}), so it is not replaced; choose "
            "another folder"
        )
    _check_data_set(directory, spec_file)


def check_apart(directory: Path, read: Path, flag: str) -> None:
    """Raises ValueError if replacing `directory` could remove the data in `read`, see `flag`."""
    ours, theirs = directory.resolve(), read.resolve()
    if ours.is_relative_to(theirs) or theirs.is_relative_to(ours):
        raise ValueError(
            f"--overwrite: --output {directory} is, holds or lies in {flag} {read}, which is read: "
            "choose a folder next to it"
        )


def _check_data_set(directory: Path, spec_file: str) -> None:
    try:
        spec = FeatureSpec.from_yaml(directory / spec_file)
    except ValueError as error:
        raise ValueError(
            f"{directory} is not a data set, so it is not replaced; choose another folder ({error})"
        ) from None
    chunks = [chunk for chunks in spec.source_spec.values() for chunk in chunks]
    has_data = bool(chunks) or (directory / VOCABULARY_FOLDER).is_dir()
    if not has_data or {chunk.type for chunk in chunks} - _PREPARED:
        raise ValueError(
            f"{directory} is not a data set (its {spec_file} names no prepared files, or raw "
            "ones), so it is not replaced; choose another folder"
        )
    named = {spec_file, VOCABULARY_FOLDER}
    named |= {posixpath.normpath(file) for chunk in chunks for file in chunk.files}
    for path in sorted(directory.rglob("*")):
        relative = path.relative_to(directory)
        inside = {path.as_posix() for path in (relative, *relative.parents[:-1])}
        is_named = inside & named or path.name in (FORMAT_FILE, LENGTH_FILE)
        if not is_named and (path.is_symlink() or not path.is_dir()):
            raise ValueError(
                f"{directory} holds {relative}, which is not part of the data set of its "
                f"{spec_file}, so it is not replaced; move that away or choose another folder"
            )
