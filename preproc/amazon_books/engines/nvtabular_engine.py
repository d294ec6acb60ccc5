"""The engine for NVTabular: on a GPU where cuDF is, else on the CPU with pandas.

Arrow parses the lines, some megabytes at a time. From there on it is NVTabular's work: `Categorify`
counts users, leaves out those with few events, counts the items of the others, and looks all of
them up; events are shuffled by user; `Groupby` sorts each user's and makes a list of them;
`JoinExternal` finds the features of users and items, of which `Categorify` makes ids too. It all
happens in this process: a Dask cluster on one machine is slower.

Events are worked on a partition at a time, and shuffled on the disk where they take more than 1 GB.
But `Categorify` holds all different users and items, and `JoinExternal` a whole table of features,
as Python objects on the CPU: no flag limits that; use `--engine duckdb` for larger data.
"""

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from preproc.amazon_books.engines.interface import NumberedLog, StagedLog, no_user_left, two_values
from preproc.amazon_books.options import AmazonOptions
from preproc.engines.nvtabular_session import FIRST_ID, NVTabularSession, quiet

_PARTITION_SHARE = 8  # a partition of events takes 1/8 of the memory for data
_MAX_PARTITION_BYTES = 32 << 20  # larger ones are not faster
_JOINED_ROWS = 1 << 20  # users or items that features are found for at a time
# Text of a feature: a missing value, and the prefix of any other.
_ABSENT, _PRESENT = "", "="


class AmazonNVTabularEngine(NVTabularSession):
    """A context manager; see `preproc/amazon_books/engines/interface.py`.

    Args:
        options: their memory limit decides how large partitions are; their threads are Arrow's.
        scratch: for what is needed on the way.

    Raises:
        ValueError: NVTabular is not installed, or the memory limit is too small for it.
    """

    name = "nvtabular"

    def __init__(self, options: AmazonOptions, scratch: Path):
        super().__init__(
            options.memory_limit_bytes,
            options.threads,
            scratch,
            out_of_memory=(
                ", which does not bound how much users, items and their features take; possible "
                "solutions: a machine with more memory"
            ),
        )
        self._partition_bytes = min(_MAX_PARTITION_BYTES, self._free_bytes // _PARTITION_SHARE)

    def number(self, log: StagedLog, min_events: int, folder: Path) -> NumberedLog:
        """See `AmazonEngine`."""
        ops = self._nvtabular.ops
        with self._folder("number") as work, _without_remarks():
            events = self._dataset(log.events)
            if events is None:
                raise no_user_left(min_events, 0)
            every_user = self._counted(events, "user", work)
            users = every_user.filter(pc.field("count") >= min_events)
            if not len(users):
                raise no_user_left(min_events, pc.max(every_user["count"]).as_py())
            user_ids = ["user"] >> ops.Categorify(vocabs=_vocabulary("user", users, work))
            kept = user_ids + ["item", "time"] >> ops.Filter(_has_known_user)
            events = self._stored(events, kept, work / "kept")
            items = self._counted(events, "item", work)
            item_ids = ["item"] >> ops.Categorify(vocabs=_vocabulary("item", items, work))
            missing: dict[str, int] = {}
            numbered = NumberedLog(
                events=folder / "events.int32",
                num_events=users["count"].to_numpy(),
                user_features=self._features("user", users, log, work, missing),
                item_features=self._features("item", items, log, work, missing),
                num_items=len(items),
                num_users_before=len(every_user),
                num_missing=missing,
            )
            self._write_events(events, ["user", "time"] + item_ids, numbered, work)
        return numbered

    def _dataset(self, paths: Sequence[Path]):
        """A data set of files, which may be empty; None if they all are."""
        rows = {path: pq.read_metadata(path).num_rows for path in paths}
        # NVTabular takes the first row group for as large as any.
        files = sorted((path for path in paths if rows[path]), key=rows.get, reverse=True)
        if not files:
            return None
        return self._parquet_dataset(files, part_size=self._partition_bytes)

    def _stored(self, dataset, result, folder: Path):
        """Applies a workflow to a data set; returns the result, stored in `folder`."""
        workflow = self._nvtabular.Workflow(result)
        workflow.fit_schema(dataset.schema)
        workflow.transform(dataset).to_parquet(str(folder))
        return self._dataset(sorted(folder.glob("*.parquet")))

    def _counted(self, dataset, column: str, work: Path) -> pa.Table:
        """The different values of a column and how often they occur: value, count; upwards."""
        with self._folder("categorify") as folder:
            categorify = self._nvtabular.ops.Categorify(out_path=str(folder))
            self._nvtabular.Workflow([column] >> categorify).fit(dataset)
            path = categorify.categories[column]
            counted = pq.read_table(path, columns=[column, f"{column}_size"])
        # Arrow compares text bytewise.
        return counted.rename_columns(["value", "count"]).sort_by("value")

    def _write_events(self, dataset, ids, log: NumberedLog, work: Path) -> None:
        """Writes the item ids of all events where their users' are.

        Args:
            ids: what a workflow makes of the data set: user, time, item.
            work: for the shuffle.
        """
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
        self, kind: str, known: pa.Table, log: StagedLog, work: Path, missing: dict[str, int]
    ) -> tuple[np.ndarray, ...]:
        """The ids of each feature of the known users or items, [known + 1].

        Args:
            kind: "user" or "item".
            known: their raw values, in the order of their ids.
            log: with the tables of features.
            missing: `NumberedLog.num_missing`, which is filled here.
        """
        is_user = kind == "user"
        names = log.user_features if is_user else log.item_features
        if not names:
            return ()
        from merlin.core.dispatch import get_lib, to_arrow

        ops = self._nvtabular.ops
        columns = [f"{kind}_{i}" for i in range(len(names))]
        paths = log.users if is_user else log.items
        table, types = _feature_texts(paths, kind, columns, log.gaps_count)
        source, ids = work / f"{kind}_rows.parquet", work / f"{kind}_ids.parquet"
        pq.write_table(table, source)
        numbers = np.arange(1, len(known) + 1)
        pq.write_table(pa.table({kind: known["value"], "id": numbers}), ids, _JOINED_ROWS)
        features = get_lib().read_parquet(source).drop_duplicates()
        joined = [kind, "id"] >> ops.JoinExternal(features, on=kind)
        with self._folder("categorify") as folder:
            categorify = ops.Categorify(out_path=str(folder))
            codes = joined[columns] >> ops.FillMissing(_ABSENT) >> categorify
            workflow = self._nvtabular.Workflow(joined["id"] + codes)
            dataset = self._parquet_dataset([ids], row_groups_per_part=1)
            workflow.fit(dataset)
            frame = workflow.transform(dataset).to_ddf().compute(scheduler="synchronous")
            rows = to_arrow(frame).sort_by("id")
            values = [
                _values(pq.read_table(categorify.categories[column], columns=[column]), type_)
                for column, type_ in zip(columns, types, strict=True)
            ]
        starts = np.flatnonzero(np.diff(rows["id"].to_numpy(), prepend=0))
        features = []
        for name, column, its_values in zip(names, columns, values, strict=True):
            order, ranks = _ranks(its_values)
            ranks = ranks[rows[column].to_numpy() - FIRST_ID]
            least, most = (each.reduceat(ranks, starts) for each in (np.minimum, np.maximum))
            twofold = np.flatnonzero(least != most)
            if len(twofold):
                i = int(twofold[0])
                both = (its_values[int(order[rank[i] - 1])].as_py() for rank in (least, most))
                raise two_values(kind, known["value"][i].as_py(), name, tuple(both))
            has_gaps = not its_values[int(order[0])].is_valid
            missing[name] = int(np.count_nonzero(least == 1)) if has_gaps else 0
            features.append(np.concatenate([np.zeros(1, np.int32), least]))
        return tuple(features)


