"""Batches: the interface between loaders and models."""

from typing import Any, NamedTuple


class RaggedIds(NamedTuple):
    """Ids of a feature whose rows differ in length; row i has those from `row_splits[i]` to
    `row_splits[i + 1] - 1`, possibly none.

    `tf.RaggedTensor.from_row_splits(*ids)` is the same. A pair, because tf.data copies a
    RaggedTensor id by id into a variant and out of it, which took most of a batch's time.

    values: int32 or int64 `[sum of lengths]`.
    row_splits: int32 `[rows + 1]`.
    """

    values: Any
    row_splits: Any


class Inputs(NamedTuple):
    """Model inputs of `batch` rows, this rank's share of the global batch.

    numerical: float32 `[batch, num_numerical]`; `num_numerical` may be 0.
    categorical: one integer tensor per categorical feature in channel order, `[batch, hotness_f]`,
        int64 where the feature's dtype is int64 and int32 otherwise. The tuple may be empty. With
        model-parallel input (`global_features` of the loader) one per entry of that list instead,
        `[batch * world_size, hotness_f]`: the global batch, rank by rank. Features whose rows
        differ in their number of ids are `RaggedIds` of the same rows.
    """

    numerical: Any
    categorical: tuple


class SequenceInputs(NamedTuple):
    """Inputs of a sequence model, `batch` rows; one tensor per feature in the order of its channel.

    int64 where the cardinality needs it and int32 otherwise. Histories are right-aligned: the most
    recent item is at the last position, preceded by zeros if there are fewer. The
    features of `target`, `positive` and `negative` with the same number are ids of one kind.

    user: `[batch, 1]` each; may be empty.
    target: the item that the row asks about, `[batch, 1]` each.
    positive: the items of the user's history, `[batch, history_length]` each.
    negative: as many items that were drawn at random, of the same shapes; empty where the loader
        does not read them.
    """

    user: tuple
    target: tuple
    positive: tuple
    negative: tuple


class InteractionInputs(NamedTuple):
    """Inputs of a model of users and items, `batch` rows: is this item one for this user?

    user, item: ids, int32 `[batch]`.
    """

    user: Any
    item: Any


class Batch(NamedTuple):
    """Rows of one step; `batch` is the same on all ranks.

    inputs: `SequenceInputs` from a loader of histories, `InteractionInputs` from one of users and
        items.
    labels: float32 `[batch, 1]`; None from a loader without labels (rows to predict).
    weights: float32 `[batch, 1]`; 0.0 for padding that evens out the ranks, and for a real row
        `batch * world_size / real rows of the global batch`: 1.0 where nothing is padded. So the
        mean over ranks of `reduce_mean(weights * losses)` is the mean loss of the real rows of the
        global batch, and averaged gradients are those of one process. To count rows, ask
        `weights > 0`.
    """

    inputs: Inputs | SequenceInputs | InteractionInputs
    labels: Any
    weights: Any
