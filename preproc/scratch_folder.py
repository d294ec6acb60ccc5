"""Temporary files of a preparation, of which a killed run leaves none to the next one."""

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from runtime.files.atomic import FileLock


@contextlib.contextmanager
def scratch_folder(output: Path, folder: Path, temp_dir: Path | None) -> Iterator[Path]:
    """Yields a folder for temporary files, in `temp_dir` or else in `folder`, the later `output`.

    A file `.<output>.preparing` next to the output excludes other runs for the same output and
    names both folders, so that the next run removes those of a killed one.
    """
    output = output.resolve()
    path = output.with_name(f".{output.name}.preparing")
    lock = FileLock(path)
    if not lock.acquire(blocking=False):
        raise ValueError(f"another run is preparing {output} (it holds {path}); let it end")
    try:
        for leftover in map(Path, path.read_text().splitlines()):
            if leftover.exists():
                shutil.rmtree(leftover)
                print(f"removed {leftover}, which a killed run left", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(
            prefix=f"{output.name}.scratch.", dir=temp_dir or folder
        ) as scratch:
            path.write_text(f"{folder.resolve()}\n{Path(scratch).resolve()}\n")
            yield Path(scratch)
    finally:
        path.unlink(missing_ok=True)
        lock.release()
