"""Files of features that an encoder makes, written by row number."""

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

    def values(self, rows: pa.Table) -> list[np.ndarray]:
        """Returns what each file stores of rows, [n, width]."""
        encoded = self.encoder.encode(rows)
        return [
            np.concatenate([encoded[name] for name in names], axis=1) for names in self.features
        ]

    def write(self, numbers: np.ndarray, rows: pa.Table) -> dict[str, int]:
        """Writes rows, whose numbers in the log are [n]; returns how many values of the first file
        are not 0, by split."""
        layout = self.files[0].layout
        positions = layout.order.positions(numbers)
        values = self.values(rows)
        for file, array in zip(self.files, values, strict=True):
            file.write_at(positions, array)
        return {
            split.name: int(
                np.count_nonzero(values[0][(positions >= split.start) & (positions < split.stop)])
            )
            for split in layout.splits
        }
