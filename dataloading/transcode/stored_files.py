"""Files of a run: staged rows, and split binaries with their layout."""

from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataloading.spec.feature_spec import Chunk, FeatureSpec, smallest_id_dtype
from dataloading.synthetic.rows import stored_spec
from dataloading.transcode.raw_spec import RawSpec
from runtime.files.disk import write_errors_name

_GROUP_ROWS = 1 << 16


class StagedRows:
    """Parquet file of rows in groups of 65,536 or more: the metadata of each stay in memory."""

    def __init__(self, path: Path):
        self._path = path
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._num_waiting = 0

    def append(self, rows: pa.RecordBatch) -> None:
        """Appends rows."""
        self._waiting.append(rows)
        self._num_waiting += rows.num_rows
        if self._num_waiting >= _GROUP_ROWS:
            self._write()

    def _write(self) -> None:
        rows = pa.Table.from_batches(self._waiting)
        # Read once, by the same run: compression costs more time than it saves.
        self._writer = self._writer or pq.ParquetWriter(
            self._path,
            rows.schema,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
        )
        self._writer.write_table(rows)
        self._waiting, self._num_waiting = [], 0

    def close(self) -> None:
        """Writes the last rows."""
        if self._waiting:
            self._write()
        if self._writer:
            self._writer.close()


def put(stream: BinaryIO, values: np.ndarray) -> None:
    """Appends the bytes of an array to a file; errors name the file."""
    with write_errors_name(Path(stream.name)):
        values.tofile(stream)
        stream.flush()


def stored_layout(spec: RawSpec, cardinalities: dict[str, int], folder: Path) -> FeatureSpec:
    """Returns the feature spec of the raw features as split binaries in a folder.

    `cardinalities` are in addition to those of the raw spec. An absent dtype is the smallest that
    holds the ids.
    """
    features = {}
    for name, keys in spec.features.items():
        features[name] = keys = dict(keys)
        if name in cardinalities:
            keys["cardinality"] = cardinalities[name]
        if name in spec.ids:
            keys.setdefault("dtype", smallest_id_dtype(keys["cardinality"]).name)
    if spec.is_interactions:
        sources = {
            split: [
                Chunk("split_binary", names, (f"{split}/{channel}.bin",))
                for channel, names in spec.channels.items()
                if names and spec.has(split, names[0])
            ]
            for split in spec.sources
        }
        channels = {channel: names for channel, names in spec.channels.items() if names}
    else:
        usual = stored_spec(features, spec.channels, spec.sources, spec.origin).source_spec
        sources = {
            split: [chunk for chunk in chunks if spec.has(split, chunk.features[0])]
            for split, chunks in usual.items()
        }
        channels = spec.channels
    return FeatureSpec(features, sources, channels, {}, folder, spec.origin)
