"""In place of `runtime.logs.plots.draw`, which takes longer than a tiny training."""

from pathlib import Path


def touch(kind: str, path: str | Path, **content) -> None:
    """Leaves an empty file where the picture would be."""
    Path(path).touch()
