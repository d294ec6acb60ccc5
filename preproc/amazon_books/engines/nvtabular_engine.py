"""The engine for NVTabular: on a GPU where cuDF is, else on the CPU with pandas.

`Categorify` counts and looks up users and items; events are shuffled by user; `Groupby` sorts each
user's. It all happens in this process: a Dask cluster on one machine is slower. DuckDB numbers the
features. Events are processed a partition at a time, and shuffled on the disk where they take more
than 1 GB. But `Categorify` holds all different users and items as Python objects on the CPU, which
no flag limits.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from preproc.amazon_books.engines.duckdb_engine import AmazonDuckDBEngine
from preproc.amazon_books.engines.interface import LEAST, NumberedLog, StagedLog
from preproc.amazon_books.options import AmazonOptions
from preproc.arguments import no_user_left
from preproc.engines.nvtabular_session import FIRST_ID, NVTabularSession, quiet

_PARTITION_SHARE = 8  # a partition of events takes 1/8 of the memory for data
_MAX_PARTITION_BYTES = 32 << 20  # larger ones are not faster


class AmazonNVTabularEngine(NVTabularSession):
    """See `AmazonEngine`; the memory limit decides how large partitions are.

    Raises:
        ValueError: NVTabular is not installed, or the memory limit is too small for it.
    """

    def __init__(self, options: AmazonOptions, scratch: Path):
        super().__init__(options, scratch)
        self._partition_bytes = min(_MAX_PARTITION_BYTES, self._free_bytes // _PARTITION_SHARE)

    def number(self, log: StagedLog, min_events: int, folder: Path) -> NumberedLog:
        ops = self._nvtabular.ops
        with self._folder("number") as work, quiet():
            events = self._dataset(log.events)
            if events is None:
                raise no_user_left(LEAST.format(min_events), 0)
            # Arrow compares text bytewise.
            every_user = self._counted(events, "user").sort_by("value")
            users = every_user.filter(pc.field("count") >= min_events)
            if not len(users):
                most = pc.max(every_user["count"]).as_py()
                raise no_user_left(LEAST.format(min_events), most)
            user_ids = ["user"] >> ops.Categorify(vocabs=_vocabulary("user", users, work))
            kept = user_ids + ["item", "time"] >> ops.Filter(lambda log: log["user"] >= FIRST_ID)
            events = self._stored(events, kept, work / "kept")
            items = self._counted(events, "item").sort_by("value")
            item_ids = ["item"] >> ops.Categorify(vocabs=_vocabulary("item", items, work))
            user_features, missing_users = self._features("user", users, log)
            item_features, missing_items = self._features("item", items, log)
            numbered = NumberedLog(
                events=folder / "events.int32",
                num_events=users["count"].to_numpy(),
                user_features=user_features,
                item_features=item_features,
                num_items=len(items),
                num_users_before=len(every_user),
                num_missing=missing_users | missing_items,
                vocabularies={kind: folder / f"{kind}_values.parquet" for kind in ("user", "item")},
            )
            for counted, path in zip((users, items), numbered.vocabularies.values(), strict=True):
                pq.write_table(counted, path)
            self._write_events(events, ["user", "time"] + item_ids, numbered, work)
        return numbered

    def _dataset(self, paths: Sequence[Path]):
        """A data set of files, which may be empty; None if they all are."""
        rows = {path: pq.read_metadata(path).num_rows for path in paths}
        # NVTabular takes the first row group for as large as any.
        files = sorted((path for path in paths if rows[path]), key=rows.get, reverse=True)
        if not files:
            return None
        return self._parquet_dataset(files, self._partition_bytes)

    def _stored(self, dataset, result, folder: Path):
        """Applies a workflow to a data set; returns the result, stored in `folder`."""
        workflow = self._nvtabular.Workflow(result)
        workflow.fit_schema(dataset.schema)
        workflow.transform(dataset).to_parquet(str(folder))
        return self._dataset(sorted(folder.glob("*.parquet")))

    def _write_events(self, dataset, ids, log: NumberedLog, work: Path) -> None:
        """Writes the item ids of all events where their users' are; ids: (user, time, item)."""
        import dask
        from merlin.core.dispatch import to_arrow

        starts = log.user_starts
        target = np.memmap(log.events, np.int32, "w+", shape=int(log.num_events.sum()))

        def write(users) -> None:
            """users: a partition (user, item_list) of whole users."""
            if not len(users):
                return
            table = to_arrow(users)
            lists = table["item_list"].combine_chunks()
            offsets, items = lists.offsets.to_numpy(), lists.flatten().to_numpy()
            number = table["user"].to_numpy() - FIRST_ID
            places = np.repeat(starts[number] - (offsets[:-1] - offsets[0]), np.diff(offsets))
            target[places + np.arange(len(items))] = items - FIRST_ID + 1

        by_user = self._nvtabular.ops.Groupby(
            groupby_cols=["user"], sort_cols=["time", "item"], aggs={"item": "list"}
        )
        with dask.config.set(temporary_directory=str(work)):
            workflow = self._nvtabular.Workflow(ids)
            workflow.fit_schema(dataset.schema)
            shuffled = workflow.transform(dataset).shuffle_by_keys(["user"], hive_data=False)
            workflow = self._nvtabular.Workflow(["user", "item", "time"] >> by_user)
            workflow.fit_schema(shuffled.schema)
            parts = workflow.transform(shuffled).to_ddf().to_delayed()
            # In one go, so that the shuffle is done once.
            dask.compute([dask.delayed(write)(part) for part in parts], scheduler="synchronous")
        target.flush()

    def _features(
        self, kind: str, known: pa.Table, log: StagedLog
    ) -> tuple[tuple[np.ndarray, ...], dict[str, int]]:
        """See `AmazonDuckDBEngine.features`; known: raw values in the order of their ids."""
        ids = np.arange(1, len(known) + 1, dtype=np.int32)
        known = pa.table({"value": known["value"], "id": ids})
        with AmazonDuckDBEngine(self._options, self._scratch) as engine:
            return engine.features(kind, log, known)


def _vocabulary(column: str, counted: pa.Table, folder: Path) -> dict[str, str]:
    """Values in the order of their ids, as `Categorify` takes them: it counts from FIRST_ID."""
    path = folder / f"{column}_values.parquet"
    pq.write_table(pa.table({column: counted["value"]}), path)
    return {column: str(path)}
