"""One call of distributed tables: ids of a batch to their vectors, as the plan says."""

from collections.abc import Mapping

import tensorflow as tf

from nn.embedding.exchange.table_wise import Request, Requests, TableParallel
from nn.embedding.ids import Ids, Signature
from nn.embedding.lookup import Slot, checked, combine_fixed, combine_ragged, look_up
from nn.embedding.planner import DATA_PARALLEL, TABLE_PARALLEL, Plan

# Narrower units cost more to gather one by one than to split and join by feature.
_LEAST_UNIT = 8


class Forward:
    """Looks up batches whose features have given signatures.

    Args:
      plan: who holds what.
      world: the ranks.
      groups: for each of this rank's variables what holds it: a variable, or a layer of a class
        of its own.
      row_sliced: (tables, variable or None, `RowSliced`) of each exchange of row-sliced tables.
      signatures: of each feature, by number.
      dp_input: whether a call gets this rank's samples (else all ranks').
      dtype: of the vectors.
      wire_dtype: on their way.
      check: whether to check ids.
      name: prefix of the exchanges' names.
      anchor: see `nn.embedding.exchange.table_wise.exchange_rows`.
    """

    def __init__(
        self,
        plan: Plan,
        world,
        groups,
        row_sliced,
        signatures: Mapping[int, Signature],
        dp_input: bool,
        dtype,
        wire_dtype,
        check: bool,
        name: str,
        anchor=None,
    ):
        self.plan, self.world, self.groups = plan, world, groups
        self.row_sliced = row_sliced
        self.signatures = signatures
        self.dp_input = dp_input
        self.dtype = tf.as_dtype(dtype)
        self.check = check
        self.name = name
        self.exchange = TableParallel(
            world,
            [self._requests(rank, TABLE_PARALLEL) for rank in range(world.size)],
            name,
            wire_dtype,
            anchor,
        )

    def _requests(self, rank: int, kind: str) -> Requests:
        return Requests(
            [
                Request(
                    lookup.feature,
                    lookup.group,
                    self.signatures[lookup.feature],
                    lookup.shard.columns,
                    lookup.shard.column_start,
                    Slot(
                        self.signatures[lookup.feature],
                        lookup.row_offset,
                        self.plan.tables[lookup.shard.table].rows,
                    ),
                )
                for lookup in self.plan.lookups(rank, kind)
            ]
        )

    def run(self, ids: Mapping[int, Ids], concatenate: bool):
        """Outputs of all features, see `DistributedEmbedding.call`."""
        exchange = self.exchange
        found: dict[int, tf.Tensor] = {}
        if any(requests.fixed or requests.ragged for requests in exchange.requests):
            if self.dp_input:
                received = exchange.send_ids(ids)
            else:
                received = exchange.own_ids(ids)
            vectors, loose = self._look_up(exchange.own, received.fixed, received.ragged)
            batch_size = self._batch_size(ids, received)
            if any(requests.joined for requests in exchange.requests):
                rows = exchange.return_vectors(vectors, received.batch_sizes, self.dtype)
                alone = all(s.inner is not None for s in self.signatures.values()) and not (
                    self.plan.data_parallel_tables or self.plan.row_sliced_tables
                )
                # Units of a feature of several vectors and slices would be in another order.
                alone = alone and all(
                    of.vectors == 1
                    or len(self.plan.column_slices[self.plan.features[f].table]) == 1
                    for f, of in self.signatures.items()
                )
                if concatenate and alone and exchange.unit >= _LEAST_UNIT:
                    return exchange.in_order(rows, batch_size)
                found |= exchange.by_feature(rows, batch_size)
            lengths = [
                of.lengths
                for r, of in zip(exchange.own.ragged, received.ragged, strict=True)
                if r.signature.inner is None
            ]
            counts = {f: tf.size(ids[f].values) for f in ids}
            found |= exchange.return_loose(loose, lengths, received.batch_sizes, counts, self.dtype)
        if self.plan.data_parallel_tables:
            found |= self._data_parallel(ids)
        found |= self._row_sliced(ids)
        outputs = [self._shaped(f, found[f], ids) for f in range(len(self.plan.features))]
        if not concatenate:
            return outputs
        return tf.concat([_flat(f, output) for f, output in enumerate(outputs)], axis=1)

    def _batch_size(self, ids, received):
        """Samples of this rank."""
        if self.dp_input:
            return next(iter(ids.values())).batch_size
        return received.batch_sizes[self.world.rank]

    def _look_up(self, requests: Requests, fixed, ragged):
        """([batch, width] of the joined look-ups or None, [n, columns] of each loose one)."""
        by_group: dict[int, tuple[list, list]] = {}
        for r in requests.fixed:
            by_group.setdefault(r.group, ([], []))[0].append(r)
        for r, ids in zip(requests.ragged, ragged, strict=True):
            by_group.setdefault(r.group, ([], []))[1].append((r, ids))
        order = sorted(by_group)
        counts = [sum(r.signature.num_ids for r in by_group[g][0]) for g in order]
        runs = [fixed] if len(order) == 1 else [None] * len(order)
        if len(order) > 1 and fixed is not None:
            runs = tf.split(fixed, counts, axis=1)
        joined, loose = [], []
        for g, run in zip(order, runs, strict=True):
            of_fixed, of_ragged = by_group[g]
            slots = [r.slot for r in of_fixed] + [r.slot for r, _ in of_ragged]
            given = [ids for _, ids in of_ragged]
            holder = self.groups[g]
            if isinstance(holder, tf.Variable):
                outputs = look_up(holder, slots, run, given, self.dtype, self.check)
            else:
                columns = (of_fixed or [r for r, _ in of_ragged])[0].columns
                outputs = self._call_layer(holder, slots, run, given, columns)
            num_ragged = len(of_ragged)
            joined += outputs[: len(outputs) - num_ragged]
            for (r, _), output in zip(of_ragged, outputs[len(outputs) - num_ragged :], strict=True):
                (joined if r.signature.inner is not None else loose).append(output)
        if not joined:
            return None, loose
        return joined[0] if len(joined) == 1 else tf.concat(joined, axis=1), loose

    def _call_layer(self, layer, slots, fixed, ragged, columns: int) -> list[tf.Tensor]:
        """Like `look_up`, by the code of a layer of its own."""
        num_fixed = len(slots) - len(ragged)
        outputs = []
        if num_fixed:
            counts = [slot.signature.num_ids for slot in slots[:num_fixed]]
            for slot, part in zip(slots, tf.split(fixed, counts, axis=1), strict=False):
                of = slot.signature
                shape = [*of.inner, of.hotness] if of.combiner else [*of.inner]
                output = layer(tf.reshape(part, [-1, *shape]))
                _check_output(layer, output, (*of.inner, columns))
                outputs.append(tf.reshape(output, [-1, of.vectors * columns]))
        for slot, ids in zip(slots[num_fixed:], ragged, strict=True):
            output = layer(
                tf.RaggedTensor.from_row_lengths(ids.values, ids.lengths, validate=False)
            )
            if slot.signature.combiner is None:
                output = output.values
            _check_output(layer, output, (columns,))
            outputs.append(output)
        return [tf.cast(output, self.dtype) for output in outputs]

    def _data_parallel(self, ids) -> dict[int, tf.Tensor]:
        requests = self._requests(self.world.rank, DATA_PARALLEL)
        fixed = [ids[r.feature].values for r in requests.fixed]
        vectors, loose = self._look_up(
            requests,
            tf.concat(fixed, axis=1) if fixed else None,
            [ids[r.feature] for r in requests.ragged],
        )
        found = {r.feature: rows for r, rows in zip(requests.loose, loose, strict=True)}
        if requests.joined:
            widths = [r.width for r in requests.joined]
            for r, part in zip(requests.joined, tf.split(vectors, widths, axis=1), strict=True):
                found[r.feature] = part
        return found

    def _row_sliced(self, ids) -> dict[int, tf.Tensor]:
        found = {}
        for i, (tables, variable, exchange) in enumerate(self.row_sliced):
            features = self.plan.features_of(tuple(tables))
            if not features:
                continue
            wanted = []
            for f in features:
                t = self.plan.features[f].table
                values = tf.reshape(ids[f].values, [-1])
                if self.check:
                    values = checked(values, self.plan.tables[t].rows)
                wanted.append((tables.index(t), values))
            results = exchange.look_up(variable, wanted, self.dtype, f"{self.name}.row_sliced.{i}")
            for f, rows in zip(features, results, strict=True):
                of = self.signatures[f]
                if not of.ragged:
                    rows = tf.reshape(rows, [-1, of.vectors, of.hotness, rows.shape[-1]])
                    rows = combine_fixed(rows, of.combiner)
                elif of.combiner is not None:
                    rows = combine_ragged(rows, ids[f].lengths, of.combiner)
                found[f] = rows
        return found

    def _shaped(self, f: int, output: tf.Tensor, ids):
        of, dim = self.signatures[f], self.plan.tables[self.plan.features[f].table].dim
        if of.inner is not None:
            return tf.reshape(output, [-1, *of.inner, dim])
        return tf.RaggedTensor.from_row_lengths(output, ids[f].lengths, validate=False)


def _flat(f: int, output) -> tf.Tensor:
    """[batch, all else]."""
    if isinstance(output, tf.RaggedTensor):
        raise ValueError(
            f"concatenate=True: the output of feature {f} is ragged; give its table a combiner"
        )
    width = 1
    for size in output.shape[1:]:
        width *= size
    return tf.reshape(output, [-1, width])


def _check_output(layer, output, expected: tuple[int, ...]) -> None:
    if tuple(output.shape[1:]) != expected:
        raise ValueError(
            f"{type(layer).__name__} {layer.name} gave {output.shape}, but the output of an "
            f"embedding is the ids' shape (without the last dimension if the layer has a combiner) "
            f"and output_dim: {['batch', *expected]}"
        )
