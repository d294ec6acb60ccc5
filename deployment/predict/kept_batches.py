"""Columns of an input that are written next to scores."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

_VALUES_PER_COLUMN = 8  # texts and lists are larger than numbers


class KeptBatches:
    """Columns of batches between their reading and their writing; see `KeptRows`.

    Args:
        schema: of the batches.
        names: columns to keep.
    """

    def __init__(self, schema: pa.Schema, names: Sequence[str]):
        self.fields: list[tuple[str, Any]] = [(name, schema.field(name).type) for name in names]
        self.values_per_row = _VALUES_PER_COLUMN * len(names)
        self._waiting = pa.Table.from_batches([], pa.schema(self.fields))

    def add(self, batch: pa.RecordBatch) -> None:
        """Appends the next rows."""
        rows = pa.Table.from_batches([batch.select([name for name, _ in self.fields])])
        self._waiting = pa.concat_tables([self._waiting, rows])

    def read(self, start: int, stop: int) -> list[pa.Array]:
        """Returns the rows start to stop - 1, which follow those of the previous call."""
        rows, self._waiting = self._waiting[: stop - start], self._waiting[stop - start :]
        return [pa.concat_arrays(column.chunks) for column in rows.columns]
