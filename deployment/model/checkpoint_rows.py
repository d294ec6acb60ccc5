"""Rows of a table, read from a checkpoint's mapped files without loading it."""

import numpy as np

from deployment.model.trained_model import TrainedModel, table_name
from runtime.checkpoint import DamagedCheckpoint, matrix_of
from runtime.checkpoint.files import ArrayEntry


class CheckpointRows:
    """Random access to the rows of a table in a checkpoint.

    Checksums are of whole blocks and are not verified here; writing the table
    (`deployment.artifacts.table_files`) verifies all of them.
    """

    def __init__(self, trained: TrainedModel, table: str):
        entry = trained.index.weights[table_name(table)]
        self.rows, self.dim = entry.shape
        self._dtype = entry.dtype
        if isinstance(entry, ArrayEntry):
            self._pieces = [(matrix_of(entry.shape), entry.load())]
            return
        self._pieces = []
        for piece in entry.pieces:
            file, box = trained.path / piece.file, piece.box
            try:
                values = np.memmap(
                    file, entry.dtype, "r", offset=piece.start, shape=(box.rows, box.columns)
                )
            except (OSError, ValueError) as error:
                raise DamagedCheckpoint(
                    f"checkpoint file {file} is missing or damaged: {error}"
                ) from None
            self._pieces.append((box, values))

    def take(self, ids: np.ndarray) -> np.ndarray:
        """Returns the rows [*shape of ids, columns] of ids in [0, rows), of any shape."""
        flat = ids.reshape(-1)
        rows = np.empty((flat.size, self.dim), self._dtype)
        for box, values in self._pieces:
            here = np.flatnonzero((flat >= box.row) & (flat < box.row_end))
            rows[here, box.column : box.column_end] = values[flat[here] - box.row]
        return rows.reshape(*ids.shape, self.dim)
