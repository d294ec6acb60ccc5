"""Content of a prepared data set, to compare it with another one's."""

from pathlib import Path

import pyarrow.parquet as pq

from runtime.files.outputs import MARKER


def contents(folder: Path) -> dict[str, bytes]:
    """Returns the content of each file but the marker, by its path in the folder.

    That of Parquet files are the values: their bytes depend on the version of PyArrow.
    """
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != MARKER)
    return {str(path.relative_to(folder)): _content(path) for path in paths}


def _content(path: Path) -> bytes:
    if path.suffix == ".parquet":
        return repr(pq.read_table(path).to_pydict()).encode()
    return path.read_bytes()
