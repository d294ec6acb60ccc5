"""Batches of a data set repeatedly, without the time that a new pass over it takes to start."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

# Batches are kept in memory up to this size.
MOST_BYTES = 1 << 30


def repeated(
    make_dataset: Callable[[], Any], num_batches: int, most_bytes: int = MOST_BYTES
) -> Iterator:
    """Yields the first `num_batches` batches of a data set in turn, without end.

    A new iterator of tf.data takes some 100 ms to yield its first batch. Batches are therefore kept
    while they are read the first time, and yielded from memory afterwards. More than `most_bytes`
    are not kept: they are read again in every pass.

    Args:
        make_dataset: returns a `tf.data.Dataset`.
        num_batches: at most the number of its batches.
    """
    kept, size_bytes = [], 0
    for batch in itertools.islice(make_dataset(), num_batches):
        size_bytes += _size_bytes(batch)
        if size_bytes <= most_bytes:
            kept.append(batch)
        else:
            kept.clear()
        yield batch
    if kept:
        yield from itertools.cycle(kept)
    while True:
        yield from itertools.islice(make_dataset(), num_batches)


def _size_bytes(batch) -> int:
    import tensorflow as tf

    return sum(tensor.numpy().nbytes for tensor in tf.nest.flatten(batch) if tensor is not None)
