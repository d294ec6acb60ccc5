"""Sizes, layouts and flags of the sweep."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from tests.gpu.library import NO_TF32, PLAIN, Device

FEATURES = (1, 2, 3, 7, 8, 9, 15, 16, 17, 26, 27, 31, 32, 33, 48, 64, 65, 100, 127, 128, 129)
DIMS = (1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 64, 127, 128, 129, 200, 512, 1000, 1024, 1025)
DTYPES = ("float16", "bfloat16", "float32")

TENSORS = (
    *("first", "rest", "head", "output"),
    *("upstream", "first_gradient", "rest_gradient", "head_gradient"),
)

# Shared memory of a block and of a multiprocessor, in bytes, by compute capability.
_KIB = 1024
SHARED_BYTES = {
    "7.0": (96 * _KIB, 96 * _KIB),
    "7.5": (64 * _KIB, 64 * _KIB),
    "8.6": (99 * _KIB, 100 * _KIB),
    "9.0": (227 * _KIB, 228 * _KIB),
}
# (multiprocessors, blocks of one at a time): one block takes all samples, two share three samples,
# two on one multiprocessor.
_GRIDS = ((1, 1), (2, 1), (1, 2))


class Case(NamedTuple):
    """One forward and one backward run."""

    features: int
    dim: int
    batch: int
    dtype: str
    # All features in one tensor [batch, F, D], or x_0 apart; and then with numbers between samples.
    joined: bool = True
    gap: int = 0
    head: bool = True
    null_head_gradient: bool = False
    offset: int = 0  # numbers by which pointers are off their alignment
    # The one tensor that offset and gap concern; None: all. One of TENSORS.
    only: str | None = None
    flags: int = 0
    # NaN and infinities in one of the samples.
    broken: bool = False
    device: Device | None = None  # of the emulator

    def offset_of(self, tensor: str) -> int:
        """Numbers by which a tensor is off its alignment."""
        return self.offset if self.only in (None, tensor) else 0

    def gap_of(self, tensor: str) -> int:
        """Numbers between samples of "first" or "rest", and of its gradient."""
        return self.gap if self.only in (None, tensor) else 0


def _styles(dtype: str) -> list[dict]:
    """Layouts and flags, so that neighbours differ in several of them."""
    flags = [0, NO_TF32, 0] if dtype == "float32" else [0, 0, 0]
    return [
        dict(joined=True, head=True, null_head_gradient=True, flags=flags[0]),
        dict(joined=False, head=True, flags=flags[1]),
        dict(joined=True, head=False, flags=flags[2]),
        dict(joined=False, gap=8, head=True, null_head_gradient=True, flags=flags[1]),
        dict(joined=True, head=True, offset=1, flags=flags[0]),
        dict(joined=False, gap=3, head=False, flags=flags[2]),
        dict(joined=False, head=True, null_head_gradient=True, offset=1, flags=flags[1]),
        dict(joined=True, head=True, flags=flags[0] | PLAIN),
    ]


def _corners() -> Iterator[tuple[int, int]]:
    """Sizes next to which the choice of kernel or tiles changes."""
    yield from [(27, 128), (1, 1), (2, 1), (1, 128), (16, 16), (17, 8), (33, 17)]
    yield from [(128, 1024), (129, 8), (3, 1025), (128, 1), (27, 0)]


def for_gpu(long: bool) -> Iterator[Case]:
    """Every number of features with every dim and dtype, styles in turn; `long`: in all styles."""
    most_numbers = 6_000_000  # of the features: the reference is NumPy's
    batches = itertools.cycle((5, 255, 1, 5))
    turn = itertools.count()
    for features, dim, dtype in itertools.product(FEATURES, DIMS, DTYPES):
        styles = _styles(dtype)
        chosen = styles if long else [styles[next(turn) % len(styles)]]
        for style in chosen:
            batch = next(batches)
            if batch * features * max(dim, features) > most_numbers:
                batch = 5
            yield Case(features, dim, batch, dtype, **style)
    for (features, dim), dtype in itertools.product(_corners(), DTYPES):
        for style in _styles(dtype):
            yield Case(features, dim, 5, dtype, **style)
    yield from _edges()


def for_emulator(long: bool) -> Iterator[Case]:
    """A sweep of sizes that suits the speed of the emulator; `long`: more sizes."""
    devices = itertools.cycle(
        Device(*grid, *SHARED_BYTES[part]) for part, grid in itertools.product(SHARED_BYTES, _GRIDS)
    )
    turn = itertools.count()
    batches = itertools.cycle((3, 2, 3, 1))
    most_numbers = 1 << (18 if long else 15)
    for step in range(8 if long else 2):
        for i, features in enumerate(FEATURES):
            for j, dtype in enumerate(DTYPES):
                # Every dim comes with every dtype; large ones with few features in the short sweep.
                dim = DIMS[(i + 7 * j + 5 * step) % len(DIMS)]
                while features * dim > most_numbers:
                    dim //= 2
                styles = _styles(dtype)
                style = styles[next(turn) % len(styles)]
                yield Case(features, dim, next(batches), dtype, **style, device=next(devices))
    for (features, dim), dtype in itertools.product(_corners(), DTYPES):
        style = _styles(dtype)[next(turn) % 7]
        # Whole rows of the largest size fit no part: all of them cut them into chunks.
        parts = SHARED_BYTES if features * dim > most_numbers and long else ["9.0"]
        for part in parts:
            device = Device(*next(iter(_GRIDS)), *SHARED_BYTES[part])
            batch = 2 if features * dim > 1 << 14 else 3
            yield Case(features, dim, batch, dtype, **style, device=device)
    # The largest size that tiles take, on the part with the least shared memory.
    device = Device(1, 1, *SHARED_BYTES["7.5"])
    for dtype in DTYPES:
        yield Case(128, 1024 if long else 320, 2, dtype, joined=False, device=device)
    # So little shared memory that chunks become narrow, or only the plain kernel is left.
    for (features, dim), kib, dtype in itertools.product(
        [(27, 128), (64, 200), (128, 72)], (2, 8, 24, 48), DTYPES
    ):
        device = Device(1, 1, kib * _KIB, (kib + 1) * _KIB)
        yield Case(features, dim, 2, dtype, joined=False, device=device)
    # No room for upstream rows: they are read where they lie, if they are aligned.
    for dtype, kib in (("float16", 48), ("float32", 99)):
        device = Device(1, 1, kib * _KIB, (kib + 1) * _KIB)
        for null in (False, True):
            case = Case(128, 72, 2, dtype, null_head_gradient=null, offset=1, device=device)
            yield from (case, case._replace(only="upstream"), case._replace(offset=0))
    for case in _edges():
        yield case._replace(batch=min(case.batch, 3), device=next(devices))


def for_seeds() -> Iterator[Case]:
    """Sizes of one, two and four warps, with one and several chunks, for orders of threads."""
    device = Device(1, 1, *SHARED_BYTES["7.5"])
    for dtype in DTYPES:
        yield Case(27, 128, 3, dtype, null_head_gradient=True, device=device)
        yield Case(17, 40, 3, dtype, joined=False, device=device)
        yield Case(50, 24, 3, dtype, offset=1, device=device)
        yield Case(128, 264, 2, dtype, joined=False, head=False, device=device)
    yield Case(27, 64, 3, "float32", flags=NO_TF32, device=device)
    yield Case(130, 8, 2, "float32", device=device)


def _edges() -> Iterator[Case]:
    """Batches of 0, samples with NaN and infinities, one tensor misaligned, rows of no numbers."""
    for dtype in DTYPES:
        # Rows are multiples of 16 bytes.
        for only in TENSORS:
            yield Case(6, 64, 3, dtype, joined=False, offset=1, only=only)
        for only in ("first", "rest"):
            yield Case(6, 64, 3, dtype, joined=False, gap=3, only=only)
        for style in (dict(), dict(broken=True), dict(joined=False, gap=3), dict(flags=PLAIN)):
            yield Case(1, 24, 3, dtype, head=False, **style)
        yield Case(27, 128, 0, dtype)
        yield Case(5, 24, 0, dtype, joined=False, head=False, flags=PLAIN)
        sizes = [(3, 8), (17, 20), (27, 128), (33, 64), (65, 8)]
        for turn, (features, dim) in enumerate(sizes):
            style = _styles(dtype)[turn]
            yield Case(features, dim, 3, dtype, **style, broken=True)
        yield Case(9, 16, 3, dtype, flags=NO_TF32, broken=True)
        yield Case(9, 16, 3, dtype, flags=PLAIN, broken=True)
