"""What a loader yields and a model receives: one named tuple per batch."""

from typing import Any, NamedTuple


class Inputs(NamedTuple):
    """Model inputs of `batch` rows.

    numerical: float32 `[batch, num_numerical]`; `num_numerical` may be 0.
    categorical: one integer tensor per categorical feature in channel order, `[batch, hotness_f]`,
        int64 where the feature's dtype is int64 and int32 otherwise. The tuple may be empty.
    """

    numerical: Any
    categorical: tuple


class Batch(NamedTuple):
    """Rows of one step.

    labels: float32 `[batch, 1]`.
    weights: float32 `[batch, 1]`; 1.0 for a real row, 0.0 for padding that evens out the ranks.
    """

    inputs: Inputs
    labels: Any
    weights: Any
