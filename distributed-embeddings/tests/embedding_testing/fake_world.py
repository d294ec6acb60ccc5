"""Ranks as threads of one process, with the collectives of `World`."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf
from distributed_embeddings.collectives import World

TIMEOUT_S = 120.0  # for a rank that traces its functions on a busy machine


class _Exchange:
    """Rendezvous of the ranks: each passes a value and receives the values of all ranks."""

    def __init__(self, size: int):
        self._barrier = threading.Barrier(size, timeout=TIMEOUT_S)
        self._brought = [None] * size
        self.calls = []

    def swap(self, rank: int, name: str, value) -> list:
        self._brought[rank] = (name, value)
        if self._barrier.wait() == 0:
            self.calls.append(name)
        brought = list(self._brought)
        self._barrier.wait()
        assert {n for n, _ in brought} == {name}, f"the ranks are at different places: {brought}"
        return [theirs for _, theirs in brought]


class FakeWorld:
    """One rank of it; `calls` lists the names of the collectives so far."""

    def __init__(self, rank: int, size: int, exchange: _Exchange):
        self.rank, self.size, self._exchange = rank, size, exchange

    @property
    def is_chief(self) -> bool:
        return self.rank == 0

    @property
    def calls(self) -> list[str]:
        return self._exchange.calls

    def agree(self, error):
        World.agree(self, error)

    def all_to_all(self, tensor, splits, name):
        tensor, splits = np.asarray(tensor), np.asarray(splits)
        assert splits.dtype == np.int32 and splits.shape == (self.size,) and (splits >= 0).all()
        assert splits.sum() == len(tensor)
        parts = np.split(tensor, np.cumsum(splits)[:-1])
        received = [theirs[self.rank] for theirs in self._exchange.swap(self.rank, name, parts)]
        assert len({(part.dtype, part.shape[1:]) for part in received}) == 1
        return np.concatenate(received), np.array([len(part) for part in received], np.int32)

    def all_gather(self, tensor, name):
        gathered = self._exchange.swap(self.rank, name, np.asarray(tensor))
        assert len({(part.dtype, part.shape[1:]) for part in gathered}) == 1
        return np.concatenate(gathered)

    def all_reduce(self, tensors, op, name):
        every = self._exchange.swap(self.rank, name, [np.asarray(t) for t in tensors])
        for parts in zip(*every, strict=True):
            assert len({(part.dtype, part.shape) for part in parts}) == 1
        reduce = {"sum": sum, "min": np.minimum.reduce, "max": np.maximum.reduce}[op]
        return [reduce(list(parts)) for parts in zip(*every, strict=True)]

    def gather_objects(self, value, name="objects"):
        sent = json.dumps(value, sort_keys=True, default=str)
        return [json.loads(text) for text in self._exchange.swap(self.rank, name, sent)]


class TensorWorld:
    """A rank of a fake world whose collectives return tensors."""

    def __init__(self, world):
        self.rank, self.size, self._world = world.rank, world.size, world

    def all_to_all(self, tensor, splits, name):
        return tuple(map(tf.constant, self._world.all_to_all(tensor, splits, name)))

    def all_reduce(self, tensors, op, name):
        return [tf.constant(t) for t in self._world.all_reduce(tensors, op, name)]

    def all_gather(self, tensor, name):
        return tf.constant(self._world.all_gather(tensor, name))


def run_threads(size: int, function, *args) -> list:
    """`function(world, *args)` on each rank of a world of threads; what each returns or raises."""
    exchange = _Exchange(size)

    def run(rank):
        try:
            return function(FakeWorld(rank, size, exchange), *args)
        except ValueError as error:
            return error

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(run, range(size)))
