"""The dot interaction and its gradients in float64, and how far a kernel may be from them.

A kernel may err at most FORWARD_FACTOR times (gradients: GRADIENT_FACTOR times) what the plain
version errs on the same rounded inputs, plus one float32 ulp of the sum of the products'
magnitudes: kernels and the plain version sum in different orders. The plain version is matrix
products with float32 sums (of operands rounded to TF32 where tensor cores do that), rounded once.
"""

from typing import NamedTuple

import numpy as np

FORWARD_FACTOR = 2.0
GRADIENT_FACTOR = 3.0
_FLOAT32_ULP = 2.0**-23

# How tensors of a dtype are stored; NumPy has no bfloat16, so its bits.
STORAGE = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """Float32 values rounded to the nearest, ties to even, as an array of STORAGE[dtype]."""
    values = np.asarray(values, np.float32)
    if dtype != "bfloat16":
        with np.errstate(over="ignore"):
            return values.astype(STORAGE[dtype])
    bits = values.view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded)


def widened(array: np.ndarray, dtype: str) -> np.ndarray:
    """The exact values of an array of STORAGE[dtype], in float32."""
    if dtype != "bfloat16":
        return array.astype(np.float32)
    return (array.astype(np.uint32) << 16).view(np.float32)


def to_tf32(values: np.ndarray) -> np.ndarray:
    """Float32 values with 10 fraction bits, to the nearest, ties away from zero (cvt.rna.tf32)."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


def _triangle(features: int) -> tuple[np.ndarray, np.ndarray]:
    return np.tril_indices(features, -1)


def pair_products(x: np.ndarray) -> np.ndarray:
    """[batch, F, D] -> [batch, F (F - 1) / 2]: x_1.x_0, x_2.x_0, x_2.x_1, ..., in x's own dtype."""
    rows, columns = _triangle(x.shape[1])
    with np.errstate(invalid="ignore", over="ignore"):
        return np.matmul(x, x.transpose(0, 2, 1))[:, rows, columns]


def pair_matrix(pairs: np.ndarray, features: int) -> np.ndarray:
    """[batch, pairs] -> the symmetric S [batch, F, F] with a zero diagonal."""
    rows, columns = _triangle(features)
    matrix = np.zeros((len(pairs), features, features), pairs.dtype)
    matrix[:, rows, columns] = pairs
    matrix[:, columns, rows] = pairs
    return matrix


def feature_gradients(x: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """S X: the gradient of the pair products, [batch, F, D], for upstream `pairs`."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.matmul(pair_matrix(pairs, x.shape[1]), x)


def feature_gradients_without_diagonal(x: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """S X without the diagonal of S, which is 0 but turns an infinite x_i into NaN."""
    with np.errstate(invalid="ignore", over="ignore"):
        terms = pair_matrix(pairs, x.shape[1])[..., None] * x[:, None]
        diagonal = np.arange(x.shape[1])
        terms[:, diagonal, diagonal] = 0.0
        return terms.sum(axis=2)


class Expected(NamedTuple):
    """Values of one tensor in float64 and how far a kernel's may be from them.

    must_break: where a kernel's may not be finite. may_break: where it need not be. is_nan: where
    it has to be NaN.
    """

    values: np.ndarray
    largest_error: float
    plain_error: float
    must_break: np.ndarray
    may_break: np.ndarray
    is_nan: np.ndarray


def _largest(error: np.ndarray, where: np.ndarray) -> float:
    return float(np.max(np.abs(error), initial=0.0, where=where))


def _expected(exact, plain, magnitudes, factor, certain=None) -> Expected:
    """`plain` as it would be stored, in float32; `certain`: exact but for a zero diagonal's NaN."""
    certain = exact if certain is None else certain
    finite = np.isfinite(exact) & np.isfinite(plain)
    with np.errstate(invalid="ignore"):
        plain_error = _largest(plain - exact, finite)
    slack = _FLOAT32_ULP * _largest(magnitudes, np.isfinite(magnitudes))
    return Expected(
        exact,
        factor * plain_error + slack,
        plain_error,
        # The plain version overflows to infinity where the format ends; so may the kernel.
        must_break=~np.isfinite(certain),
        may_break=~np.isfinite(exact) | ~np.isfinite(plain),
        is_nan=np.isnan(certain),
    )


def expected_pairs(x: np.ndarray, dtype: str, tf32: bool) -> Expected:
    """Returns the expected output of the forward kernel for x [batch, F, D], of STORAGE[dtype]."""
    x32 = widened(x, dtype)
    exact = pair_products(x32.astype(np.float64))
    plain = pair_products(to_tf32(x32) if tf32 else x32)
    plain = widened(stored(plain, dtype), dtype)
    return _expected(exact, plain, pair_products(np.abs(x32).astype(np.float64)), FORWARD_FACTOR)


def expected_gradients(
    x: np.ndarray, pairs: np.ndarray, added: np.ndarray | None, dtype: str, tf32: bool
) -> Expected:
    """Returns the expected output of the backward kernel for the features [batch, F, D].

    Args:
      x: [batch, F, D], of STORAGE[dtype].
      pairs: the upstream gradient of the pair products, [batch, F (F - 1) / 2], of STORAGE[dtype].
      added: [batch, D], of STORAGE[dtype]: the head's gradient if the gradient of x_0 has to
        include it; else None.
      dtype: of all of them.
      tf32: whether float32 goes through TF32 tensor cores.
    """
    x32, pairs32 = widened(x, dtype), widened(pairs, dtype)
    x64, pairs64 = x32.astype(np.float64), pairs32.astype(np.float64)
    exact = feature_gradients(x64, pairs64)
    plain = (
        feature_gradients(to_tf32(x32), to_tf32(pairs32))
        if tf32
        else feature_gradients(x32, pairs32)
    )
    magnitudes = feature_gradients(np.abs(x64), np.abs(pairs64))
    broken = not (np.isfinite(x64).all() and np.isfinite(pairs64).all())
    certain = feature_gradients_without_diagonal(x64, pairs64) if broken else exact.copy()
    if added is not None:
        added32 = widened(added, dtype)
        with np.errstate(invalid="ignore"):
            exact[:, 0] += added32
            certain[:, 0] += added32
            plain[:, 0] += added32
            magnitudes[:, 0] += np.abs(added32)
    plain = widened(stored(plain, dtype), dtype)
    return _expected(exact, plain, magnitudes, GRADIENT_FACTOR, certain)


def complaint(name: str, got: np.ndarray, expected: Expected) -> str | None:
    """Describes the worst error of a kernel's values (in float64); None if they are correct."""
    if got.size == 0:
        return None

    def at(places: np.ndarray, what: str) -> str:
        place = tuple(int(i) for i in np.argwhere(places)[0])
        exact = expected.values[place]
        count = f"{int(places.sum())} of {places.size}"
        return f"{name}{list(place)} is {got[place]:.9g}, exactly {exact:.9g}: {what} ({count})"

    if (wrong := expected.must_break & np.isfinite(got)).any():
        return at(wrong, "it must not be finite")
    if (wrong := expected.is_nan & ~np.isnan(got)).any():
        return at(wrong, "it must be NaN")
    if (wrong := ~np.isfinite(got) & ~expected.may_break).any():
        return at(wrong, "it must be finite")
    with np.errstate(invalid="ignore"):
        error = np.where(expected.may_break, 0.0, np.abs(got - expected.values))
    if not (error <= expected.largest_error).all():
        return at(
            error > expected.largest_error,
            f"errs by up to {error.max():.3g}, allowed {expected.largest_error:.3g}, plain "
            f"{expected.plain_error:.3g}",
        )
    return None
