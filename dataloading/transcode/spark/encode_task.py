"""Task of Spark that writes the rows of parts into the files of the data set."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataloading.engines.tasks import runs
from dataloading.spec.feature_spec import Chunk, FeatureSpec
from dataloading.transcode.encode.row_values import RowValues, staged_values
from dataloading.transcode.encode.vocabulary import UNKNOWN
from dataloading.transcode.spark.run_folder import Failure, RunFolder

_BLOCK_ROWS = 1 << 16  # encoded at a time


class PartRows(NamedTuple):
    """Rows of a part that a split gets, and the number of rows of the split before them."""

    split: str
    num_rows: int
    first_row: int


@dataclass(frozen=True)
class EncodePart:
    """Writes the rows of parts into the files of the data set, in place."""

    folder: RunFolder
    data: Path
    layout: FeatureSpec  # of the files, which have their final sizes
    values: RowValues
    parts: Mapping[int, tuple[PartRows, ...]]  # part -> its rows

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """(part, split, feature, value, id), parts together and in order -> part.

        Rows without a value stand for parts without a known value.
        """
        for part, rows in runs(batches, "part"):
            yield self._encoded(part, list(rows))

    def _encoded(self, part: int, rows: list[pa.RecordBatch]) -> pa.RecordBatch:
        def work() -> list:
            return self.folder.once(f"encoded {part}", lambda: self._write(part, rows))

        result = self.folder.unless_failed("encode", part, work)
        message = result.message if isinstance(result, Failure) else None
        return pa.record_batch(
            {"part": pa.array([part], pa.int32()), "message": pa.array([message], pa.string())}
        )

    def _write(self, part: int, rows: list[pa.RecordBatch]) -> list[tuple[str, str, int]]:
        """Returns split, feature and number of values with id 0."""
        known = pa.Table.from_batches(rows)
        keys = [known.column(name).to_numpy() for name in ("split", "feature")]
        splits, unknown = list(self.layout.source_spec), Counter()
        for split, _, first_row in self.parts[part]:
            own = keys[0] == splits.index(split)
            ids_of = {}
            for number, feature in enumerate(self.values.encoding.categorify):
                mask = pa.array(own & (keys[1] == number))
                ids_of[feature] = known.select(["value", "id"]).filter(mask).combine_chunks()
            with pq.ParquetFile(self.folder.staged(split, part)) as file:
                for chunk in self.layout.source_spec[split]:
                    unknown.update(self._write_file(file, split, chunk, first_row, ids_of))
        return [(*key, count) for key, count in unknown.items()]

    def _write_file(
        self,
        file: pq.ParquetFile,
        split: str,
        chunk: Chunk,
        first_row: int,
        ids_of: Mapping[str, pa.Table],
    ) -> Counter:
        features, unknown = chunk.features, Counter()
        names = [name for name in features if name in self.values.columns]
        columns = [self.values.columns[name] for name in names]
        dtype = self.layout.dtype(features[0]).newbyteorder("<")
        flags = os.O_WRONLY | (os.O_DSYNC if self.folder.sync else 0)
        # Synchronous on a cluster: an NFS client writes these bytes, and no others of their pages.
        descriptor = os.open(self.data / chunk.files[0], flags)
        with open(descriptor, "wb", buffering=0) as stream:  # does not truncate
            stream.seek(first_row * self.layout.sample_bytes(chunk))
            for batch in file.iter_batches(_BLOCK_ROWS, columns=columns, use_threads=False):
                if names[0] in ids_of:
                    texts = staged_values(batch, columns[0])
                    values = _ids(texts, ids_of[names[0]])
                    unknown[split, names[0]] += int(np.count_nonzero(values == UNKNOWN))
                else:
                    values = self.values.stored(batch, names, split, first_row)
                data = memoryview(np.ascontiguousarray(values.astype(dtype))).cast("B")
                while data:
                    data = data[stream.write(data) :]
                first_row += batch.num_rows
        return unknown


def _ids(texts: pa.Array, known: pa.Table) -> np.ndarray:
    """Returns the ids of texts, int64; `UNKNOWN` of those that are not known."""
    ids = np.append(known.column("id").to_numpy(), UNKNOWN)
    if len(ids) == 1:
        return np.full(len(texts), UNKNOWN)
    values = pa.concat_arrays(known.column("value").chunks)
    places = pc.index_in(texts, values, skip_nulls=True)
    return ids[pc.fill_null(places, len(ids) - 1).to_numpy(zero_copy_only=False)]
