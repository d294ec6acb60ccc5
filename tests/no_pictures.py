"""In place of `runtime.logs.plots.draw`, whose processes take longer than a tiny training."""

from pathlib import Path


def touch(kind: str, path: str | Path, **content) -> None:
    """Leaves an empty file where the picture would be."""
    Path(path).touch()
