"""Batches: the interface between loaders and models."""

from typing import Any, NamedTuple


class RaggedIds(NamedTuple):
    """Ids of a feature whose samples differ in length; sample i has those from `row_splits[i]` to
    `row_splits[i + 1] - 1`, possibly none.

    A pair instead of `tf.RaggedTensor.from_row_splits(*ids)`, because tf.data copies a RaggedTensor
    id by id into a variant and out of it, which took most of a batch's time.
    """

    values: Any  # int32 or int64 [sum of lengths]
    row_splits: Any  # int32 [samples + 1]


class Inputs(NamedTuple):
    """Model inputs of `batch` samples, this rank's share of the global batch.

    numerical: float32 `[batch, num_numerical]`; `num_numerical` may be 0.
    categorical: one integer tensor per categorical feature in channel order, `[batch, hotness_f]`,
        int64 where the feature's dtype is int64 and int32 otherwise; `RaggedIds` where samples
        differ in their number of ids. May be empty. With model-parallel input (`global_features` of
        the loader) one per entry of that list instead, `[batch * world_size, hotness_f]`: the
        global batch, rank by rank.
    """

    numerical: Any
    categorical: tuple


class SequenceInputs(NamedTuple):
    """Inputs of a sequence model, `batch` samples; one tensor per feature in channel order.

    int64 where the cardinality needs it and int32 otherwise. Histories are right-aligned: the most
    recent item is at the last position, preceded by zeros if there are fewer. Features of `target`,
    `positive` and `negative` with the same number are ids of one kind.

    """

    user: tuple  # [batch, 1] each; may be empty
    target: tuple  # the item that the sample is about, [batch, 1] each
    positive: tuple  # the items of the user's history, [batch, history_length] each
    negative: tuple  # random items, of the same shapes; empty where the loader reads none


class InteractionInputs(NamedTuple):
    """Ids of a model of users and items, int32 `[batch]` each."""

    user: Any
    item: Any


class Batch(NamedTuple):
    """Samples of one step; `batch` is the same on all ranks.

    labels: float32 `[batch, 1]`; None from a loader without labels (samples to predict).
    weights: float32 `[batch, 1]`; 0.0 for padding that evens out the ranks, and for a real sample
        `batch * world_size / real samples of the global batch`: 1.0 where nothing is padded. So the
        mean over ranks of `reduce_mean(weights * losses)` is the mean loss of the real samples of
        the global batch, and averaged gradients are those of one process. To count samples, use
        `weights > 0`.
    """

    inputs: Inputs | SequenceInputs | InteractionInputs
    labels: Any
    weights: Any
