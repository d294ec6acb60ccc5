"""Predicted time of a training step: the work of each part divided by the rate of the hardware.

Ranks wait for one another at each exchange, so that every part takes as long as on its slowest
rank. Parts are not overlapped: a program that sends gradients during the backward pass, on cores or
links that are idle otherwise, is faster.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from distributed_embeddings.planner.estimators import line_bytes
from distributed_embeddings.planner.sharding_plan import Plan
from distributed_embeddings.planner.traffic import (
    COPIES,
    DENSE,
    GRADIENTS,
    IDS,
    VECTORS,
    BatchSizes,
    RankTraffic,
    distinct_rows,
    expected_batch,
    traffic,
)
from distributed_embeddings.planner.types import (
    DATA_PARALLEL,
    HOST,
    ROW_SLICED,
    Shard,
    check_minimum,
)

# Parts of a step, in their order.
PARTS = (
    *("input", "ids", "lookup", "vectors", "forward", "backward", "gradients"),
    *("row update", "all-reduce", "dense update"),
)


@dataclass(frozen=True)
class Rates:
    """Speed of the hardware of one rank.

    The defaults are half of the published peaks of an A100-80GB in a DGX: matrix products in TF32
    (1.56e14 FLOP/s), memory (2.0e12 B/s), NVLink (3.0e11 B/s per direction), a network link per GPU
    (2.5e10 B/s), and a GPU's eighth of its host's memory bandwidth; none of them is measured.

    Attributes:
        product_flops_per_s: Matrix products, in the compute dtype.
        activation_bytes_per_s: Bytes that elementwise operations read and write.
        lookup_bytes_per_s: Rows of tables that are read and pooled, see `lookup_bytes`.
        row_update_bytes_per_s: Bytes of `row_update_bytes`.
        dense_update_bytes_per_s: Gradients, weights and state of the dense optimizer.
        host_bytes_per_s: Rows of tables in host memory, read or updated.
        exchange_bytes_per_s: All-to-all between ranks of a machine, per direction.
        sum_bytes_per_s: All-reduce between ranks of a machine, per direction.
        network_bytes_per_s: Link of a rank to other machines, per direction.
        latency_s: A collective of two ranks without bytes; of n ranks ceil(log2(n)) times as long.
        input_bytes_per_s: Samples that a rank loads. The default is what this project's loader
            reads, shuffled, from the page cache.

    Raises:
        ValueError: A rate that is not positive, or a negative latency.
    """

    product_flops_per_s: float = 7.8e13
    activation_bytes_per_s: float = 1.0e12
    lookup_bytes_per_s: float = 1.0e12
    row_update_bytes_per_s: float = 1.0e12
    dense_update_bytes_per_s: float = 1.0e12
    host_bytes_per_s: float = 2.5e10
    exchange_bytes_per_s: float = 1.5e11
    sum_bytes_per_s: float = 1.5e11
    network_bytes_per_s: float = 1.25e10
    latency_s: float = 1.0e-4
    input_bytes_per_s: float = 1.0e9

    def __post_init__(self) -> None:
        check_minimum(self, 0, "latency_s")
        for name in set(self.__dataclass_fields__) - {"latency_s"}:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")


@dataclass(frozen=True)
class DenseWork:
    """Work of a training step outside the tables; per sample unless stated otherwise.

    Attributes:
        forward_flops, backward_flops: Floating-point operations of matrix products.
        forward_elements, backward_elements: Elements that other operations read or write.
        num_weights: Weights of the dense layers.
        state_bytes_per_weight: Optimizer state of a dense weight.
        itemsize: Bytes per element of an activation.
        sample_bytes: Bytes of a sample in the data set.
    """

    forward_flops: float = 0.0
    backward_flops: float = 0.0
    forward_elements: float = 0.0
    backward_elements: float = 0.0
    num_weights: int = 0
    state_bytes_per_weight: float = 0.0
    itemsize: int = 4
    sample_bytes: float = 0.0


@dataclass(frozen=True)
class StepTime:
    """Predicted time of a step.

    Attributes:
        parts_s: Seconds of each part (PARTS) on its slowest rank.
        global_batch_size: Samples per step.
    """

    parts_s: dict[str, float]
    global_batch_size: int

    @property
    def total_s(self) -> float:
        """Sum of the parts; loading takes place at the same time and counts if it is slower."""
        return max(self._others_s, self.parts_s["input"])

    @property
    def is_limited_by_input(self) -> bool:
        return self.parts_s["input"] > self._others_s

    @property
    def _others_s(self) -> float:
        return sum(self.parts_s[part] for part in PARTS if part != "input")

    @property
    def samples_per_s(self) -> float:
        return self.global_batch_size / self.total_s if self.total_s else math.inf


def predict(
    plan: Plan, work: DenseWork, rates: Rates, ranks_per_machine: int | None = None
) -> StepTime:
    """Predicts the time of a training step; arguments as of `rank_times`."""
    times = rank_times(plan, work, rates, ranks_per_machine)
    slowest = {part: max(rank[part] for rank in times) for part in PARTS}
    return StepTime(slowest, plan.workload.global_batch_size)


def rank_times(
    plan: Plan, work: DenseWork, rates: Rates, ranks_per_machine: int | None = None
) -> list[dict[str, float]]:
    """Predicts the seconds of each part on each rank.

    Args:
        ranks_per_machine: Consecutive ranks that share a machine; None: all.
    """
    batch = expected_batch(plan)
    dense_bytes = 4 * work.num_weights
    ranks = traffic(plan, batch, ranks_per_machine=ranks_per_machine, dense_bytes=dense_bytes)
    update_bytes = work.num_weights * (12 + 2 * work.state_bytes_per_weight)
    result = []
    for rank, sent in enumerate(ranks):
        samples, shards = batch.samples[rank], plan.local_shards(rank)
        flops = rates.product_flops_per_s / samples
        elements = rates.activation_bytes_per_s / samples / work.itemsize
        lookup = [(s, lookup_bytes(plan, batch, s)) for s in shards]
        update = [(s, row_update_bytes(plan, batch, s)) for s in shards]
        result.append(
            {
                "input": samples * work.sample_bytes / rates.input_bytes_per_s,
                "lookup": _row_s(lookup, rates.lookup_bytes_per_s, rates),
                "row update": _row_s(update, rates.row_update_bytes_per_s, rates),
                "forward": work.forward_flops / flops + work.forward_elements / elements,
                "backward": work.backward_flops / flops + work.backward_elements / elements,
                "dense update": update_bytes / rates.dense_update_bytes_per_s,
                **_exchange_s(plan, batch, rank, sent, rates),
            }
        )
    return result


def _row_s(sizes: Sequence[tuple[Shard, float]], device_rate: float, rates: Rates) -> float:
    host_rate = min(rates.host_bytes_per_s, device_rate)
    return sum(size / (host_rate if s.device == HOST else device_rate) for s, size in sizes)


def lookup_bytes(plan: Plan, batch: BatchSizes, shard: Shard) -> float:
    """Bytes of rows that a rank reads from a shard in a step, whole cache lines."""
    row = line_bytes(shard.columns * plan.tables[shard.table].itemsize)
    return _num_lookups(plan, batch, shard) * row


def row_update_bytes(plan: Plan, batch: BatchSizes, shard: Shard) -> float:
    """Bytes of the update of a shard in a step.

    A gradient is read for each id; weights and state of each distinct row, as if ids were uniform,
    are read and written once.
    """
    w, table = plan.workload, plan.tables[shard.table]
    touched = distinct_rows(table.rows, w.global_batch_size * w.ids[shard.table])
    if w.scratch_bytes_per_element:  # Adam moves all rows
        touched = table.rows
    state = shard.columns * w.state_bytes_per_element + w.state_bytes_per_row
    row = 2 * (line_bytes(shard.columns * table.itemsize) + line_bytes(state))
    gradients = _num_lookups(plan, batch, shard) * shard.columns * w.exchange_itemsize
    return gradients + touched * shard.rows / table.rows * row if w.ids[shard.table] else 0.0


def _num_lookups(plan: Plan, batch: BatchSizes, shard: Shard) -> float:
    """Rows of a shard that its rank looks up in a step."""
    if shard.kind == ROW_SLICED:  # each rank requests a row once
        return sum(of_rank[shard.rank] for of_rank in batch.distinct[shard.table])
    ranks = [shard.rank] if shard.kind == DATA_PARALLEL else range(plan.world_size)
    features = plan.workload.features_of[shard.table]
    return sum(batch.ids[rank][f] for rank in ranks for f in features)


def _exchange_s(
    plan: Plan, batch: BatchSizes, rank: int, sent: RankTraffic, rates: Rates
) -> dict[str, float]:
    """Seconds of the exchanges of a rank, and of bringing vectors into the order of features."""
    if plan.world_size == 1:
        return dict.fromkeys(("ids", "vectors", "gradients", "all-reduce"), 0.0)
    latency_s = rates.latency_s * math.ceil(math.log2(plan.world_size))
    table_wise = int(any(plan.input_ids_list))
    row_wise = sum(
        group.kind == ROW_SLICED and any(plan.workload.features_of[s.table] for s in group.shards)
        for group in plan.groups(0)
    )

    def transfer_s(kind: str, within_rate: float) -> float:
        within = max(sent.sent_within[kind], sent.received_within[kind])
        between = max(sent.sent_between[kind], sent.received_between[kind])
        return max(within / within_rate, between / rates.network_bytes_per_s)

    order_s = _ordered_bytes(plan, batch, rank) / rates.activation_bytes_per_s
    exchange_rate, sum_rate = rates.exchange_bytes_per_s, rates.sum_bytes_per_s
    summed_s = transfer_s(COPIES, sum_rate) + transfer_s(DENSE, sum_rate)
    id_messages = table_wise * plan.workload.dp_input + row_wise
    return {
        "ids": transfer_s(IDS, exchange_rate) + latency_s * id_messages,
        "vectors": transfer_s(VECTORS, exchange_rate)
        + order_s
        + latency_s * (table_wise + row_wise),
        "gradients": transfer_s(GRADIENTS, exchange_rate)
        + order_s
        + latency_s * (table_wise + row_wise),
        "all-reduce": summed_s + latency_s * bool(summed_s),
    }


def _ordered_bytes(plan: Plan, batch: BatchSizes, rank: int) -> float:
    """Bytes that are read and written to order, or pool, the vectors that a rank received."""
    elements = 0.0
    for f, feature in enumerate(plan.features):
        if feature.table in plan.data_parallel_tables:
            continue
        vectors = batch.samples[rank] if feature.combined else batch.ids[rank][f]
        is_row_wise = feature.table in plan.row_sliced_tables
        read = batch.ids[rank][f] if is_row_wise else vectors
        elements += (read + vectors) * plan.tables[feature.table].dim
    return elements * plan.workload.exchange_itemsize
