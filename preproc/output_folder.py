"""Output folders that a preparation may create or replace, and its temporary files."""

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dataloading.spec.output_folder import check_replaceable
from runtime.files.disk import FileLock


def check_output(output: Path, source: Path, overwrite: bool) -> None:
    """Raises ValueError if the output folder exists and may not, or should not, be replaced.

    Args:
        output: new, or with `overwrite` a prepared data set and nothing else.
        source: what is read; it must not lie in `output`.
    """
    if output.resolve() == source.resolve() or output.resolve() in source.resolve().parents:
        raise ValueError(
            f"--output {output} holds {source}, which is read and would be replaced; choose another"
        )
    if not output.exists():
        return
    if not overwrite:
        raise ValueError(f"--output {output} exists; replace it with --overwrite, or move it away")
    try:
        check_replaceable(output, overwrite)
    except ValueError as error:
        raise ValueError(f"--overwrite: --output {error}") from None


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
