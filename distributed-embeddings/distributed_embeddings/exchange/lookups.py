"""Lookups of a rank, for ids of given signatures."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import tensorflow as tf

from distributed_embeddings.exchange.ids import Ids, Signature
from distributed_embeddings.ops.embedding_bag import Bags, splits_of
from distributed_embeddings.planner import Lookup


class Lookups:
    """Lookups of a rank in the order of the exchange.

    The order: by group, fixed ids before ragged ones, ragged ids without a combiner last.

    Attributes:
        signatures: Of the ids of all features.
        ordered: All lookups; `fixed` and `ragged` are those with such ids.
        pooled: Those whose vectors form one row per sample, [batch, width].
        uncombined: Those with ragged ids and no combiner, whose vectors are exchanged apart.
        num_ids: Fixed ids per sample.
        widths: For each pooled one the elements of a sample's vectors.
    """

    def __init__(self, lookups: Sequence[Lookup], signatures: Mapping[int, Signature]):
        self.signatures = signatures
        self.ordered = sorted(
            lookups,
            key=lambda x: (
                x.group,
                signatures[x.feature].ragged,
                signatures[x.feature].inner is None,
            ),
        )
        self.fixed = [x for x in self.ordered if not signatures[x.feature].ragged]
        self.ragged = [x for x in self.ordered if signatures[x.feature].ragged]
        self.pooled = [x for x in self.ordered if signatures[x.feature].inner is not None]
        self.uncombined = [x for x in self.ordered if signatures[x.feature].inner is None]
        self.num_ids = sum(signatures[x.feature].num_ids for x in self.fixed)
        self.widths = [signatures[x.feature].vectors * x.shard.columns for x in self.pooled]

    @property
    def width(self) -> int:
        """Elements of the pooled vectors of a sample."""
        return sum(self.widths)

    def select(self, ids: Mapping[int, Ids]) -> tuple[tf.Tensor | None, list[Ids]]:
        """Returns (fixed ids [batch, num_ids], None without any; ragged ids of each lookup)."""
        fixed = [ids[x.feature].values for x in self.fixed]
        return tf.concat(fixed, axis=1) if fixed else None, [ids[x.feature] for x in self.ragged]

    def bags(self, fixed: tf.Tensor | None, ragged: Sequence[Ids]) -> list[Bags]:
        """Returns the bags of one group's ids: all fixed ones together, then each ragged lookup.

        Args:
            fixed, ragged: See `select`.
        """
        bags = [Bags(fixed, *self._columns(self.fixed))] if self.fixed else []
        for lookup, ids in zip(self.ragged, ragged, strict=True):
            columns = self._columns([lookup])
            if ids.signature.combiner is None:  # a bag per id
                bags.append(Bags(ids.values[:, tf.newaxis], *columns))
            else:
                bags.append(Bags(ids.values, *columns, splits_of(ids.lengths)))
        return bags

    def _columns(self, lookups: Sequence[Lookup]) -> Iterator[tuple]:
        """Returns hotness, row_offsets, num_rows and mean of bags, see `Bags`.

        Args:
            lookups: All with fixed ids, or a single one with ragged ids.
        """
        columns = []
        for x in lookups:
            signature = self.signatures[x.feature]
            hotness, mean = signature.hotness or 1, signature.combiner == "mean"
            column = (hotness, x.row_offset, x.shard.rows, mean)
            columns += [column] * (1 if signature.ragged else signature.vectors)
        return zip(*columns, strict=True)

    def split(self, pooled: tf.Tensor) -> list[tuple[Lookup, tf.Tensor]]:
        """Splits pooled vectors [batch, width] into those of each lookup."""
        parts = tf.split(pooled, self.widths, axis=1) if len(self.pooled) > 1 else [pooled]
        return list(zip(self.pooled, parts, strict=True))


def by_group(lookups: Sequence[Lookup]) -> list[list[Lookup]]:
    """Returns the lookups of each group, in the order of the groups."""
    ordered = sorted(lookups, key=lambda lookup: lookup.group)
    runs = itertools.groupby(ordered, key=lambda lookup: lookup.group)
    return [list(run) for _, run in runs]
