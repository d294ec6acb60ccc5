"""Python part of Spark's tasks: passes blocks of rows to the writers of the prepared files.

Runs on the workers; imports nothing of Spark. A repeated task writes the same bytes again.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow

from dataloading.table_input.run_token import RunToken
from preproc.criteo.output.binary_files import ColumnFiles, NumericalWriter
from preproc.criteo.raw_lines import NUM_NUMERICAL


@dataclass(frozen=True)
class AddPositions:
    """(row, ...) -> (row, ..., position)."""

    files: ColumnFiles

    def __call__(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            positions = self.files.order.positions(batch.column("row").to_numpy())
            yield pyarrow.RecordBatch.from_arrays(
                [*batch.columns, pyarrow.array(positions)], [*batch.schema.names, "position"]
            )


@dataclass(frozen=True)
class WriteNumericals:
    """(row, label, num_0..) -> files; yields (split, clicks). sync: for tasks on other machines."""

    token: RunToken
    writer: NumericalWriter
    sync: bool

    def __call__(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        clicks = Counter()
        for batch in batches:
            self.token.check()
            columns = [batch.column(f"num_{i}").to_numpy() for i in range(NUM_NUMERICAL)]
            rows, label = batch.column("row").to_numpy(), batch.column("label").to_numpy()
            clicks.update(self.writer(rows, label, np.stack(columns, axis=1)))
        if self.sync and clicks:
            for files in self.writer.files:
                files.sync()
        yield pyarrow.RecordBatch.from_arrays(
            [pyarrow.array(list(clicks), "string"), pyarrow.array(list(clicks.values()), "int64")],
            ["split", "clicks"],
        )


@dataclass(frozen=True)
class WriteIds:
    """(row, id) -> files; gives back (written). sync: see `WriteNumericals`."""

    token: RunToken
    files: ColumnFiles
    sync: bool

    def __call__(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        written = 0
        for batch in batches:
            self.token.check()
            self.files.write(batch.column("row").to_numpy(), batch.column("id").to_numpy())
            written += batch.num_rows
        if self.sync and written:
            self.files.sync()
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array([written], "int64")], ["written"])