@contextlib.contextmanager
def _without_remarks() -> Iterator[None]:
    """Without NVTabular's remarks that there is no GPU, and that tables of features do without."""
    with quiet(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Changing an NVTabular Dataset to CPU mode")
        yield


def _has_known_user(events):
    return events["user"] >= FIRST_ID


def _vocabulary(column: str, counted: pa.Table, folder: Path) -> dict[str, str]:
    """Values in the order of their ids, as `Categorify` takes them: it counts from FIRST_ID."""
    path = folder / f"{column}_values.parquet"
    pq.write_table(pa.table({column: counted["value"]}), path)
    return {column: str(path)}


def _feature_texts(
    paths: Sequence[Path], key: str, columns: Sequence[str], gaps_count: bool
) -> tuple[pa.Table, list[pa.DataType]]:
    """Tables of features with the values as text, and their types.

    Of integers and nulls together pandas makes floats; so a missing value is an empty text, and
    any other has _PRESENT in front.
    """
    table = pa.concat_tables([pq.read_table(path, columns=[key, *columns]) for path in paths])
    if not gaps_count:
        table = table.drop_null()
    types = [table.schema.field(column).type for column in columns]
    for column in columns:
        text = pc.binary_join_element_wise(_PRESENT, table[column].cast(pa.string()), "")
        place = table.schema.get_field_index(column)
        table = table.set_column(place, column, pc.fill_null(text, _ABSENT))
    return table, types


def _values(texts: pa.Table, type_: pa.DataType) -> pa.Array:
    """The way back, of a table of one column."""
    text = texts.column(0).combine_chunks()
    present = pc.if_else(pc.equal(text, _ABSENT), None, pc.utf8_slice_codeunits(text, 1))
    return present.cast(type_)


def _ranks(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The order of values, upwards, null first, [n]; the place of each in it from 1, int32 [n]."""
    order = pc.array_sort_indices(values, null_placement="at_start").to_numpy()
    ranks = np.empty(len(values), np.int32)
    ranks[order] = np.arange(1, len(values) + 1)
    return order, ranks
