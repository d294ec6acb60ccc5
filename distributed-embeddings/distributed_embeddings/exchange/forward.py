"""Lookup of a batch in distributed tables: ids in, the vectors of this rank's samples out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from distributed_embeddings.exchange import bag_gradients
from distributed_embeddings.exchange.requests import Ids, Requests, Signature, by_group, call_layer
from distributed_embeddings.exchange.row_wise import RowWise
from distributed_embeddings.exchange.table_wise import RowExchange, TableWise, unique_name
from distributed_embeddings.ops.embedding_bag import checked, combine_fixed, combine_ragged
from distributed_embeddings.planner import Lookup, Plan

# A gather of narrower units costs more than to split and concatenate by feature.
_MIN_GATHERED_COLUMNS = 8


@dataclass(frozen=True)
class RankTables:
    """Tables of one rank, and the exchanges that they take part in.

    Attributes:
        groups: For each of this rank's groups its variable, or a layer of a custom class.
        compiled: For each of them whether the compiled operations may be used.
        local: Lookups by this rank's samples alone, by group: in replicated tables, on one process
            in all whole ones.
        exchanged: For each rank its lookups by the samples of all ranks; empty without any.
        dp_input: Whether a call gets this rank's samples (otherwise all ranks').
    """

    plan: Plan
    groups: Sequence
    compiled: Sequence[bool]
    local: Sequence[Sequence[Lookup]]
    exchanged: Sequence[Sequence[Lookup]]
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
        plan, rank = tables.plan, tables.exchange.world.rank
        self._local = [Requests(lookups, signatures) for lookups in tables.local]
        order = [r.feature for requests in self._local for r in requests.pooled]
        self._is_in_order = order == sorted(signatures)
        self._exchange = None
        if tables.exchanged:
            self._exchange = TableWise(
                tables.exchange, [Requests(lookups, signatures) for lookups in tables.exchanged]
            )
            own = by_group(tables.exchanged[rank])
            self._own = [Requests(lookups, signatures) for lookups in own]
            # Whether all outputs are exchanged and pooled. Of a feature with several vectors and
            # column slices one gather would interleave them.
            self._is_one_gather = (
                self._exchange.granularity >= _MIN_GATHERED_COLUMNS
                and not (plan.data_parallel_tables or plan.row_sliced_tables)
                and all(
                    s.inner is not None
                    and (s.vectors == 1 or len(plan.column_slices[plan.features[f].table]) == 1)
                    for f, s in signatures.items()
                )
            )

    def __call__(self, ids: Mapping[int, Ids], concatenate: bool):
        """Returns the outputs of all features, see `DistributedEmbedding.call`."""
        tables, exchange, outputs = self._tables, self._exchange, {}
        plan, world = tables.plan, tables.exchange.world
        name = unique_name(tables.name) if world.size > 1 else ""
        if exchange is not None:
            batch_size = next(iter(ids.values())).batch_size
            received, outputs = self._look_up_on_all_ranks(ids, batch_size, name)
            if not tables.dp_input:
                batch_size //= world.size
            if concatenate and self._is_one_gather:
                return exchange.in_order(received, batch_size)
            if received is not None:
                outputs |= exchange.by_feature(received, batch_size)
        results = [self._look_up(requests, *requests.select(ids)) for requests in self._local]
        if concatenate and self._is_in_order:
            return tf.concat([pooled for pooled, _ in results], axis=1)
        for requests, (pooled, uncombined) in zip(self._local, results, strict=True):
            outputs |= {
                r.feature: rows for r, rows in zip(requests.uncombined, uncombined, strict=True)
            }
            if pooled is not None:
                outputs |= {r.feature: part for r, part in requests.split(pooled)}
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
        tables, exchange, groups = self._tables, self._exchange, self._own
        if tables.dp_input:
            fixed, ragged, batch_sizes = exchange.send_ids(ids, name)
        else:  # the ids of all ranks' samples, equally many of each
            size = tables.exchange.world.size
            fixed, ragged = exchange.own.select(ids)
            batch_sizes = tf.fill([size], batch_size // size)
        runs, ragged_ids = [fixed] * len(groups), iter(ragged)
        if len(groups) > 1 and fixed is not None:
            runs = tf.split(fixed, [requests.num_ids for requests in groups], axis=1)
        pooled, uncombined = [], []
        for requests, run in zip(groups, runs, strict=True):
            vectors, rows = self._look_up(
                requests, run, [next(ragged_ids) for _ in requests.ragged]
            )
            pooled += [] if vectors is None else [vectors]
            uncombined += rows
        received = exchange.return_vectors(
            tf.concat(pooled, axis=1) if pooled else None, batch_sizes, tables.dtype, name
        )
        lengths = [
            ids_of_request.lengths
            for r, ids_of_request in zip(exchange.own.ragged, ragged, strict=True)
            if r.signature.inner is None
        ]
        counts = {f: tf.size(feature_ids.values) for f, feature_ids in ids.items()}
        outputs = exchange.return_uncombined(
            list(zip(uncombined, lengths, strict=True)), batch_sizes, counts, tables.dtype, name
        )
        return received, outputs

    def _look_up(self, requests: Requests, fixed, ragged):
        """Looks up ids in one variable of this rank, or in a layer of a custom class.

        Returns:
            ([batch, width] of the pooled requests, None without any; [n, columns] of each
            uncombined one).
        """
        tables, group = self._tables, requests.ordered[0].group
        holder = tables.groups[group]
        if isinstance(holder, tf.Variable):
            vectors = [
                bag_gradients.look_up(
                    holder, bags, tables.dtype, tables.check_ids, tables.compiled[group]
                )
                for bags in requests.bags(fixed, ragged)
            ]
        else:
            vectors = call_layer(holder, requests, fixed, ragged, tables.dtype)
        num_pooled = len(vectors) - len(requests.uncombined)  # which come last
        pooled = tf.concat(vectors[:num_pooled], axis=1) if num_pooled else None
        return pooled, vectors[num_pooled:]

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


def _flat(f: int, output) -> tf.Tensor:
    """Reshapes an output to [batch, width]."""
    if isinstance(output, tf.RaggedTensor):
        raise ValueError(
            f"concatenate=True: the output of feature {f} is ragged; give its table a combiner"
        )
    return tf.reshape(output, [-1, math.prod(output.shape[1:])])
