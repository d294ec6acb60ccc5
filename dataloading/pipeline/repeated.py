"""Batches of a data set repeatedly, without the time that a new pass over it takes to start."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any


def repeated(
    make_dataset: Callable[[], Any], num_batches: int, most_bytes: int = 1 << 30
) -> Iterator:
    """Yields the first `num_batches` batches of a data set in turn, without end.

    A new iterator of tf.data takes some 100 ms to yield its first batch. Batches are therefore kept
    in memory up to `most_bytes`; more than that are read again in every pass.

    Args:
        make_dataset: returns a `tf.data.Dataset`.
        num_batches: at most the number of its batches.
    """
    import tensorflow as tf

    kept, size_bytes = [], 0
    for batch in itertools.islice(make_dataset(), num_batches):
        tensors = (tensor for tensor in tf.nest.flatten(batch) if tensor is not None)
        size_bytes += sum(tensor.numpy().nbytes for tensor in tensors)
        if size_bytes <= most_bytes:
            kept.append(batch)
        else:
            kept.clear()
        yield batch
    if kept:
        yield from itertools.cycle(kept)
    while True:
        yield from itertools.islice(make_dataset(), num_batches)
