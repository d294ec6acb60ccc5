"""Lookup in tables of which one rank holds all rows, of some or all columns.

Vectors are exchanged in units of the greatest common width (granularity), counted in int32, so that
an exchange holds up to 2^31 units, not elements. Every receiver knows the size of what it receives
from the plan and from the sizes of what it received before: nothing is gathered to agree on sizes.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from distributed_embeddings.exchange.group_variable import GroupVariable
from distributed_embeddings.exchange.ids import Ids, Signature
from distributed_embeddings.exchange.lookups import Lookups, by_group
from distributed_embeddings.exchange.row_exchange import RowExchange
from distributed_embeddings.planner import Lookup

# A gather of narrower units costs more than to split and concatenate by feature.
_MIN_GATHERED_COLUMNS = 8


class _Received(NamedTuple):
    """Ids of all ranks' samples for this rank's lookups, see `Lookups.select`.

    Attributes:
        batch_sizes: int32 [world size], samples of each rank.
    """

    fixed: tf.Tensor | None
    ragged: list[Ids]
    batch_sizes: tf.Tensor


class TableWise:
    """Part of a lookup: ids go to the ranks that own the tables, vectors come back.

    Args:
        lookups: Of each rank.
        variables: Of this rank's groups.
        signatures: Of the ids of all features.
        dp_input: Whether a call gets this rank's samples; False: all ranks', of the features that
            this rank looks up.
        dtype: Of the vectors.
    """

    def __init__(
        self,
        exchange: RowExchange,
        lookups: Sequence[Sequence[Lookup]],
        variables: Sequence[GroupVariable],
        signatures: Mapping[int, Signature],
        dp_input: bool,
        dtype: tf.DType,
    ):
        self._exchange, self._world = exchange, exchange.world
        self._dp_input, self._dtype = dp_input, dtype
        self._lookups = [Lookups(of_rank, signatures) for of_rank in lookups]
        self._own = self._lookups[self._world.rank]
        own = by_group(lookups[self._world.rank])
        self._groups = [(variables[g[0].group], Lookups(g, signatures)) for g in own]
        widths = [width for of_rank in self._lookups for width in of_rank.widths]
        self._granularity = math.gcd(*[width for width in widths if width]) or 1
        # Of a feature with several vectors and column slices one gather would interleave them.
        slices = Counter(x.feature for of_rank in lookups for x in of_rank)
        self._is_one_gather = (
            self._granularity >= _MIN_GATHERED_COLUMNS
            and len(slices) == len(signatures)
            and all(
                s.inner is not None and (s.vectors == 1 or slices[f] == 1)
                for f, s in signatures.items()
            )
        )

    def __call__(self, ids: Mapping[int, Ids], name: str) -> dict[int, tf.Tensor]:
        """Returns the vectors of this rank's samples by feature; collective."""
        pooled, uncombined = self._exchanged(ids, name)
        if pooled is None:
            return uncombined
        return uncombined | self._by_feature(pooled, self._batch_size(ids))

    def concatenated(self, ids: Mapping[int, Ids], name: str) -> tf.Tensor | None:
        """Returns the vectors [batch, width]; None if one gather does not order them; collective.

        The order is that of the features.
        """
        if not self._is_one_gather:
            return None
        pooled, _ = self._exchanged(ids, name)
        return self._in_order(pooled, self._batch_size(ids))

    def _exchanged(self, ids, name: str):
        received = self.send_ids(ids, name)
        pooled, uncombined = self.look_up(received)
        counts = {f: tf.size(feature_ids.values) for f, feature_ids in ids.items()}
        return (
            self.return_vectors(pooled, received, name),
            self.return_uncombined(uncombined, received, counts, name),
        )

    def _batch_size(self, ids: Mapping[int, Ids]) -> tf.Tensor:
        """Returns the number of this rank's samples."""
        batch_size = next(iter(ids.values())).batch_size
        return batch_size if self._dp_input else batch_size // self._world.size

    def send_ids(self, ids: Mapping[int, Ids], name: str) -> _Received:
        """Sends the ids of this rank's samples, by feature, to the owners of the tables."""
        if not self._dp_input:  # the ids of all ranks' samples, equally many of each
            sizes = tf.fill([self._world.size], self._batch_size(ids))
            return _Received(*self._own.select(ids), sizes)
        parts, sizes = [], []
        for lookups in self._lookups:
            fixed, ragged = lookups.select(ids)
            flat = [] if fixed is None else [tf.reshape(fixed, [-1])]
            flat += [tf.reshape(feature_ids.values, [-1]) for feature_ids in ragged]
            parts += flat
            sizes.append(tf.add_n([tf.size(part) for part in flat]) if flat else tf.constant(0))
        received, id_sizes = self._world.all_to_all(
            tf.concat(parts, axis=0), tf.stack(sizes), f"{name}.ids"
        )
        lengths = length_sizes = None
        if any(lookups.ragged for lookups in self._lookups):
            lengths, length_sizes = self._send_lengths(ids, name)
        if self._own.ragged:
            return self._unpack(received, lengths, length_sizes // len(self._own.ragged))
        if not self._own.fixed:
            return _Received(None, [], tf.zeros([self._world.size], tf.int32))
        num_ids = self._own.num_ids
        return _Received(tf.reshape(received, [-1, num_ids]), [], id_sizes // num_ids)

    def _send_lengths(self, ids: Mapping[int, Ids], name: str):
        parts = [ids[r.feature].lengths for rank in self._lookups for r in rank.ragged]
        batch_size = tf.size(parts[0])
        sizes = tf.stack([len(rank.ragged) * batch_size for rank in self._lookups])
        return self._world.all_to_all(tf.concat(parts, axis=0), sizes, f"{name}.lengths")

    def _unpack(self, ids, lengths, batch_sizes) -> _Received:
        """Sorts ids that were received rank by rank into one run per lookup."""
        ranks, count, num_ids = self._world.size, len(self._own.ragged), self._own.num_ids
        lengths = tf.split(lengths, tf.repeat(batch_sizes, count), num=ranks * count)
        sizes = []
        for rank in range(ranks):
            sizes.append(batch_sizes[rank] * num_ids)
            sizes += [tf.reduce_sum(part) for part in lengths[rank * count : (rank + 1) * count]]
        runs = tf.split(ids, tf.stack(sizes), num=ranks * (count + 1))
        fixed = None
        if self._own.fixed:
            fixed = tf.reshape(tf.concat(runs[:: count + 1], axis=0), [-1, num_ids])
        ragged = [
            Ids(
                self._own.signatures[lookup.feature],
                tf.concat(runs[1 + i :: count + 1], axis=0),
                tf.concat(lengths[i::count], axis=0),
            )
            for i, lookup in enumerate(self._own.ragged)
        ]
        return _Received(fixed, ragged, batch_sizes)

    def look_up(self, received: _Received) -> tuple[tf.Tensor | None, list[tf.Tensor]]:
        """Looks up ids of all ranks' samples in this rank's variables.

        Returns:
            (pooled vectors [global batch, width], None without any; vectors [ids of all ranks,
            columns] of each uncombined lookup).
        """
        runs, ragged = [received.fixed] * len(self._groups), iter(received.ragged)
        if len(self._groups) > 1 and received.fixed is not None:
            counts = [lookups.num_ids for _, lookups in self._groups]
            runs = tf.split(received.fixed, counts, axis=1)
        pooled, uncombined = [], []
        for (variable, lookups), run in zip(self._groups, runs, strict=True):
            vectors, rows = variable.look_up(lookups, run, [next(ragged) for _ in lookups.ragged])
            pooled += [] if vectors is None else [vectors]
            uncombined += rows
        return tf.concat(pooled, axis=1) if pooled else None, uncombined

    def return_vectors(
        self, pooled: tf.Tensor | None, received: _Received, name: str
    ) -> tf.Tensor | None:
        """Sends pooled vectors (see `look_up`) back to the ranks of their samples.

        Returns:
            [units, granularity], by rank, then by sample; None if no rank has pooled lookups.
        """
        if not any(lookups.pooled for lookups in self._lookups):
            return None
        is_read = pooled is not None
        if not is_read:
            pooled = tf.zeros([0, self._granularity], self._dtype)
        rows = tf.reshape(pooled, [-1, self._granularity])
        sizes = received.batch_sizes * (self._own.width // self._granularity)
        vectors, _ = self._exchange.send(rows, sizes, f"{name}.vectors", is_read=is_read)
        return tf.ensure_shape(vectors, [None, self._granularity])

    def _in_order(self, received: tf.Tensor, batch_size: tf.Tensor) -> tf.Tensor:
        """Concatenates the result of `return_vectors` to [batch, width], in feature order.

        One gather of units, and one in the gradient, which is a permutation.
        """
        units_of_rank = [lookups.width // self._granularity for lookups in self._lookups]
        columns = {}  # (feature, column_start) -> (rank, unit within the rank's row) of its units
        for rank, lookups in enumerate(self._lookups):
            first = 0
            for r, width in zip(lookups.pooled, lookups.widths, strict=True):
                count = width // self._granularity
                columns[r.feature, r.shard.column_start] = [(rank, first + i) for i in range(count)]
                first += count
        units = [unit for key in sorted(columns) for unit in columns[key]]
        total = len(units)
        dtype = tf.int32
        samples = tf.range(batch_size)[:, tf.newaxis]
        index = (
            batch_size * tf.constant([sum(units_of_rank[:rank]) for rank, _ in units], dtype)
            + samples * tf.constant([units_of_rank[rank] for rank, _ in units], dtype)
            + tf.constant([unit for _, unit in units], dtype)
        )
        # The inverse, rank by rank: the position of each unit in the output.
        position = {unit: i for i, unit in enumerate(units)}
        inverse = [
            samples * total + tf.constant([position[rank, i] for i in range(count)], dtype)
            for rank, count in enumerate(units_of_rank)
            if count
        ]
        inverse = tf.concat([tf.reshape(part, [-1]) for part in inverse], axis=0)
        received = tf.reshape(received, [-1, self._granularity])
        return tf.reshape(_permute(received, index, inverse), [-1, total * self._granularity])

    def _by_feature(self, received: tf.Tensor, batch_size: tf.Tensor) -> dict[int, tf.Tensor]:
        """Splits pooled vectors (see `return_vectors`) by feature, [batch, vectors, dim] each."""
        sizes = [batch_size * (r.width // self._granularity) for r in self._lookups]
        blocks = tf.split(received, sizes, axis=0)
        slices: dict[int, list] = {}
        for lookups, block in zip(self._lookups, blocks, strict=True):
            if not lookups.pooled:
                continue
            for r, part in lookups.split(tf.reshape(block, [-1, lookups.width])):
                vectors = lookups.signatures[r.feature].vectors
                part = tf.reshape(part, [-1, vectors, r.shard.columns])
                slices.setdefault(r.feature, []).append((r.shard.column_start, part))
        return {f: _concat_columns(parts) for f, parts in slices.items()}

    def return_uncombined(
        self, own: Sequence[tf.Tensor], received: _Received, counts: Mapping, name: str
    ) -> dict[int, tf.Tensor]:
        """Sends vectors of ragged ids without combiner back to the ranks of their samples.

        Args:
            own: Vectors [ids of all ranks, columns] of each of this rank's uncombined lookups.
            counts: Number of this rank's ids of each feature.

        Returns:
            Vectors [n, dim] of each feature.
        """
        uncombined = [r for lookups in self._lookups for r in lookups.uncombined]
        if not uncombined:
            return {}
        granularity, size = math.gcd(*(r.shard.columns for r in uncombined)), self._world.size
        outgoing: list[list[tf.Tensor]] = [[] for _ in range(size)]
        sizes = tf.zeros([size], tf.int32)
        lengths = [ids.lengths for ids in received.ragged if ids.signature.inner is None]
        for rows, of_samples in zip(own, lengths, strict=True):
            runs = tf.split(of_samples, received.batch_sizes, num=size)
            units_per_row = rows.shape[1] // granularity
            units = tf.stack([tf.reduce_sum(run) for run in runs]) * units_per_row
            parts = tf.split(tf.reshape(rows, [-1, granularity]), units, num=size)
            for rank, part in enumerate(parts):
                outgoing[rank].append(part)
            sizes += units
        parts = [part for of_rank in outgoing for part in of_rank]
        rows = tf.concat(parts, axis=0) if parts else tf.zeros([0, granularity], self._dtype)
        rows, _ = self._exchange.send(rows, sizes, f"{name}.uncombined", is_read=bool(parts))
        rows = tf.ensure_shape(rows, [None, granularity])
        units = tf.stack([counts[r.feature] * (r.shard.columns // granularity) for r in uncombined])
        slices: dict[int, list] = {}
        parts = tf.split(rows, units, num=len(uncombined))
        for r, part in zip(uncombined, parts, strict=True):
            rows = tf.reshape(part, [-1, r.shard.columns])
            slices.setdefault(r.feature, []).append((r.shard.column_start, rows))
        return {f: _concat_columns(parts) for f, parts in slices.items()}


def _concat_columns(slices: list[tuple[int, tf.Tensor]]) -> tf.Tensor:
    if len(slices) == 1:
        return slices[0][1]
    return tf.concat([part for _, part in sorted(slices, key=lambda item: item[0])], axis=-1)


def _permute(rows, index, inverse):
    """Returns rows[index]; the gradient is a gather as well, by `inverse`."""

    @tf.custom_gradient
    def permute(rows):
        def gradient(upstream):
            return tf.gather(tf.reshape(upstream, tf.shape(rows)), inverse)

        return tf.gather(rows, index), gradient

    return permute(rows)
