"""Bytes that ranks send each other in a training step, exactly as layer and trainer exchange them.

Not counted: headers of the network's protocols, Horovod's own messages (some hundred bytes per
collective), the one number by which float16 skips a step, and the float32 in which
`World.all_reduce` sums replicated tables in bfloat16: a plan has bytes, not dtypes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distributed_embeddings.planner.sharding_plan import Plan
from distributed_embeddings.planner.types import (
    DATA_PARALLEL,
    ROW_SLICED_ID_BYTES,
    WHOLE_TABLE_ELEMENTS,
)

_LENGTH_BYTES = 4  # int32
# Row means, the touched rows of a replicated table, and gradients of row-sliced tables are float32.
_SUM_BYTES = 4

KINDS = ("ids", "vectors", "gradients", "copied tables", "dense")
IDS, VECTORS, GRADIENTS, COPIES, DENSE = KINDS


@dataclass(frozen=True)
class BatchSizes:
    """Numbers of samples and ids in one global batch.

    Attributes:
        ids: For each rank and feature, the ids of the rank's samples.
        ragged: For each feature, whether its samples differ in their number of ids.
        distinct: For each row-sliced table, [rank][owner]: distinct ids of the rank in the owner's
            rows.
        touched: For each table in column slices, distinct ids of all samples.
    """

    samples: tuple[float, ...]
    ids: tuple[tuple[float, ...], ...]
    ragged: tuple[bool, ...]
    distinct: dict[int, tuple[tuple[float, ...], ...]]
    touched: dict[int, float]


def expected_batch(plan: Plan, ragged: Sequence[int] = ()) -> BatchSizes:
    """Estimates a batch without data, with uniform ids: no distribution has more distinct ones.

    Args:
        ragged: Features whose samples differ in their number of ids.
    """
    w = plan.workload
    samples = w.global_batch_size / plan.world_size
    ids = tuple(samples * feature.hotness for feature in plan.features)
    distinct = {}
    for t in plan.row_sliced_tables:
        rows, bounds = plan.tables[t].rows, plan.row_bounds(t)
        share = distinct_rows(rows, samples * w.ids[t]) / rows
        row = tuple(share * (bounds[r + 1] - bounds[r]) for r in range(plan.world_size))
        distinct[t] = (row,) * plan.world_size
    touched = {
        t: distinct_rows(plan.tables[t].rows, w.global_batch_size * w.ids[t])
        for t, slices in enumerate(plan.column_slices)
        if len(slices) > 1
    }
    return BatchSizes(
        samples=(samples,) * plan.world_size,
        ids=(ids,) * plan.world_size,
        ragged=tuple(f in ragged for f in range(len(plan.features))),
        distinct=distinct,
        touched=touched,
    )


def distinct_rows(rows: int, drawn: float) -> float:
    """Expected number of different values among `drawn` uniform ones of `rows`."""
    return float(rows * (1 - (1 - 1 / rows) ** drawn))


@dataclass(frozen=True)
class RankTraffic:
    """Bytes of one rank per step, by kind (KINDS): to and from ranks of its machine, and others.

    `IDS` include lengths of ragged ids, `GRADIENTS` are those of vectors and the row means of
    row-wise Adagrad, `COPIES` and `DENSE` sums of gradients of data-parallel tables and all others.
    """

    sent_within: dict[str, float]
    sent_between: dict[str, float]
    received_within: dict[str, float]
    received_between: dict[str, float]

    def sent(self, kind: str) -> float:
        return self.sent_within[kind] + self.sent_between[kind]

    def received(self, kind: str) -> float:
        return self.received_within[kind] + self.received_between[kind]

    @property
    def busiest_direction(self) -> float:
        """Bytes sent or received, whichever is more: a link carries both at once."""
        return max(sum(map(self.sent, KINDS)), sum(map(self.received, KINDS)))

    @property
    def busiest_direction_between(self) -> float:
        """Bytes that leave or enter the machine, whichever is more."""
        return max(sum(self.sent_between.values()), sum(self.received_between.values()))


def traffic(
    plan: Plan,
    batch: BatchSizes | None = None,
    *,
    ranks_per_machine: int | None = None,
    dense_bytes: float = 0.0,
) -> list[RankTraffic]:
    """Computes the bytes of each rank in one training step of trained tables.

    Sums of gradients take the minimum, which hierarchical sums reach: 2 (n - 1) / n of the bytes
    summed out of each of n ranks, and 2 (m - 1) / m out of each of m machines, shared evenly by its
    ranks.

    Args:
        batch: Numbers of ids; None: `expected_batch(plan)`.
        ranks_per_machine: Consecutive ranks that share a machine; None: all.
        dense_bytes: Gradients of all weights that are not in tables.
    """
    size = plan.world_size
    if ranks_per_machine is not None and ranks_per_machine < 1:
        raise ValueError(f"ranks_per_machine must be at least 1, got {ranks_per_machine}")
    per_machine = min(ranks_per_machine or size, size)
    batch = batch or expected_batch(plan)
    sent, received = np.zeros((2, 2, len(KINDS), size))  # [within or between machines, kind, rank]
    machine = np.arange(size) // per_machine
    for owner, sizes in _all_to_all(plan, batch) if size > 1 else ():
        is_here = machine == machine[owner]
        for place, size_bytes in enumerate((sizes * is_here, sizes * ~is_here)):
            for k, each in enumerate(size_bytes):
                of_samples, of_owner = sent[place, k], received[place, k]
                if KINDS[k] == VECTORS:
                    of_samples, of_owner = received[place, k], sent[place, k]
                of_samples += each
                of_owner[owner] += each.sum()
    ranks = [
        RankTraffic(
            *(
                dict(zip(KINDS, bytes_of_kinds, strict=True))
                for bytes_of_kinds in (*sent[:, :, rank].tolist(), *received[:, :, rank].tolist())
            )
        )
        for rank in range(size)
    ]
    if size == 1:
        return ranks
    num_machines = -(-size // per_machine)
    sums = {COPIES: _copied_tables(plan, batch), DENSE: (dense_bytes, 0.0)}
    for rank, rank_traffic in enumerate(ranks):
        first = rank // per_machine * per_machine
        here = min(per_machine, size - first)
        for kind, (summed, gathered) in sums.items():
            elsewhere = (size - here) / here  # a rank's share of other machines' rows
            within = 2 * (here - 1) / here * summed + (size - 1 - elsewhere) * gathered
            between = 2 * (num_machines - 1) / num_machines / here * summed + elsewhere * gathered
            rank_traffic.sent_within[kind] = rank_traffic.received_within[kind] = within
            rank_traffic.sent_between[kind] = rank_traffic.received_between[kind] = between
    return ranks


def _all_to_all(plan: Plan, batch: BatchSizes) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yields each rank that owns tables, and the bytes that it exchanges with each rank.

    Returns:
        (owner, float64 [3, world_size]: bytes of ids, vectors and gradients; 0 for itself).
    """
    w = plan.workload
    num_ids, samples = np.array(batch.ids), np.array(batch.samples)
    distinct = {t: np.array(batch.distinct[t]) for t in plan.row_sliced_tables}
    tables = [{s.table for s in shards} & set(batch.touched) for shards in plan.table_shards]
    for owner, shards in enumerate(plan.table_shards):
        sizes = np.zeros((3, plan.world_size))
        ids, vectors, gradients = sizes
        lookups = [(f, s.columns) for s in shards for f in w.features_of[s.table]]
        for f, columns in lookups:
            if w.dp_input:
                ids += num_ids[:, f] * w.id_itemsize + batch.ragged[f] * samples * _LENGTH_BYTES
            num_vectors = samples if plan.features[f].combined else num_ids[:, f]
            vectors += num_vectors * columns * w.exchange_itemsize
        gradients += vectors
        if lookups and w.state_bytes_per_row and tables[owner]:  # row means of row-wise Adagrad
            shared = (tables[owner] & of_rank for of_rank in tables)
            touched = [sum(batch.touched[t] for t in each) for each in shared]
            gradients += np.array(touched) * _SUM_BYTES
        for t in plan.row_sliced_tables:
            rows, table = distinct[t][:, owner], plan.tables[t]
            ids += rows * ROW_SLICED_ID_BYTES
            vectors += rows * table.dim * w.exchange_itemsize
            gradients += rows * table.dim * max(_SUM_BYTES, table.itemsize)
        sizes[:, owner] = 0
        yield owner, sizes


def _copied_tables(plan: Plan, batch: BatchSizes) -> tuple[float, float]:
    """Returns bytes of gradients of data-parallel tables: (summed whole, gathered by rows)."""
    summed = gathered = 0.0
    for group in plan.groups(0):
        if group.kind != DATA_PARALLEL:
            continue
        features = [f for s in group.shards for f in plan.workload.features_of[s.table]]
        if not features:
            continue
        elements = group.rows * group.dim
        if elements <= WHOLE_TABLE_ELEMENTS:
            summed += elements * group.itemsize + group.rows * _SUM_BYTES
        else:
            index_bytes = 4 if group.rows < 2**31 else 8
            ids = sum(rank_ids[f] for rank_ids in batch.ids for f in features) / plan.world_size
            gathered += ids * (group.dim * group.itemsize + index_bytes)
    return summed, gathered
