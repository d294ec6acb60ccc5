"""Rows with the same key in a stream of Arrow batches."""

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa


def runs(
    batches: Iterator[pa.RecordBatch], key: str
) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Yields each run of equal keys and the parts of batches in it; read them before the next."""

    def slices() -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in batches:
            keys = batch.column(key).to_numpy()
            starts = np.flatnonzero(np.diff(keys, prepend=-2))
            for start, stop in itertools.pairwise([*starts.tolist(), len(keys)]):
                yield int(keys[start]), batch.slice(start, stop - start)

    for number, run in itertools.groupby(slices(), lambda part: part[0]):
        yield number, (batch for _, batch in run)
