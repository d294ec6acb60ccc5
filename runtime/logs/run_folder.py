"""Folder of a run, and its plots."""

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from distributed_embeddings.collectives import World

from runtime.cluster.distributed import run_on_all_ranks
from runtime.files.disk import FileLock
from runtime.logs import plots
from runtime.logs.run_logger import RunLogger

# File in the folder of a run from which `--flagfile` repeats the run.
FLAGS = "flags"


@contextlib.contextmanager
def open_run_dir(run_dir: str | None, names: Iterable[str], world: World) -> Iterator[Path]:
    """Yields the run's folder, which rank 0 makes (`make_run_dir`) and locks.

    Raises:
        ValueError: another run is using it; on all ranks.
        OSError: it cannot be written; on all ranks.
    """
    lock = run_on_all_ranks(
        world, lambda: _lock(make_run_dir(run_dir, names)) if world.is_chief else None
    )
    try:
        name = str(lock.path.parent) if lock else ""
        yield Path(world.gather_objects(name, "run_dir")[0])
    finally:
        if lock is not None:
            lock.path.unlink(missing_ok=True)
            lock.release()


def _lock(run_dir: Path) -> FileLock:
    lock = FileLock(run_dir / ".run.lock")
    if not lock.acquire(blocking=False):
        raise ValueError(
            f"--run_dir {run_dir}: another run is writing its log there; let it end, or choose "
            "another folder"
        )
    return lock


def make_run_dir(run_dir: str | None, names: Iterable[str]) -> Path:
    """Returns the run's folder, which exists: `--run_dir`, else a new one of these names."""
    if run_dir:
        Path(run_dir).mkdir(parents=True, exist_ok=True)
        return Path(run_dir)
    for path in map(Path, names):
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # of an earlier run, or of one that starts now
            path.mkdir()
            break
    return path


def training_names(recipe: str, dataset_path: str | None) -> Iterator[str]:
    """Yields folders of a run: `runs/dlrm-orders-1` and so on."""
    data = re.sub(r"[^A-Za-z0-9_.]+", "-", Path(dataset_path or "generated").resolve().name)
    return (f"runs/{recipe}-{data}-{number}" for number in itertools.count(1))


def evaluation_names(training: Path, mode: str, split: str | None) -> Iterator[str]:
    """Yields folders of a run in that of a training: `eval-test`, `eval-test-2` and so on."""
    stem = f"{training}/{mode}{f'-{split}' if split else ''}"
    return itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))


def draw_plots(
    run_dir: Path, log: RunLogger, pictures: Iterable[tuple[str, str, Mapping[str, Any]]]
) -> list[Path]:
    """Draws the results of a training or an evaluation, logs and returns the names of the files.

    A plot that fails does not end the run: a note in the log gives the reason.

    Args:
        pictures: kind, see `plots.draw`, name of the file, and content.
    """
    drawn: list[Path] = []
    for kind, name, content in pictures:
        try:
            plots.draw(kind, run_dir / name, **content)
            drawn.append(run_dir / name)
        except OSError as error:
            log.message(f"note: {error}")
    if drawn:
        log.message(f"plots: {', '.join(map(str, drawn))}")
    return drawn
