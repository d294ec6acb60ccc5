"""Samples in any number at a time -> prebatches, the content of a record each."""

from collections.abc import Iterator, Sequence

from dataloading.pipeline.ragged import Ragged, Samples, concatenate_samples, cut_samples


class Prebatches:
    """Cuts samples into prebatches of `size`, of which one waits in memory."""

    def __init__(self, size: int):
        self._size = size
        self._waiting: list[list[Samples]] = []
        self._num_waiting = 0

    def add(self, arrays: Sequence[Samples]) -> Iterator[list[Samples]]:
        """Yields the prebatches that these samples, one array per column, complete."""
        start, first = 0, arrays[0]
        count = len(first.row_splits) - 1 if isinstance(first, Ragged) else len(first)
        while start < count:
            stop = min(count, start + self._size - self._num_waiting)
            self._waiting.append([cut_samples(array, start, stop) for array in arrays])
            self._num_waiting += stop - start
            start = stop
            if self._num_waiting == self._size:
                yield from self.rest()

    def rest(self) -> list[list[Samples]]:
        """Returns the last prebatch, which may be shorter; empty without one."""
        if not self._waiting:
            return []
        columns = zip(*self._waiting, strict=True)
        self._waiting, self._num_waiting = [], 0
        return [[concatenate_samples(pieces) for pieces in columns]]
