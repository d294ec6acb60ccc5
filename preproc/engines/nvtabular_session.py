"""NVTabular, imported and kept quiet, with limits of memory and threads around its work."""

import contextlib
import os
import shutil
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from preproc.arguments import MachineOptions

# NVTabular's ids are 0 for padding, 1 for missing values, 2 for those that it does not know, and
# from then on those of the values that it does.
FIRST_ID = 3
_MIN_MEMORY_BYTES = 768 << 20
# Memory in addition to partitions and values: Python, Arrow, Dask and NVTabular (about 220 MiB),
# the lines that are being parsed, allocator slack.
_BASE_BYTES = 384 << 20


class NVTabularSession:
    """A context manager with `_nvtabular` in it, to which an engine adds its work.

    Args:
        options: memory limit of the whole process, `_free_bytes` of it are for the engine's data;
            threads of Arrow.
        scratch: for the folders of `_folder`.

    Raises:
        ValueError: NVTabular is not installed, or the memory limit is too small for it.
    """

    def __init__(self, options: MachineOptions, scratch: Path):
        memory_limit_bytes = options.memory_limit_bytes
        if memory_limit_bytes < _MIN_MEMORY_BYTES:
            raise ValueError(
                f"--engine nvtabular needs a --memory_limit of {_MIN_MEMORY_BYTES >> 20} MiB or "
                f"more, got {memory_limit_bytes / (1 << 20):.0f} MiB; --engine duckdb "
                "works with less"
            )
        self._free_bytes = memory_limit_bytes - _BASE_BYTES
        self._options, self._scratch = options, scratch
        self._nvtabular = _imported()

    def __enter__(self):
        self._threads_before = pa.cpu_count()
        pa.set_cpu_count(self._options.threads)
        self._open_folders = contextlib.ExitStack()
        self._aliases: dict[Path, Path] = {}
        self._scratch = self._unpartitioned(self._scratch)
        return self

    def __exit__(self, *exception):
        self._open_folders.close()
        pa.set_cpu_count(self._threads_before)

    @contextlib.contextmanager
    def explained_errors(self):
        """Turns a lack of memory into a ValueError with possible solutions."""
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            # NVTabular makes a RuntimeError of whatever happens while it looks up values.
            if not isinstance(error, MemoryError) and not isinstance(error.__cause__, MemoryError):
                raise
            limit = self._options.memory_limit_bytes
            raise ValueError(
                f"out of memory, with a --memory_limit of {limit >> 20} MiB, which does not bound "
                "how much users and items take; possible solutions: a machine with more memory, or "
                "--engine duckdb, which needs less"
            ) from error

    def _parquet_dataset(self, paths: Sequence[Path], part_size: int):
        """Returns a `Dataset`; part_size: bytes of a partition."""
        files = [str(self._unpartitioned(path.parent) / path.name) for path in paths]
        return self._nvtabular.Dataset(files, engine="parquet", part_size=part_size)

    def _unpartitioned(self, folder: Path) -> Path:
        """Returns a path of a folder without `name=value` in it, valid until the context ends.

        Dask takes such names anywhere in a path for partition columns of the file.
        """
        folder = folder.absolute()
        if "=" not in str(folder):
            return folder
        if folder not in self._aliases:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            self._open_folders.callback(os.close, descriptor)
            self._aliases[folder] = Path(f"/proc/self/fd/{descriptor}")
        return self._aliases[folder]

    def _counted(self, dataset, column: str) -> pa.Table:
        """Returns the values of a column and their counts (value, count), in any order."""
        with self._folder("categorify") as folder:
            ops = self._nvtabular.ops
            categorify = ops.Categorify(out_path=str(folder))
            self._nvtabular.Workflow([column] >> categorify).fit(dataset)
            path = categorify.categories[column]
            counted = pq.read_table(path, columns=[column, f"{column}_size"])
        return counted.rename_columns(["value", "count"])

    @contextlib.contextmanager
    def _folder(self, name: str) -> Iterator[Path]:
        folder = self._scratch / name
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without NVTabular's remark, at each data set, that there is no GPU."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Initializing an NVTabular Dataset in CPU mode")
        yield


def _imported():
    """Imports NVTabular without TensorFlow, which it would import for nothing: 3 s and 350 MiB."""
    hidden = "tensorflow" not in sys.modules
    if hidden:
        sys.modules["tensorflow"] = None
    try:
        with warnings.catch_warnings():
            # It warns about each optional package that is absent.
            warnings.simplefilter("ignore")
            import nvtabular
            import nvtabular.ops
    except ImportError as error:
        raise ValueError(
            f"--engine nvtabular needs NVTabular, which cannot be imported here ({error}); run "
            "`make engines` with Python 3.10 or 3.11, or use --engine duckdb"
        ) from error
    finally:
        if hidden:
            del sys.modules["tensorflow"]
    return nvtabular
