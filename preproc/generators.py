"""Sizes and distributions of the generators of raw files."""

import numpy as np


def settle_size(sizes, name: str, default: int, least: int, most: int, reason: str) -> None:
    """Completes a field of a frozen dataclass; raises ValueError if it is out of range."""
    if getattr(sizes, name) is None:
        object.__setattr__(sizes, name, default)
    value = getattr(sizes, name)
    if not least <= value <= most:
        raise ValueError(f"--{name} must be {least:,} to {most:,} ({reason}), got {value:,}")


def power_law(random: np.random.Generator, num_values, shape) -> np.ndarray:
    """Values (int64) 0 to num_values - 1, value v with a probability of about 1 / (v + 1)."""
    values = np.floor((num_values + 1) ** random.random(shape)).astype(np.int64) - 1
    return np.minimum(values, num_values - 1)  # a power may be rounded up


def group_bounds(num_groups: int, num_members: int) -> np.ndarray:
    """Returns the bounds [num_groups + 1] of groups of members; each has one, early ones more."""
    weights = 1 / np.sqrt(np.arange(1.0, num_groups + 1))
    further = np.cumsum(weights) / weights.sum() * (num_members - num_groups)
    ends = np.floor(further).astype(np.int64) + np.arange(1, num_groups + 1)
    ends[-1] = num_members
    return np.concatenate([[0], ends])
