"""Requests of a batch: lookups of a rank, for ids of given signatures."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from distributed_embeddings.exchange.ids import Ids, Signature
from distributed_embeddings.ops.embedding_bag import Bags, Columns, splits_of
from distributed_embeddings.planner import Lookup, Shard


class Request(NamedTuple):
    """Lookup of a feature in a shard (see `planner.Lookup`), for ids of one signature.

    Attributes:
        width: Elements per sample; of ragged ids without combiner per id.
    """

    feature: int
    group: int
    row_offset: int
    shard: Shard
    signature: Signature
    width: int


class Requests:
    """Lookups of a rank in the order of the exchange.

    The order: by group, fixed ids before ragged ones, ragged ids without a combiner last.

    Attributes:
        pooled: Requests whose vectors form one row per sample, [batch, width].
        uncombined: Requests with ragged ids and no combiner, whose vectors are exchanged apart.
        num_ids: Fixed ids per sample.
        width: Elements of the pooled vectors of a sample.
    """

    def __init__(self, lookups: Sequence[Lookup], signatures: Mapping[int, Signature]):
        requests = []
        for lookup in lookups:
            signature, shard = signatures[lookup.feature], lookup.shard
            width = signature.vectors * shard.columns
            requests.append(
                Request(lookup.feature, lookup.group, lookup.row_offset, shard, signature, width)
            )
        self.ordered = sorted(
            requests, key=lambda r: (r.group, r.signature.ragged, r.signature.inner is None)
        )
        self.fixed = [r for r in self.ordered if not r.signature.ragged]
        self.ragged = [r for r in self.ordered if r.signature.ragged]
        self.pooled = [r for r in self.ordered if r.signature.inner is not None]
        self.uncombined = [r for r in self.ordered if r.signature.inner is None]
        self.num_ids = sum(r.signature.num_ids for r in self.fixed)
        self.width = sum(r.width for r in self.pooled)

    def select(self, ids: Mapping[int, Ids]) -> tuple[tf.Tensor | None, list[Ids]]:
        """Returns (fixed ids [batch, num_ids], None without any; ragged ids of each request)."""
        fixed = [ids[r.feature].values for r in self.fixed]
        return tf.concat(fixed, axis=1) if fixed else None, [ids[r.feature] for r in self.ragged]

    def bags(self, fixed: tf.Tensor | None, ragged: Sequence[Ids]) -> list[Bags]:
        """Returns the bags of one group's ids: all fixed ones together, then each ragged request.

        Args:
            fixed, ragged: See `select`.
        """
        bags = [Bags(fixed, _columns(self.fixed))] if self.fixed else []
        for r, ids in zip(self.ragged, ragged, strict=True):
            if r.signature.combiner is None:  # a bag per id
                bags.append(Bags(ids.values[:, tf.newaxis], _columns([r])))
            else:
                bags.append(Bags(ids.values, _columns([r]), splits_of(ids.lengths)))
        return bags

    def split(self, pooled: tf.Tensor) -> list[tuple[Request, tf.Tensor]]:
        """Splits pooled vectors [batch, width] into those of each request."""
        parts = tf.split(pooled, [r.width for r in self.pooled], axis=1)
        return list(zip(self.pooled, parts, strict=True))


def by_group(lookups: Sequence[Lookup]) -> list[list[Lookup]]:
    """Returns the lookups of each group, in the order of the groups."""
    ordered = sorted(lookups, key=lambda lookup: lookup.group)
    runs = itertools.groupby(ordered, key=lambda lookup: lookup.group)
    return [list(run) for _, run in runs]


def _columns(requests: Sequence[Request]) -> Columns:
    """Returns the output vectors of requests, all fixed, or a single ragged one."""
    columns = []
    for r in requests:
        hotness, mean = r.signature.hotness or 1, r.signature.combiner == "mean"
        column = (hotness, r.row_offset, r.shard.rows, mean)
        columns += [column] * (1 if r.signature.ragged else r.signature.vectors)
    return Columns(*zip(*columns, strict=True))
