"""Files of features that an encoder makes."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from preproc.criteo.output.binary_files import ColumnFiles
from preproc.encoding.encoder import Encoder


@dataclass(frozen=True)
class EncodedFiles:
    """Files of features that an encoder makes.

    Attributes:
        encoder: of these features.
        files: of one layout.
        features: those of each file; a row of it has their values in this order.
    """

    encoder: Encoder
    files: tuple[ColumnFiles, ...]
    features: tuple[tuple[str, ...], ...]

    @property
    def columns(self) -> list[str]:
        """Source columns."""
        return list(dict.fromkeys(encoding.column for encoding in self.encoder.features))

    def values(self, rows: pa.Table | pa.RecordBatch) -> list[np.ndarray]:
        """Returns what each file stores of rows, [n, width]."""
        encoded = self.encoder.encode(rows)
        return [
            np.concatenate([encoded[name] for name in names], axis=1) for names in self.features
        ]

    def write_at(self, position: int, rows: pa.RecordBatch) -> dict[str, int]:
        """Writes rows from a position of the stored log on; returns how many values of the first
        file are not 0, by split."""
        positions = position + np.arange(rows.num_rows)
        values = self.values(rows)
        for file, array in zip(self.files, values, strict=True):
            file.write_at(positions, array)
        return {
            split.name: int(
                np.count_nonzero(values[0][(positions >= split.start) & (positions < split.stop)])
            )
            for split in self.files[0].layout.splits
        }
