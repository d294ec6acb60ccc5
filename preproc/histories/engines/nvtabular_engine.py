"""The engine for NVTabular: on a GPU where cuDF is, else on the CPU with pandas.

`Categorify` counts and looks up users and items; DuckDB sorts the events. It all happens in this
process: a Dask cluster on one machine is slower. Events are processed a partition at a time. But
`Categorify` holds all different users and items as Python objects on the CPU, which no flag limits.
"""

import contextlib
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from preproc.arguments import no_user_left
from preproc.events.ties import TIE_ORDER
from preproc.histories.options import HistoryOptions

# NVTabular's ids are 0 for padding, 1 for missing values, 2 for those that it does not know, and
# from then on those of the values that it does.
FIRST_ID = 3
_MIN_MEMORY_BYTES = 768 << 20
# Memory in addition to partitions and values: Python, Arrow, Dask and NVTabular (about 220 MiB),
# the lines that are being parsed, allocator slack.
_BASE_BYTES = 384 << 20
_PARTITION_SHARE = 8  # a partition of events takes 1/8 of the memory for data
_MAX_PARTITION_BYTES = 32 << 20  # larger ones are not faster


class AmazonNVTabularEngine:
    """See `AmazonEngine`; the memory limit decides how large partitions are.

    Raises:
        ValueError: NVTabular is not installed, or the memory limit is too small for it.
    """

    def __init__(self, options: HistoryOptions, scratch: Path):
        memory_limit_bytes = options.memory_limit_bytes
        if memory_limit_bytes < _MIN_MEMORY_BYTES:
            raise ValueError(
                f"--engine nvtabular needs a --memory_limit of {_MIN_MEMORY_BYTES >> 20} MiB or "
                f"more, got {memory_limit_bytes / (1 << 20):.0f} MiB; --engine duckdb "
                "works with less"
            )
        free_bytes = memory_limit_bytes - _BASE_BYTES
        self._partition_bytes = min(_MAX_PARTITION_BYTES, free_bytes // _PARTITION_SHARE)
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

    def number(
        self, file: Path, min_events: int, vocabularies: Mapping[str, Path], target: str
    ) -> int:
        """Writes ids of kept events, from FIRST_ID on, to Parquet files of a folder in the scratch.

        Args:
            file: of user, item, time and tie_order; those of the result.
            vocabularies: "user", "item" -> new file, see `NumberedEvents.vocabularies`.

        Returns:
            the number of all users.
        """
        ops, work = self._nvtabular.ops, self._scratch
        with warnings.catch_warnings():
            # Its remark, at each data set, that there is no GPU.
            warnings.filterwarnings("ignore", message="Initializing an NVTabular Dataset in CPU")
            events = self._dataset([file])
            # Arrow compares text bytewise.
            every_user = self._counted(events, "user").sort_by("value")
            users = every_user.filter(pc.field("count") >= min_events)
            if not len(users):
                most = pc.max(every_user["count"]).as_py()
                raise no_user_left(f"--min_events {min_events} events", most)
            user_ids = ["user"] >> ops.Categorify(vocabs=_vocabulary("user", users, work))
            kept = user_ids + ["item", "time", TIE_ORDER] >> ops.Filter(
                lambda log: log["user"] >= FIRST_ID
            )
            events = self._stored(events, kept, work / "kept")
            items = self._counted(events, "item").sort_by("value")
            item_ids = ["item"] >> ops.Categorify(vocabs=_vocabulary("item", items, work))
            self._stored(events, ["user", "time", TIE_ORDER] + item_ids, work / target)
            pq.write_table(users, vocabularies["user"])
            pq.write_table(items, vocabularies["item"])
        return len(every_user)

    def _dataset(self, paths: Sequence[Path]):
        """A data set of files, some of which may be empty."""
        rows = {path: pq.read_metadata(path).num_rows for path in paths}
        # NVTabular takes the first row group for as large as any.
        files = sorted((path for path in paths if rows[path]), key=rows.get, reverse=True)
        names = [str(self._unpartitioned(path.parent) / path.name) for path in files]
        return self._nvtabular.Dataset(names, engine="parquet", part_size=self._partition_bytes)

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
        categorify = self._nvtabular.ops.Categorify(out_path=str(self._scratch / f"{column}s"))
        self._nvtabular.Workflow([column] >> categorify).fit(dataset)
        counted = pq.read_table(categorify.categories[column], columns=[column, f"{column}_size"])
        return counted.rename_columns(["value", "count"])

    def _stored(self, dataset, result, folder: Path):
        """Applies a workflow to a data set; returns the result, stored in `folder`."""
        workflow = self._nvtabular.Workflow(result)
        workflow.fit_schema(dataset.schema)
        workflow.transform(dataset).to_parquet(str(folder))
        return self._dataset(sorted(folder.glob("*.parquet")))


def _vocabulary(column: str, counted: pa.Table, folder: Path) -> dict[str, str]:
    """Values in the order of their ids, as `Categorify` takes them: it counts from FIRST_ID."""
    path = folder / f"{column}_values.parquet"
    pq.write_table(pa.table({column: counted["value"]}), path)
    return {column: str(path)}


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
