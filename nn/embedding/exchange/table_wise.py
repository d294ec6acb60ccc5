"""The all-to-alls of hybrid-parallel tables: ids to the ranks that own them, vectors back.

Rows travel in units (the greatest common width), counted in int32, so that an exchange holds up to
2^31 units and not elements. The receiver of anything knows its size from the plan and from the
sizes of what it received before: nothing is gathered to agree on sizes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from nn.embedding.ids import Ids, Signature
from nn.embedding.lookup import Slot


class Request(NamedTuple):
    """A feature's look-up on the rank that owns (columns of) its table.

    Attributes:
      feature: number of the feature.
      group: number of the rank's variable.
      signature: of the feature's ids.
      columns: width of a vector.
      column_start: column of the table at which it starts.
      slot: its place in the variable.
    """

    feature: int
    group: int
    signature: Signature
    columns: int
    column_start: int
    slot: Slot

    @property
    def width(self) -> int:
        """Elements a sample."""
        return self.signature.vectors * self.columns


class Requests:
    """A rank's look-ups in the order in which they travel: by group, fixed ids before ragged ones.

    Attributes:
      fixed, ragged: of fixed and ragged ids.
      joined: whose vectors stand side by side in a row a sample: [batch, width].
      loose: ragged ids without combiner, whose vectors travel apart.
    """

    def __init__(self, requests: Sequence[Request]):
        ordered = sorted(requests, key=lambda r: (r.group, r.signature.ragged))
        self.fixed = [r for r in ordered if not r.signature.ragged]
        self.ragged = [r for r in ordered if r.signature.ragged]
        self.joined = [r for r in ordered if r.signature.inner is not None]
        self.loose = [r for r in ordered if r.signature.inner is None]
        self.num_ids = sum(r.signature.num_ids for r in self.fixed)
        self.width = sum(r.width for r in self.joined)


class Received(NamedTuple):
    """Ids of all ranks' samples, for one rank's look-ups.

    Attributes:
      fixed: [global batch, num_ids], None without fixed ids.
      ragged: ids of each of `Requests.ragged`.
      batch_sizes: int32 [world size], samples of each rank.
    """

    fixed: tf.Tensor | None
    ragged: list[Ids]
    batch_sizes: tf.Tensor


def exchange_rows(world, rows, sizes, name: str, wire_dtype=None, anchor=None, gradient_dtype=None):
    """Sends rows to all ranks; the gradient sends their gradients back.

    TensorFlow asks for a gradient only where a trained variable took part. On a rank whose rows
    come from none (no table, or a frozen one) the anchor is that variable: else the other ranks
    would wait for it.

    Args:
      rows: [n, width], those for rank 0 first.
      sizes: int32 [world size], rows for each rank.
      name: unique among the exchanges under way, equal on all ranks.
      wire_dtype: dtype on the way; None for that of the rows. Gradients of a float16 exchange of
        float32 rows go as bfloat16: they are mean over a batch, and float16 ends at 6e-8.
      anchor: an empty variable that is trained on every rank, if any of the rows is on any.
      gradient_dtype: dtype of gradients on their way; None: as `wire_dtype` says.

    Returns:
      (received [m, width], sizes received int32 [world size]).
    """
    forth = back = wire_dtype or rows.dtype
    if forth == tf.float16 and rows.dtype == tf.float32:
        back = tf.bfloat16
    back = gradient_dtype or back

    @tf.custom_gradient
    def exchange(rows, anchor):
        received, received_sizes = world.all_to_all(tf.cast(rows, forth), sizes, name)

        def gradient(upstream, _):
            upstream = tf.reshape(tf.cast(upstream, back), tf.shape(received))
            returned, _ = world.all_to_all(upstream, received_sizes, f"{name}.gradient")
            return tf.cast(returned, rows.dtype), tf.zeros_like(anchor)

        return (tf.cast(received, rows.dtype), received_sizes), gradient

    anchor = tf.zeros([0]) if anchor is None else tf.convert_to_tensor(anchor)
    return exchange(rows, anchor)


class TableParallel:
    """Exchange for tables of which one rank holds all rows (of some columns).

    Args:
      world: the ranks.
      requests: for each rank its look-ups.
      name: prefix of the exchanges' names.
      wire_dtype: dtype of vectors on their way; None for their own.
      anchor: see `exchange_rows`.
    """

    def __init__(
        self, world, requests: Sequence[Requests], name: str, wire_dtype=None, anchor=None
    ):
        self.anchor = anchor
        self.world = world
        self.requests = list(requests)
        self.own = self.requests[world.rank]
        self.name = name
        self.wire_dtype = wire_dtype
        widths = [r.width for requests in self.requests for r in requests.joined]
        self.unit = math.gcd(*[w for w in widths if w]) or 1

    def send_ids(self, features: Mapping[int, Ids]) -> Received:
        """Sends this rank's samples' ids to the owners of the tables.

        Args:
          features: ids of each feature of this rank's batch, by its number.
        """
        if self.world.size == 1:
            return self.own_ids(features)
        parts, sizes = [], []
        for requests in self.requests:
            mine = [tf.reshape(features[r.feature].values, [-1]) for r in requests.ragged]
            if requests.fixed:
                fixed = tf.concat([features[r.feature].values for r in requests.fixed], axis=1)
                mine.insert(0, tf.reshape(fixed, [-1]))
            parts += mine
            sizes.append(tf.add_n([tf.size(part) for part in mine]) if mine else tf.constant(0))
        ids, id_sizes = self.world.all_to_all(
            tf.concat(parts, axis=0), tf.stack(sizes), f"{self.name}.ids"
        )
        lengths = length_sizes = None
        if any(requests.ragged for requests in self.requests):
            lengths, length_sizes = self._send_lengths(features)
        if not self.own.ragged:
            if not self.own.fixed:
                return Received(None, [], tf.zeros([self.world.size], tf.int32))
            return Received(
                tf.reshape(ids, [-1, self.own.num_ids]), [], id_sizes // self.own.num_ids
            )
        return self._unpack(ids, lengths, length_sizes // len(self.own.ragged))

    def own_ids(self, features: Mapping[int, Ids]) -> Received:
        """Ids that already are those of all ranks' samples, equally many of each."""
        fixed = [features[r.feature].values for r in self.own.fixed]
        ragged = [features[r.feature] for r in self.own.ragged]
        batch_sizes = tf.zeros([self.world.size], tf.int32)
        if fixed or ragged:
            total = tf.shape(fixed[0])[0] if fixed else tf.size(ragged[0].lengths)
            batch_sizes += total // self.world.size
        return Received(tf.concat(fixed, axis=1) if fixed else None, ragged, batch_sizes)

    def _send_lengths(self, features: Mapping[int, Ids]):
        parts = [features[r.feature].lengths for rank in self.requests for r in rank.ragged]
        batch_size = tf.size(parts[0])
        sizes = tf.stack([len(rank.ragged) * batch_size for rank in self.requests])
        return self.world.all_to_all(tf.concat(parts, axis=0), sizes, f"{self.name}.lengths")

    def _unpack(self, ids, lengths, batch_sizes) -> Received:
        """Sorts what came rank by rank into one run a look-up."""
        ranks, count = self.world.size, len(self.own.ragged)
        lengths = tf.split(lengths, tf.repeat(batch_sizes, count), num=ranks * count)
        sizes = []
        for rank in range(ranks):
            sizes.append(batch_sizes[rank] * self.own.num_ids)
            sizes += [tf.reduce_sum(part) for part in lengths[rank * count : (rank + 1) * count]]
        runs = tf.split(ids, tf.stack(sizes), num=ranks * (count + 1))
        fixed = None
        if self.own.fixed:
            fixed = tf.reshape(tf.concat(runs[:: count + 1], axis=0), [-1, self.own.num_ids])
        ragged = [
            Ids(
                tf.concat(runs[1 + i :: count + 1], axis=0),
                tf.concat(lengths[i::count], axis=0),
            )
            for i in range(count)
        ]
        return Received(fixed, ragged, batch_sizes)

    def return_vectors(self, vectors: tf.Tensor | None, batch_sizes, dtype) -> tf.Tensor:
        """Sends vectors back to the ranks of their samples.

        Args:
          vectors: [global batch, width of this rank's joined look-ups]; None without any.
          batch_sizes: int32 [world size], samples of each rank.
          dtype: dtype of vectors.

        Returns:
          [units, unit]: rank 0's row of each of this rank's samples, then rank 1's, and so on.
        """
        if vectors is None:
            vectors = tf.zeros([0, self.unit], dtype)
        rows = tf.reshape(vectors, [-1, self.unit])
        if self.world.size == 1:
            return rows
        sizes = batch_sizes * (self.own.width // self.unit)
        received, _ = exchange_rows(
            self.world, rows, sizes, f"{self.name}.vectors", self.wire_dtype, self.anchor
        )
        return tf.ensure_shape(received, [None, self.unit])

    def in_order(self, received: tf.Tensor, batch_size: tf.Tensor) -> tf.Tensor:
        """Joined vectors as [batch, width of all features], features in their order.

        One gather of units, and one in the gradient, which is a permutation.
        """
        place = {}  # (feature, column_start) -> (rank, unit within the rank's row)
        units_of_rank = [requests.width // self.unit for requests in self.requests]
        for rank, requests in enumerate(self.requests):
            first = 0
            for r in requests.joined:
                place[r.feature, r.column_start] = (rank, first, r)
                first += r.width // self.unit
        rank_of_unit, unit_of_row = [], []
        for key in sorted(place):
            rank, first, r = place[key]
            count = r.width // self.unit
            rank_of_unit += [rank] * count
            unit_of_row += range(first, first + count)
        total = len(unit_of_row)
        if self.world.size == 1 and unit_of_row == list(range(total)):
            return tf.reshape(received, [-1, total * self.unit])
        dtype = tf.int32
        starts = [sum(units_of_rank[:rank]) for rank in rank_of_unit]
        strides = [units_of_rank[rank] for rank in rank_of_unit]
        samples = tf.range(batch_size)[:, tf.newaxis]
        index = (
            batch_size * tf.constant(starts, dtype)
            + samples * tf.constant(strides, dtype)
            + tf.constant(unit_of_row, dtype)
        )
        # The way back, rank by rank: which unit of which sample goes where.
        target = {}
        for position, (rank, unit) in enumerate(zip(rank_of_unit, unit_of_row, strict=True)):
            target[rank, unit] = position
        inverse = tf.concat(
            [
                tf.reshape(
                    samples * total
                    + tf.constant([target[rank, unit] for unit in range(count)], dtype),
                    [-1],
                )
                for rank, count in enumerate(units_of_rank)
                if count
            ],
            axis=0,
        )
        return tf.reshape(_permute(received, index, inverse), [-1, total * self.unit])

    def by_feature(self, received: tf.Tensor, batch_size: tf.Tensor) -> dict[int, tf.Tensor]:
        """Joined vectors of each feature, [batch, vectors, dim]."""
        blocks = tf.split(
            received, [batch_size * (r.width // self.unit) for r in self.requests], axis=0
        )
        pieces: dict[int, list] = {}
        for requests, block in zip(self.requests, blocks, strict=True):
            if not requests.joined:
                continue
            rows = tf.reshape(block, [-1, requests.width])
            parts = tf.split(rows, [r.width for r in requests.joined], axis=1)
            for r, part in zip(requests.joined, parts, strict=True):
                part = tf.reshape(part, [-1, r.signature.vectors, r.columns])
                pieces.setdefault(r.feature, []).append((r.column_start, part))
        return {f: join_columns(found) for f, found in pieces.items()}

    def return_loose(self, own, own_lengths, batch_sizes, counts, dtype) -> dict[int, tf.Tensor]:
        """Vectors of ragged ids without combiner, back to their samples, {feature: [n, dim]}.

        Args:
          own: [ids of all ranks, columns] of each of this rank's loose look-ups.
          own_lengths: int32 [global batch] of each.
          batch_sizes: int32 [world size], samples of each rank.
          counts: of each feature how many ids this rank has.
          dtype: of the vectors.
        """
        if self.world.size == 1:
            return {r.feature: rows for r, rows in zip(self.own.loose, own, strict=True)}
        loose = [r for requests in self.requests for r in requests.loose]
        if not loose:
            return {}
        unit = math.gcd(*(r.columns for r in loose))
        of_rank: list[list[tf.Tensor]] = [[] for _ in self.requests]
        sizes = tf.zeros([self.world.size], tf.int32)
        for r, rows, lengths in zip(self.own.loose, own, own_lengths, strict=True):
            runs = tf.split(lengths, batch_sizes, num=self.world.size)
            units = tf.stack([tf.reduce_sum(run) for run in runs]) * (r.columns // unit)
            parts = tf.split(tf.reshape(rows, [-1, unit]), units, num=self.world.size)
            for found, part in zip(of_rank, parts, strict=True):
                found.append(part)
            sizes += units
        outgoing = [part for parts in of_rank for part in parts]
        received, _ = exchange_rows(
            self.world,
            tf.concat(outgoing, axis=0) if outgoing else tf.zeros([0, unit], dtype),
            sizes,
            f"{self.name}.loose",
            self.wire_dtype,
            self.anchor,
        )
        received = tf.ensure_shape(received, [None, unit])
        units = [counts[r.feature] * (r.columns // unit) for r in loose]
        pieces: dict[int, list] = {}
        for r, part in zip(loose, tf.split(received, tf.stack(units), num=len(units)), strict=True):
            rows = tf.reshape(part, [-1, r.columns])
            pieces.setdefault(r.feature, []).append((r.column_start, rows))
        return {f: join_columns(found) for f, found in pieces.items()}


def join_columns(pieces: list[tuple[int, tf.Tensor]]) -> tf.Tensor:
    """Column slices side by side, in the order of their first column."""
    if len(pieces) == 1:
        return pieces[0][1]
    return tf.concat([part for _, part in sorted(pieces, key=lambda piece: piece[0])], axis=-1)


def _permute(rows, index, inverse):
    """rows[index], whose gradient is a gather as well: `inverse` undoes `index`."""

    @tf.custom_gradient
    def permute(rows):
        def gradient(upstream):
            return tf.gather(tf.reshape(upstream, tf.shape(rows)), inverse)

        return tf.gather(rows, index), gradient

    return permute(rows)
