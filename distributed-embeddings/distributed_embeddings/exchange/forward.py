"""Lookup of a batch in distributed tables: ids in, the vectors of this rank's samples out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from distributed_embeddings.exchange.row_wise import RowWise
from distributed_embeddings.exchange.table_wise import RowExchange, TableWise, unique_name
from distributed_embeddings.layers.lookup import (
    Ids,
    Request,
    Requests,
    Signature,
    call_layer,
    look_up,
)
from distributed_embeddings.ops.embedding_bag import checked, combine_fixed, combine_ragged
from distributed_embeddings.planner import DATA_PARALLEL, TABLE_PARALLEL, Plan

# A gather of narrower units costs more than to split and concatenate by feature.
_MIN_GATHERED_COLUMNS = 8


@dataclass(frozen=True)
class RankTables:
    """Tables of one rank, and the exchanges that they take part in.

    Attributes:
        groups: For each of this rank's groups its variable, or a layer of a custom class.
        compiled: Whether the compiled operations may be used, by group.
        dp_input: Whether a call gets this rank's samples (otherwise all ranks').
    """

    plan: Plan
    groups: Sequence
    compiled: Sequence[bool]
    exchange: RowExchange
    row_wise: Sequence[RowWise]
    name: str
    dp_input: bool
    dtype: tf.DType
    check_ids: bool


class Forward:
    """Lookup of batches whose features (by number) have given signatures."""

    def __init__(self, tables: RankTables, signatures: Mapping[int, Signature]):
        self._tables, self.signatures = tables, signatures
        plan, world = tables.plan, tables.exchange.world
        requests = [self._requests(rank, TABLE_PARALLEL) for rank in range(world.size)]
        self._own = requests[world.rank]
        self._replicated = self._requests(world.rank, DATA_PARALLEL)
        self._exchange = TableWise(tables.exchange, requests)
        # Whether all outputs are in `pooled`. Of a feature with several vectors and column slices
        # it would interleave them.
        all_pooled = not (plan.data_parallel_tables or plan.row_sliced_tables) and all(
            signature.inner is not None
            and (signature.vectors == 1 or len(plan.column_slices[plan.features[f].table]) == 1)
            for f, signature in signatures.items()
        )
        order = [(r.feature, r.column_start) for r in self._own.pooled]
        self._is_in_order = all_pooled and world.size == 1 and order == sorted(order)
        self._is_one_gather = all_pooled and self._exchange.granularity >= _MIN_GATHERED_COLUMNS

    def _requests(self, rank: int, kind: str) -> Requests:
        lookups = self._tables.plan.lookups(rank, kind)
        return Requests([Request(lookup, self.signatures[lookup.feature]) for lookup in lookups])

    @tf.autograph.experimental.do_not_convert
    def __call__(self, ids: Mapping[int, Ids], concatenate: bool):
        """Returns the outputs of all features, see `DistributedEmbedding.call`."""
        tables, own, exchange = self._tables, self._own, self._exchange
        plan, world, outputs = tables.plan, tables.exchange.world, {}
        name = unique_name(tables.name) if world.size > 1 else ""
        if any(plan.input_ids_list):
            batch_size = next(iter(ids.values())).batch_size
            if world.size > 1:
                pooled, outputs = self._look_up_on_all_ranks(ids, batch_size, name)
            else:
                pooled, uncombined = self._look_up(own, *own.select(ids))
                if concatenate and self._is_in_order:
                    return pooled
                outputs = _by_feature(own, None, uncombined)
            if not tables.dp_input:
                batch_size //= world.size
            if concatenate and self._is_one_gather:
                return exchange.in_order(pooled, batch_size)
            if pooled is not None:
                outputs |= exchange.by_feature(pooled, batch_size)
        if plan.data_parallel_tables:
            requests = self._replicated
            pooled, uncombined = self._look_up(requests, *requests.select(ids))
            outputs |= _by_feature(requests, pooled, uncombined)
        outputs |= self._look_up_row_wise(ids, name)
        ordered = [self._shaped(f, outputs[f], ids) for f in range(len(plan.features))]
        if not concatenate:
            return ordered
        return tf.concat([_flat(f, output) for f, output in enumerate(ordered)], axis=1)

    def _look_up_on_all_ranks(self, ids, batch_size: tf.Tensor, name: str):
        """Looks up table-parallel tables.

        Returns:
            (pooled vectors, see `TableWise.return_vectors`; uncombined vectors of each feature).
        """
        tables, own, exchange = self._tables, self._own, self._exchange
        if tables.dp_input:
            fixed, ragged, batch_sizes = exchange.send_ids(ids, name)
        else:  # the ids of all ranks' samples, equally many of each
            size = tables.exchange.world.size
            fixed, ragged = own.select(ids)
            batch_sizes = tf.fill([size], batch_size // size)
        pooled, uncombined = self._look_up(own, fixed, ragged)
        pooled = exchange.return_vectors(pooled, batch_sizes, tables.dtype, name)
        lengths = [
            ids_of_request.lengths
            for r, ids_of_request in zip(own.ragged, ragged, strict=True)
            if r.signature.inner is None
        ]
        counts = {f: tf.size(feature_ids.values) for f, feature_ids in ids.items()}
        outputs = exchange.return_uncombined(
            list(zip(uncombined, lengths, strict=True)), batch_sizes, counts, tables.dtype, name
        )
        return pooled, outputs

    def _look_up(self, requests: Requests, fixed, ragged):
        """Looks up ids in the variables of this rank.

        Returns:
            ([batch, width] of the pooled requests, None without any; [n, columns] of each
            uncombined one).
        """
        tables, groups = self._tables, requests.by_group()
        runs = [fixed] * len(groups)
        if len(groups) > 1 and fixed is not None:
            runs = tf.split(fixed, [group.num_ids for group in groups.values()], axis=1)
        ragged = iter(ragged)
        pooled, uncombined = [], []
        for (number, group), run in zip(groups.items(), runs, strict=True):
            holder, ragged_run = tables.groups[number], [next(ragged) for _ in group.ragged]
            if isinstance(holder, tf.Variable):
                vectors, outputs = look_up(
                    *(holder, group, run, ragged_run, tables.dtype, tables.check_ids),
                    compiled=tables.compiled[number],
                )
            else:
                vectors, outputs = call_layer(holder, group, run, ragged_run, tables.dtype)
            if vectors is not None:
                pooled.append(vectors)
            for r, output in zip(group.ragged, outputs, strict=True):
                (uncombined if r.signature.inner is None else pooled).append(output)
        if len(pooled) > 1:
            pooled = [tf.concat(pooled, axis=1)]
        return pooled[0] if pooled else None, uncombined

    def _look_up_row_wise(self, ids, name: str) -> dict[int, tf.Tensor]:
        tables, outputs = self._tables, {}
        plan = tables.plan
        for i, exchange in enumerate(tables.row_wise):
            features = plan.features_of(exchange.tables)
            if not features:
                continue
            wanted = []
            for f in features:
                t, values = plan.features[f].table, tf.reshape(ids[f].values, [-1])
                if tables.check_ids:
                    values = checked(values, plan.tables[t].rows)
                wanted.append((t, values))
            results = exchange.look_up(wanted, tables.dtype, f"{name}.row_sliced.{i}")
            for f, rows in zip(features, results, strict=True):
                signature = self.signatures[f]
                if not signature.ragged:
                    shape = [-1, signature.vectors, signature.hotness, rows.shape[-1]]
                    rows = combine_fixed(tf.reshape(rows, shape), signature.combiner)
                elif signature.combiner is not None:
                    rows = combine_ragged(rows, ids[f].lengths, signature.combiner)
                outputs[f] = rows
        return outputs

    def _shaped(self, f: int, output: tf.Tensor, ids):
        plan, inner = self._tables.plan, self.signatures[f].inner
        if inner is not None:
            return tf.reshape(output, [-1, *inner, plan.tables[plan.features[f].table].dim])
        return tf.RaggedTensor.from_row_lengths(output, ids[f].lengths, validate=False)


def _by_feature(requests: Requests, pooled: tf.Tensor | None, uncombined) -> dict[int, tf.Tensor]:
    """Returns the vectors of each feature from the results of `Forward._look_up`."""
    outputs = {r.feature: rows for r, rows in zip(requests.uncombined, uncombined, strict=True)}
    if pooled is not None:
        outputs |= {r.feature: part for r, part in requests.split(pooled)}
    return outputs


def _flat(f: int, output) -> tf.Tensor:
    """Reshapes an output to [batch, width]."""
    if isinstance(output, tf.RaggedTensor):
        raise ValueError(
            f"concatenate=True: the output of feature {f} is ragged; give its table a combiner"
        )
    return tf.reshape(output, [-1, math.prod(output.shape[1:])])
