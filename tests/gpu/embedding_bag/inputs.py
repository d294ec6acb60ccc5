"""Random numbers and ids of a case."""

import zlib
from typing import NamedTuple

import numpy as np

from tests.gpu import reference as numbers
from tests.gpu.embedding_bag import reference
from tests.gpu.embedding_bag.cases import ROWS_BEFORE, BagCase


class Batch(NamedTuple):
    """Ids of one use, and the gradient of its output."""

    ids: np.ndarray  # [num_ids]
    splits: np.ndarray | None  # [num_samples + 1]
    weights: np.ndarray | None  # [num_ids] float32
    upstream: np.ndarray  # [bags, dim] in the storage of the case's other dtype
    num_samples: int
    pairs: reference.Pairs


class Inputs(NamedTuple):
    """Contents of one case's tensors."""

    table: np.ndarray  # [rows, dim] in the storage of its dtype
    slots: list[np.ndarray]
    batches: list[Batch]

    def exact_table(self, dtype: str) -> np.ndarray:
        """The table in float64."""
        return numbers.widened(self.table, dtype).astype(np.float64)


def make_inputs(case: BagCase) -> Inputs:
    """Random numbers, the same for the same case."""
    sizes = case._replace(multiprocessors=1)
    random = np.random.default_rng(zlib.crc32(str(sizes).encode()))
    shape = (case.rows, case.dim)
    table = numbers.stored(random.standard_normal(shape, np.float32), case.dtype)
    slots = []
    if case.optimizer == "row_wise_adagrad":
        slots = [random.uniform(0.25, 1.0, case.rows)]
    elif case.optimizer != "sgd":
        slots = [random.uniform(0.25, 1.0, shape) for _ in range(2)]
        slots = slots[: 1 if case.optimizer == "adagrad" else 2]
    batches = [_make_batch(case, turn, random) for turn in range(case.uses)]
    return Inputs(table, [slot.astype(np.float32) for slot in slots], batches)


def _make_batch(case: BagCase, turn: int, random: np.random.Generator) -> Batch:
    num_samples = (case.batch, 0, case.batch + 2)[turn % 3] if case.uses == 3 else case.batch
    columns = case.columns[:1] if case.ragged else case.columns
    hotness = np.array([hot for hot, _, _ in columns])
    lengths = np.tile(hotness, (num_samples, 1))
    if case.ragged:
        lengths = random.integers(0, 2 * hotness[0] + 1, (num_samples, 1))
        lengths *= random.random((num_samples, 1)) < 0.7
    bags = np.repeat(np.arange(lengths.size), lengths.reshape(-1))
    column = bags % len(columns)
    sizes = np.array([rows for _, rows, _ in columns])
    # Half of them are small: rows occur often, and seldom.
    ids = random.integers(0, np.maximum(sizes[column], 1))
    ids = np.where(random.random(len(ids)) < 0.5, ids, ids % 3)
    ids = np.minimum(ids, np.maximum(sizes[column] - 1, 0))
    known = sizes[column] > 0
    if case.bad_ids:
        worst = 2**31 - 1 if case.id_bytes == 4 else 2**40
        bad = np.stack([-np.ones_like(ids), sizes[column], ids * 0 + worst, ids * 0 - worst - 1])
        chosen = (random.random(len(ids)) < 0.2) | ~known
        ids = np.where(chosen, bad[random.integers(0, 4, len(ids)), np.arange(len(ids))], ids)
        known = ~chosen
    offsets = ROWS_BEFORE + np.concatenate([[0], np.cumsum(sizes)[:-1]])
    weights = random.uniform(-2, 2, len(ids)).astype(np.float32) if case.weighted else None
    is_mean = np.array([mean for _, _, mean in columns])[column]
    factors = np.where(is_mean, 1.0 / np.maximum(lengths.reshape(-1)[bags], 1), 1.0)
    if weights is not None:
        factors = factors * weights
    upstream = random.standard_normal((lengths.size, case.dim), np.float32)
    return Batch(
        ids.astype(np.int32 if case.id_bytes == 4 else np.int64),
        np.concatenate([[0], np.cumsum(lengths.reshape(-1))]) if case.ragged else None,
        weights,
        numbers.stored(upstream, case.other),
        num_samples,
        reference.Pairs(bags, np.where(known, ids + offsets[column], -1), factors, lengths.size),
    )
