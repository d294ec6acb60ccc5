"""Tables of ids (`preproc.encoding.extension`) as files, which all threads map into memory."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from preproc.encoding.extension import draw, generator, state_of
from runtime.files.disk import sync


def table_file(folder: Path, feature: int) -> Path:
    """Returns the file of a feature's table: int32 [cardinality, hotness - 1] without a header."""
    return folder / f"table_{feature}.bin"


def draw_table(
    path: Path, cardinality: int, width: int, distribution: str, state: str | None, **sizes: int
) -> str:
    """Writes the table of a feature; returns the state of the generator after it.

    Args:
        cardinality, width, distribution, state: see `preproc.encoding.extension.Extension`.
        sizes: of the blocks, see `preproc.encoding.extension.draw`.
    """
    random = generator(state)
    with path.open("wb") as file:
        for rows in draw(random, cardinality, width, distribution, **sizes):
            file.write(rows.tobytes())
    sync(path)
    return state_of(random)


class Tables:
    """The tables of all features, mapped into memory.

    Args:
        folder: of the files.
        cardinalities: of the features.
        hotness: ids per sample of the features.
    """

    def __init__(self, folder: Path, cardinalities: Sequence[int], hotness: Sequence[int]):
        self.shapes = [(n, h - 1) for n, h in zip(cardinalities, hotness, strict=True)]
        self.folder = folder
        self._memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def extend(self, feature: int, ids: np.ndarray) -> np.ndarray:
        """Returns int32 [samples, hotness]: the ids, [samples], and those that extend them."""
        rows, width = self.shapes[feature]
        extended = np.empty([len(ids), 1 + width], np.int32)
        extended[:, 0] = ids
        if width:
            table = np.memmap(table_file(self.folder, feature), np.int32, "r", shape=(rows, width))
            # A table beyond the memory is read in the order of the file.
            order = np.argsort(ids) if table.nbytes > self._memory_bytes // 2 else slice(None)
            extended[order, 1:] = table[ids[order]]
        return extended
