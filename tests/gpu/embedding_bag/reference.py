"""Embedding bags, their gradient and the optimizers in float64, and how far a kernel may be off."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tests.gpu import reference

_FLOAT32_ULP = 2.0**-23
# Largest error of rounding to a dtype: relative, and absolute where numbers are subnormal.
_ROUNDING = {
    "float32": (2.0**-24, 2.0**-150),
    "float16": (2.0**-11, 2.0**-25),
    "bfloat16": (2.0**-8, 2.0**-134),
}


class Pairs(NamedTuple):
    """The ids of a batch, one by one and in their order."""

    bags: np.ndarray  # [num_ids] int64
    rows: np.ndarray  # [num_ids] int64 of the table; -1: out of range
    factors: np.ndarray  # [num_ids] float64
    num_bags: int


class Estimate(NamedTuple):
    """Values in float64, and the largest error of each that float32 sums explain."""

    values: np.ndarray
    errors: np.ndarray


def estimated(values, magnitudes, num_terms) -> Estimate:
    """The result of num_terms operations in float32 on numbers of these magnitudes."""
    return Estimate(values, _FLOAT32_ULP * (num_terms + 4) * magnitudes)


def forward(table: np.ndarray, pairs: Pairs) -> Estimate:
    """Returns the output [bags, dim] for a table [rows, dim] in float64."""
    known = pairs.rows >= 0
    terms = pairs.factors[known, None] * table[pairs.rows[known]]
    return _sum(terms, pairs.bags[known], pairs.num_bags)


def gradient(uses: Sequence[Pairs], upstream: Sequence[np.ndarray]) -> tuple[np.ndarray, Estimate]:
    """Returns the rows that occur, ascending, and their gradients [rows, dim].

    Args:
      uses: ids of each use of the table.
      upstream: gradients of their outputs, [bags, dim] each, in float64.
    """
    rows = np.concatenate([pairs.rows for pairs in uses])
    terms = np.concatenate(
        [pairs.factors[:, None] * g[pairs.bags] for pairs, g in zip(uses, upstream, strict=True)]
    )
    unique, places = np.unique(rows[rows >= 0], return_inverse=True)
    return unique, _sum(terms[rows >= 0], places, len(unique))


def _sum(terms: np.ndarray, targets: np.ndarray, count: int) -> Estimate:
    values, magnitudes = np.zeros((2, count, terms.shape[1]))
    np.add.at(values, targets, terms)
    np.add.at(magnitudes, targets, np.abs(terms))
    return estimated(values, magnitudes, np.bincount(targets, minlength=count)[:, None])


def ordered_gradient(
    uses: Sequence[Pairs], upstream: Sequence[np.ndarray], stretch: int
) -> np.ndarray:
    """Returns the gradients of the rows that occur, bit by bit, in float32.

    Pairs are sorted by row, those of a row in their order; a row's are added within each stretch of
    the sorted pairs, and then these sums one after the other.
    """
    rows = np.concatenate([pairs.rows for pairs in uses])
    terms = np.concatenate(
        [
            pairs.factors[:, None].astype(np.float32) * g[pairs.bags].astype(np.float32)
            for pairs, g in zip(uses, upstream, strict=True)
        ]
    )
    last = rows.max(initial=0) + 1
    order = np.argsort(np.where(rows < 0, last, rows), kind="stable")
    sums: dict[int, dict[int, np.ndarray]] = {}
    for place, pair in enumerate(order[: int((rows >= 0).sum())]):
        pieces = sums.setdefault(int(rows[pair]), {})
        piece = pieces.setdefault(place // stretch, np.zeros(terms.shape[1], np.float32))
        piece += terms[pair]
    return np.array([np.add.accumulate(list(pieces.values()))[-1] for pieces in sums.values()])


# ---- Optimizers ---------------------------------------------------------------------------------


class Scalars(NamedTuple):
    """Numbers of the optimizers, in the interface's order."""

    gradient_factor: float = 0.5
    rate: float = 0.125
    kept: float = 0.75
    epsilon: float = 0.0625
    beta1: float = 0.875
    beta2: float = 0.96875


class Step(NamedTuple):
    """Rows after an update: weights [rows, dim], and the slots that the optimizer has."""

    weights: Estimate
    slots: list[Estimate]


def step(optimizer: str, s: Scalars, weights, slots, g: Estimate) -> Step:
    """Moves rows by their gradients; all in float64 and [rows, dim], row-wise slots [rows].

    Slots are positive, so that no root is close to 0.
    """
    g = Estimate(s.gradient_factor * g.values, s.gradient_factor * g.errors)
    size = np.abs(g.values) + g.errors
    moved: list[Estimate] = []
    if optimizer == "sgd":
        direction, divisor, divisor_error = g, np.ones_like(weights), 0.0
    elif optimizer in ("adagrad", "row_wise_adagrad"):
        squares = Estimate(g.values**2, 2 * size * g.errors)
        if optimizer == "row_wise_adagrad":
            squares = Estimate(squares.values.mean(1), squares.errors.mean(1))
        a = slots[0] + squares.values
        terms = 4 + weights.shape[1] if optimizer == "row_wise_adagrad" else 4
        moved = [Estimate(a, squares.errors + estimated(a, a, terms).errors)]
        divisor, divisor_error = _root(moved[0], s.epsilon)
        if optimizer == "row_wise_adagrad":
            divisor, divisor_error = divisor[:, None], divisor_error[:, None]
        direction = g
    else:
        m = s.beta1 * slots[0] + (1 - s.beta1) * g.values
        v = s.beta2 * slots[1] + (1 - s.beta2) * g.values**2
        m_error = (1 - s.beta1) * g.errors + 8 * _FLOAT32_ULP * (np.abs(slots[0]) + size)
        v_error = (1 - s.beta2) * 2 * size * g.errors + 8 * _FLOAT32_ULP * (slots[1] + size**2)
        moved = [Estimate(m, m_error), Estimate(v, v_error)]
        direction = moved[0]
        divisor, divisor_error = _root(moved[1], s.epsilon)
    change = s.rate * direction.values / divisor
    relative = divisor_error / divisor + 8 * _FLOAT32_ULP
    error = s.rate * direction.errors / divisor + np.abs(change) * relative
    values = s.kept * weights - change
    error = error + 4 * _FLOAT32_ULP * (np.abs(s.kept * weights) + np.abs(change))
    return Step(Estimate(values, error), moved)


def _root(a: Estimate, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    divisor = np.sqrt(a.values) + epsilon
    return divisor, a.errors / np.sqrt(a.values) + 4 * _FLOAT32_ULP * divisor


def complaint(name: str, stored: np.ndarray, dtype: str, expected: Estimate) -> str | None:
    """Describes the worst of a kernel's results, stored in `dtype`; None if they are correct."""
    got = reference.widened(stored, dtype).astype(np.float64)
    relative, absolute = _ROUNDING[dtype]
    allowed = expected.errors * 1.01 + absolute
    allowed = allowed + relative * (np.abs(expected.values) + allowed)
    wrong = ~(np.abs(got - expected.values) <= allowed)
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{name}{list(place)} is {got[place]:.9g}, exactly {expected.values[place]:.9g}: may err "
        f"by {allowed[place]:.3g} ({int(wrong.sum())} of {wrong.size})"
    )
