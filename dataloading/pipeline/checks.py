"""Checks of stored values: ids in range, finite numerical features, labels of 0 and 1.

Each check takes values of any shape and a function that makes the first half of the message, which
feature, file and row it is, from a mask of the bad values.
"""

from collections.abc import Callable

import numpy as np

Where = Callable[[np.ndarray], str]


def check_numericals(values: np.ndarray, where: Where) -> None:
    """Raises ValueError unless all are finite, also as the float32 that the model gets."""
    if _has_non_finite(values):
        raise ValueError(
            where(~_finite(values))
            + "; numerical features must be finite, a NaN silently corrupts "
            "the weights. Write 0 or a mean for a missing value when preparing the data"
        )


def check_ids(ids: np.ndarray, cardinality: int, where: Where) -> None:
    """Raises ValueError unless all lie in [0, cardinality)."""
    # One pass: seen as unsigned, negative ids are the largest.
    if ids.size and int(ids.view(f"u{ids.itemsize}").max()) >= cardinality:
        raise ValueError(
            where((ids < 0) | (ids >= cardinality)) + f"; ids lie in [0, {cardinality}). Raise the "
            "feature's cardinality in the feature spec, or give such values a known id "
            "when preparing the data"
        )


def check_labels(labels: np.ndarray, where: Where) -> None:
    """Raises ValueError unless all are 0 or 1."""
    bad = (labels != 0) & (labels != 1)
    if bad.any():
        raise ValueError(
            where(bad) + "; labels are 0 or 1 (bool is a byte of 0 or 1). Prepare the file again"
        )


def _has_non_finite(values: np.ndarray) -> bool:
    """Returns whether there is NaN or infinity; in float16 by the exponent bits, because NumPy
    converts it one value at a time."""
    if values.dtype == np.float16:
        exponent = np.uint16(0x7C00)
        return bool(((values.view(np.uint16) & exponent) == exponent).any())
    return not _finite(values).all()


def _finite(values: np.ndarray) -> np.ndarray:
    return np.abs(values.astype(np.float64, copy=False)) <= np.finfo(np.float32).max
