"""Ids of users and items: in the order of their values, which are those of kept events."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from ibis.expr import types as ir

from dataloading.spec.data_set_files import ENCODER_FOLDER
from preproc.arguments import no_user_left
from preproc.encoding.arrow_columns import MISSING_VALUES
from preproc.encoding.encoder import Encoder
from preproc.encoding.profile import ColumnProfile
from preproc.encoding.vocabulary import Vocabulary
from preproc.engines.engine import ROW, Engine
from preproc.events.ties import TIE_ORDER
from preproc.sources.column_chunk import SourceChunk

_ROW_GROUP_ROWS = 1 << 17


@dataclass(frozen=True)
class NumberedEvents:
    """Kept events and their numbers.

    Attributes:
        events: ids of user and item, int32, and time; ordered by user, time, tie order.
        vocabularies: "user", "item" -> Parquet file of value and count of kept events, by id.
    """

    engine: Engine
    events: ir.Table
    vocabularies: dict[str, Path]
    num_users_before: int
    num_events_before: int

    def num_values(self, kind: str) -> int:
        return pq.read_metadata(self.vocabularies[kind]).num_rows

    def num_of_users(self) -> np.ndarray:
        """Returns the number of kept events of each user, int64 [num_users]."""
        return pq.read_table(self.vocabularies["user"], columns=["count"])["count"].to_numpy()

    def are_numbers(self, kind: str) -> bool:
        """Returns whether all users or items are integers."""
        return pa.types.is_integer(pq.read_schema(self.vocabularies[kind]).field("value").type)

    def pairs(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields ids of users and items, int32 [n] each, some at a time, in their order."""
        for batch in self.engine.batches(self.events):
            yield batch.column("user").to_numpy(), batch.column("item").to_numpy()


def number(
    engine: Engine, events: ir.Table, min_events: int, first_id: int, least: str, folder: Path
) -> NumberedEvents:
    """Leaves out users with fewer than `min_events` events, and numbers the others' events.

    Args:
        events: user, item, time, tie_order; see `ties.order_ties`.
        first_id: the first id; ids follow the values, integers or the bytes of text.
        least: flag, `min_events` and unit for the error where no user is left.
        folder: for the vocabularies.

    Raises:
        ValueError: no user is left.
    """
    by_user = engine.store_table(
        events.group_by(value="user").aggregate(count=events.count()), "by_user"
    )
    (before,) = engine.fetch(
        by_user.aggregate(
            users=by_user.count(), events=by_user["count"].sum(), most=by_user["count"].max()
        )
    ).to_pylist()
    if (before["most"] or 0) < min_events:
        raise no_user_left(least, before["most"] or 0)
    paths = vocabulary_files(folder)
    _write_counted(engine, by_user.filter(by_user["count"] >= min_events), paths["user"])
    users = read_ids(engine, paths["user"], first_id)
    kept = events.join(users, events.user == users.value).select(
        "item", "time", TIE_ORDER, user="id"
    )
    _write_counted(engine, kept.group_by(value="item").aggregate(count=kept.count()), paths["item"])
    items = read_ids(engine, paths["item"], first_id)
    numbered = kept.join(items, kept.item == items.value).select(
        "user", "time", TIE_ORDER, item="id"
    )
    ordered = numbered.order_by("user", "time", TIE_ORDER)
    return NumberedEvents(engine, ordered, paths, before["users"], int(before["events"]))


def vocabulary_files(folder: Path) -> dict[str, Path]:
    """Returns the files of `NumberedEvents.vocabularies`."""
    return {kind: folder / f"{kind}_values.parquet" for kind in ("user", "item")}


def save_encoder(
    folder: Path,
    vocabularies: Mapping[str, tuple[str, Path]],
    first_id: int,
    attributes: Mapping[str, Mapping[str, np.ndarray]] | None = None,
    missing: tuple[str, ...] = MISSING_VALUES,
) -> str:
    """Writes the encoder of a data set; returns its digest.

    Args:
        folder: of the data set.
        vocabularies: feature -> its column in the log, and the file of its values and counts.
        attributes: feature -> features that follow from it, and their ids by position of its value.
        missing: spellings of missing values that the rows were read with.
    """
    features, profile = [], {}
    for name, (column, path) in vocabularies.items():
        table = pq.read_table(path).combine_chunks()
        values, counts = (
            pa.concat_arrays(table[key].cast(kind).chunks)
            for key, kind in (("value", pa.string()), ("count", pa.int64()))
        )
        is_integer = pa.types.is_integer(table["value"].type)
        settings = {"name": name, "column": column, "first_id": first_id, "is_integer": is_integer}
        ids = {
            n: pa.array(each, pa.int64()) for n, each in (attributes or {}).get(name, {}).items()
        }
        features.append(Vocabulary(values=values, counts=counts, attributes=ids, **settings))
        profile[column] = ColumnProfile(pc.sum(counts).as_py(), missing=0)
    encoder = Encoder(tuple(features), missing, profile)
    encoder.save(folder / ENCODER_FOLDER)
    return encoder.digest


def write_batches(batches: Iterator[pa.RecordBatch], target: Path) -> None:
    """Writes one batch or more to a Parquet file."""
    first = next(batches)
    with pq.ParquetWriter(target, first.schema) as writer:
        for batch in itertools.chain([first], batches):
            writer.write_batch(batch, _ROW_GROUP_ROWS)


def _write_counted(engine: Engine, counted: ir.Table, target: Path) -> None:
    """Writes value and count to a Parquet file, in the order of the values."""
    ordered = counted.order_by("value").select("value", "count")
    write_batches(engine.batches(ordered), target)


def read_ids(engine: Engine, path: Path, first_id: int) -> ir.Table:
    """Returns value and id, int32, of a vocabulary."""
    table = engine.read([SourceChunk("parquet", (str(path),))], "fail")
    return table.select("value", id=(table[ROW] + first_id).cast("int32"))
