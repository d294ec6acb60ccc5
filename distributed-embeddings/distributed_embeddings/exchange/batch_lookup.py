"""Lookup of a batch in distributed tables: ids in, the vectors of this rank's samples out."""

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import tensorflow as tf

from distributed_embeddings.exchange.group_variable import GroupVariable
from distributed_embeddings.exchange.ids import Ids, Signature
from distributed_embeddings.exchange.local import Local
from distributed_embeddings.exchange.row_exchange import RowExchange, unique_name
from distributed_embeddings.exchange.row_wise import RowWise
from distributed_embeddings.exchange.table_wise import TableWise
from distributed_embeddings.planner import DATA_PARALLEL, Plan


class Part(Protocol):
    """Lookup of some features, by the ids of a call; `name` is that of the collectives.

    Parts that exchange send ids to the ranks that hold their rows (`send_ids`), which look them up
    (`look_up`) and return the vectors (`return_vectors`).
    """

    def __call__(self, ids: Mapping[int, Ids], name: str) -> dict[int, tf.Tensor]:
        """Returns the vectors by feature."""

    def concatenated(self, ids: Mapping[int, Ids], name: str) -> tf.Tensor | None:
        """Returns the vectors of all features in one tensor; None if that would not save a copy."""


class BatchLookup:
    """Lookup of batches whose features (by number) have ids of given signatures.

    Its parts follow from the plan.

    Args:
        variables: Of each of this rank's groups.
        row_wise: Parts of the row-sliced tables.
        name: Of the collectives.
        dp_input: Whether a call gets this rank's samples; False: all ranks'.
        dtype: Of the vectors.
        signatures: Of the ids of all features.
    """

    def __init__(
        self,
        plan: Plan,
        exchange: RowExchange,
        variables: Sequence[GroupVariable],
        row_wise: Sequence[RowWise],
        *,
        name: str,
        dp_input: bool,
        dtype: tf.DType,
        signatures: Mapping[int, Signature],
    ):
        self._plan, self._world, self._name = plan, exchange.world, name
        self.signatures = signatures
        local = plan.lookups(self._world.rank, DATA_PARALLEL)
        exchanged = [plan.lookups(rank) for rank in range(self._world.size)]
        if self._world.size == 1 and all(len(slices) <= 1 for slices in plan.column_slices):
            local += exchanged.pop()  # columns of a table in several slices are put together
        self._parts: list[Part] = []
        if any(exchanged):
            self._parts.append(
                TableWise(exchange, exchanged, variables, signatures, dp_input, dtype)
            )
        if local:
            self._parts.append(Local(local, variables, signatures))
        self._parts += row_wise

    def __call__(self, ids: Mapping[int, Ids], concatenate: bool):
        """Returns the outputs of all features, see `DistributedEmbedding.call`."""
        name = unique_name(self._name) if self._world.size > 1 else ""
        if concatenate and len(self._parts) == 1:
            output = self._parts[0].concatenated(ids, name)
            if output is not None:
                return output
        outputs: dict[int, tf.Tensor] = {}
        for part in self._parts:
            outputs |= part(ids, name)
        ordered = [self._shaped(f, outputs[f], ids) for f in range(len(outputs))]
        if not concatenate:
            return ordered
        return tf.concat([_flat(f, output) for f, output in enumerate(ordered)], axis=1)

    def _shaped(self, f: int, output: tf.Tensor, ids: Mapping[int, Ids]):
        plan, inner = self._plan, self.signatures[f].inner
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
