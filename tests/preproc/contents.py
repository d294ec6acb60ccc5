"""Content of a prepared data set, to compare it with another one's."""

from pathlib import Path

from runtime.files.outputs import MARKER


def contents(folder: Path) -> dict[str, bytes]:
    """Returns the content of each file but the marker, by its path in the folder."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != MARKER)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
