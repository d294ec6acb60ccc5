"""A folder that appears under its name only when it is whole, for every tool that writes one."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

SPEC_FILE = "feature_spec.yaml"


@contextlib.contextmanager
def appears_whole(directory: Path, overwrite: bool = False) -> Iterator[Path]:
    """A folder beside `directory` to write into, which takes its name when the block ends well.

    Killed before that, a run leaves at most a folder `.<name>.<random>` beside it, nothing under
    the name itself.

    Args:
        directory: new or empty.
        overwrite: allows a folder that holds a data set, too; it is replaced at the end.

    Raises:
        ValueError: `directory` is there and may not be replaced.
    """
    directory = Path(directory)
    check_replaceable(directory, overwrite)
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        yield partial
        umask = os.umask(0)
        os.umask(umask)
        partial.chmod(0o777 & ~umask)  # mkdtemp makes folders for the owner alone
        if overwrite and directory.exists():
            replaced = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
            directory.replace(replaced)  # onto an empty folder; the next line is the only gap
            partial.replace(directory)
            shutil.rmtree(replaced)
        else:
            partial.replace(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def check_replaceable(directory: Path, overwrite: bool = False) -> None:
    """Raises ValueError where `directory` is there and may not be replaced, see `appears_whole`."""
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return
    if not overwrite:
        raise ValueError(
            f"{directory} exists and is not an empty folder; remove it or choose another"
        )
    if not directory.is_dir() or not (directory / SPEC_FILE).is_file():
        raise ValueError(
            f"{directory} is no data set (it has no {SPEC_FILE}), so it is not replaced; choose "
            "another folder"
        )
