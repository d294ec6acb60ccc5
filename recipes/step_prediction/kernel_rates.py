"""Rates of this machine: the project's kernels on the sizes of a ranking model, by themselves."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from distributed_embeddings.collectives import World
from distributed_embeddings.exchange.bag_gradients import BagGradient
from distributed_embeddings.ops import embedding_bag, kernels
from distributed_embeddings.ops.embedding_bag import Bags, Columns, Use
from distributed_embeddings.planner import Workload, plan
from distributed_embeddings.planner.traffic import expected_batch
from distributed_embeddings.step_time import lookup_bytes, row_update_bytes

from nn.layers.dense import affine
from nn.optim import optimizers

if TYPE_CHECKING:
    from nn.ctr.config import CTRConfig, DenseLayer

_LATENCY_CALLS = 10
_OVERHEAD_CALLS = 5
_LEARNING_RATE = 1e-6
# A kernel that is faster than this is called repeatedly.
_MIN_MEASURED_S = 0.02
_MAX_CALLS = 20
MIN_MESSAGE_BYTES = 2**24  # of an exchange, so that its latency hardly counts
MAX_MESSAGE_BYTES = 2**28

Call = Callable[[], Any]


@dataclass(frozen=True)
class KernelSizes:
    """Sizes that the kernels are measured with.

    Attributes:
        workload: Tables of one rank, and the samples that it looks up.
        samples: Samples of a rank in a step.
        compute_dtype: Dtype of activations.
        exchange_bytes: Bytes that a rank sends in an all-to-all.
    """

    shape: CTRConfig
    workload: Workload
    samples: int
    compute_dtype: str
    optimizer: str
    sparse_optimizer: str
    exchange_bytes: float = 0.0


class KernelRates:
    """Kernels with data of their own, to be measured any number of times.

    With several ranks each call of `measure` is collective: the ranks compute at the same time, as
    in a training step.
    """

    def __init__(self, sizes: KernelSizes, world: World):
        self._sizes, self._world = sizes, world
        self._dtype = tf.as_dtype(sizes.compute_dtype)
        layers = Counter(sizes.shape.mlp_layers + sizes.shape.cross_layers)
        self._products = [
            (count, product)
            for layer, count in layers.items()
            for product in self._products_of(layer)
        ]
        self._flops = sum(
            (4 if layer.is_first else 6) * count * layer.inputs * layer.outputs * sizes.samples
            for layer, count in layers.items()
        )
        self._calls = self._make_calls()
        self._no_work = _compiled(list)
        if world.size > 1:
            self._exchange_calls = self._make_exchanges(layers)
        self.measure(1)  # traces

    def _random(self, *shape: int) -> tf.Tensor:
        return tf.cast(tf.random.normal(shape), self._dtype)

    def _products_of(self, layer: DenseLayer) -> list[Call]:
        """Returns the matrix products of a layer, as `nn.layers.dense` computes them."""
        batch = self._sizes.samples
        x, dy = self._random(batch, layer.inputs), self._random(batch, layer.outputs)
        kernel, bias = self._random(layer.inputs, layer.outputs), self._random(layer.outputs)
        calls = [
            (lambda: affine(x, kernel, bias)) if layer.has_bias else lambda: x @ kernel,
            lambda: tf.matmul(x, dy, transpose_a=True),
        ]
        if not layer.is_first:
            calls.append(lambda: tf.matmul(dy, kernel, transpose_b=True))
        return [_compiled(call) for call in calls]

    def _make_calls(self) -> dict[str, tuple[float, Call]]:
        """Returns the bytes and the call of each rate but that of matrix products."""
        sizes = self._sizes
        x0, y, x = (self._random(sizes.samples, max(1, sizes.shape.width)) for _ in range(3))
        activation_bytes = 6 * tf.size(x).numpy() * self._dtype.size
        weight = tf.Variable(tf.random.normal([sizes.shape.num_dense_weights]))
        gradient = tf.random.normal(weight.shape)
        dense = optimizers.create(sizes.optimizer, [weight], _LEARNING_RATE)
        state = sum(4 * math.prod(slot[0].shape) for slot in dense.state.values())
        dense_bytes = 12 * sizes.shape.num_dense_weights + 2 * state
        calls = {
            "activation_bytes_per_s": (activation_bytes, _compiled(lambda: x0 * y + x)),
            "dense_update_bytes_per_s": (
                dense_bytes,
                _compiled(lambda: dense.apply([gradient], 0)),
            ),
        }
        if sizes.workload.features:
            calls |= self._make_table_calls()
        return calls

    def _make_table_calls(self) -> dict[str, tuple[float, Call]]:
        """Looks up and updates tables of each width in one variable, with uniform ids."""
        workload, batch_size = self._sizes.workload, self._sizes.workload.global_batch_size
        random = np.random.default_rng(1)
        lookups, updates = [], []
        for dim in sorted({table.dim for table in workload.tables}):
            tables = [t for t, table in enumerate(workload.tables) if table.dim == dim]
            rows = [workload.tables[t].rows for t in tables]
            hotness = [max(1, round(workload.ids[t])) for t in tables]
            ids = random.integers(0, np.repeat(rows, hotness), (batch_size, sum(hotness)))
            offsets = tuple(int(offset) for offset in np.cumsum([0, *rows[:-1]]))
            columns = Columns(tuple(hotness), offsets, tuple(rows), (False,) * len(rows))
            bags = Bags(tf.constant(ids, tf.int32), columns)
            table = tf.Variable(tf.zeros([sum(rows), dim]))
            vectors = self._random(batch_size, len(tables) * dim)
            optimizer = optimizers.create(self._sizes.sparse_optimizer, [table], _LEARNING_RATE)
            is_compiled = kernels.support(table)
            lookups.append((table, bags, is_compiled))
            updates.append((optimizer, _gradient(table, bags, vectors, is_compiled)))

        def look_up() -> list[tf.Tensor]:
            return [
                (embedding_bag.look_up if compiled else embedding_bag.plain_look_up)(
                    table, bags, self._dtype
                )
                for table, bags, compiled in lookups
            ]

        def update() -> None:
            for optimizer, gradient in updates:
                optimizer.apply([gradient()], 0)

        tables_plan = plan(workload)
        batch, shards = expected_batch(tables_plan), tables_plan.local_shards(0)
        looked_up = sum(lookup_bytes(tables_plan, batch, s) for s in shards)
        updated = sum(row_update_bytes(tables_plan, batch, s) for s in shards)
        return {
            "lookup_bytes_per_s": (looked_up, _compiled(look_up)),
            "row_update_bytes_per_s": (updated, _compiled(update)),
        }

    def _make_exchanges(self, layers: Mapping[DenseLayer, int]) -> dict[str, tuple[float, Call]]:
        world, size = self._world, self._world.size
        limits = MIN_MESSAGE_BYTES, MAX_MESSAGE_BYTES
        sent = min(max(self._sizes.exchange_bytes, limits[0]), limits[1])
        each = int(sent / (size - 1) / 512)  # rows of 128 float32, for each rank
        rows = tf.ones([each * size, 128])
        splits = tf.fill([size], each)
        weights = [tf.ones([layer.num_weights]) for layer in layers for _ in range(layers[layer])]
        summed = 4 * sum(layer.num_weights * count for layer, count in layers.items())

        def all_reduce() -> list[tf.Tensor]:
            return [
                world.all_reduce([weight], "sum", f"rates.sum.{i}")[0]
                for i, weight in enumerate(weights)
            ]

        return {
            "exchange_bytes_per_s": (
                each * (size - 1) * 512.0,
                _compiled(lambda: world.all_to_all(rows, splits, "rates.exchange")[0]),
            ),
            "sum_bytes_per_s": (2 * (size - 1) / size * summed, _compiled(all_reduce)),
            "latency": (
                0.0,
                _compiled(lambda: world.all_to_all(splits, tf.ones_like(splits), "rates.none")[0]),
            ),
        }

    def measure(self, repeats: int = 3) -> dict[str, float]:
        """Returns the rates (attributes of `step_time.Rates`), medians of `repeats` calls each."""
        products_s = sum(count * self._kernel_s(call, repeats) for count, call in self._products)
        rates = {"product_flops_per_s": self._flops / products_s}
        for name, (size_bytes, call) in self._calls.items():
            rates[name] = size_bytes / self._kernel_s(call, repeats)
        if self._world.size > 1:
            exchanges = dict(self._exchange_calls)
            _, nothing = exchanges.pop("latency")
            latency_s = self._exchange_s(nothing, _LATENCY_CALLS)
            rates["latency_s"] = latency_s / math.ceil(math.log2(self._world.size))
            for name, (size_bytes, call) in exchanges.items():
                elapsed_s = self._exchange_s(call, repeats)
                rates[name] = size_bytes / max(elapsed_s - latency_s, elapsed_s / 2)
        # A step waits for the slowest rank.
        names = list(rates)
        speeds = [1 / rates[name] if name == "latency_s" else rates[name] for name in names]
        (slowest,) = self._world.all_reduce([tf.constant(speeds, tf.float64)], "min", "rates")
        measured = dict(zip(names, map(float, slowest), strict=True))
        if "latency_s" in measured:
            measured["latency_s"] = 1 / measured["latency_s"]
        return measured

    def _kernel_s(self, call: Call, repeats: int) -> float:
        """Returns the median of the seconds of a kernel, without those of starting any call."""
        overhead_s = statistics.median(_elapsed_s(self._no_work) for _ in range(_OVERHEAD_CALLS))
        self._world.barrier("rates.barrier")  # all ranks begin together
        elapsed: list[float] = []
        while len(elapsed) < repeats or (
            len(elapsed) < _MAX_CALLS and sum(elapsed) < _MIN_MEASURED_S
        ):
            elapsed.append(_elapsed_s(call))
        elapsed_s = statistics.median(elapsed)
        return max(elapsed_s - overhead_s, elapsed_s / 10)

    def _exchange_s(self, call: Call, repeats: int) -> float:
        elapsed = []
        for _ in range(repeats):
            self._world.barrier("rates.barrier")
            elapsed.append(_elapsed_s(call))
        return statistics.median(elapsed)


def _elapsed_s(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _compiled(function: Callable[[], Any]) -> Call:
    """Returns a call of the compiled function that waits for its end and returns no tensor."""

    def run() -> tf.Tensor:
        results = [r for r in tf.nest.flatten(function()) if r is not None]
        first = [tf.cast(tf.reshape(r, [-1])[0], tf.float32) for r in results]
        return tf.add_n(first) if first else tf.zeros([])

    compiled = tf.function(run, autograph=False)
    return lambda: compiled().numpy()


def _gradient(
    table: tf.Variable, bags: Bags, vectors: tf.Tensor, compiled: bool
) -> Callable[[], BagGradient | tf.IndexedSlices]:
    """Returns a function that makes the gradient of a table from that of its pooled vectors."""
    if compiled:
        return lambda: BagGradient(table, [Use(bags, vectors)])
    index = np.repeat(np.arange(len(bags.columns.hotness)), bags.columns.hotness)
    offsets = tf.constant(bags.by_id(bags.columns.row_offsets), tf.int32)

    def slices() -> tf.IndexedSlices:
        by_id = tf.gather(tf.reshape(vectors, [len(vectors), -1, table.shape[1]]), index, axis=1)
        values = tf.cast(tf.reshape(by_id, [-1, table.shape[1]]), table.dtype)
        rows = tf.reshape(bags.ids + offsets, [-1])
        return tf.IndexedSlices(values, rows, tf.constant(table.shape.as_list(), tf.int64))

    return slices


def capped_rows(rows: Sequence[int], dims: Sequence[int], max_elements: int) -> list[int]:
    """Returns the rows of tables, the largest cut to one size so that all have `max_elements`."""
    low, high = 1, max(rows, default=1)
    while low < high:
        limit = (low + high + 1) // 2
        size = sum(min(r, limit) * dim for r, dim in zip(rows, dims, strict=True))
        low, high = (limit, high) if size <= max_elements else (low, limit - 1)
    return [min(r, low) for r in rows]
