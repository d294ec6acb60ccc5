"""Rows of a table straight from a checkpoint's files, without loading it."""

import numpy as np

from deployment.model.trained_model import TrainedModel, table_name
from runtime.checkpoint import DamagedCheckpoint


class CheckpointRows:
    """A table of which single rows are read, wherever the checkpoint's pieces have them.

    The files are mapped into memory: what is read stays in the page cache, not in this process.
    Checksums are of whole blocks and are not looked at. Who writes the table's files as well
    (`deployment.artifacts.table_files`) checks all of it then, and fails if a block was changed.

    Args:
        trained: whose checkpoint it is.
        table: name of the table.

    Raises:
        DamagedCheckpoint: a file is missing or has another size than the index says.
    """

    def __init__(self, trained: TrainedModel, table: str):
        entry = trained.index.weights[table_name(table)]
        self.rows, self.dim = entry.shape
        self._dtype = entry.dtype
        self._pieces = []
        for piece in entry.pieces:
            file, box = trained.path / piece.file, piece.box
            try:
                values = np.memmap(
                    file, entry.dtype, "r", offset=piece.start, shape=(box.rows, box.columns)
                )
            except (OSError, ValueError) as error:
                text = getattr(error, "strerror", None) or error
                raise DamagedCheckpoint(
                    f"checkpoint file {file} is missing or damaged: {text}"
                ) from None
            self._pieces.append((box, values))

    def take(self, ids: np.ndarray) -> np.ndarray:
        """Rows [*shape of ids, columns] of ids, integers in [0, rows) of any shape."""
        flat = ids.reshape(-1)
        found = np.empty((flat.size, self.dim), self._dtype)
        for box, values in self._pieces:
            here = np.flatnonzero((flat >= box.row) & (flat < box.row_end))
            found[here, box.column : box.column_end] = values[flat[here] - box.row]
        return found.reshape(*ids.shape, self.dim)
