"""Sizes, layouts, dtypes and optimizers of the sweep."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from tests.gpu.embedding_bag.library import OPTIMIZERS

DIMS = (1, 3, 8, 16, 17, 64, 128, 200)
FLOATS = ("float32", "float16", "bfloat16")
TENSORS = ("table", "slots", "upstream", "output")
ROWS_BEFORE = 5  # of the table, before those of the first column

# (ids per sample, rows, whether it is a mean); several columns share the table.
ColumnSizes = tuple[int, int, bool]
ONE_HOT = ((1, 50, False),)
MULTI_HOT = ((3, 20, False), (1, 7, True), (0, 3, True), (20, 60, True), (2, 300, False))
LONG = ((40, 4, False), (9, 2, True))  # few rows: runs of many stretches
# More than a launch takes; the first launch has no ids at all.
MANY = (*((0, 1, False),) * 130, *((1, 3, False), (2, 2, True)) * 70)


class BagCase(NamedTuple):
    """One table, and the uses of it in a step."""

    dim: int
    batch: int
    columns: tuple[ColumnSizes, ...] = MULTI_HOT
    # The first column alone, with up to twice its ids per sample, and often none.
    ragged: bool = False
    dtype: str = "float32"
    other: str = "float32"  # of outputs and gradients
    id_bytes: int = 4
    weighted: bool = False
    uses: int = 1
    bad_ids: bool = False
    optimizer: str = "sgd"
    offset: int = 0  # numbers by which pointers are off their alignment
    only: str | None = None  # the one of TENSORS that the offset concerns; None: all
    rows_after: int = 4  # of the table, after those of the last column
    multiprocessors: int = 1  # of the emulator

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return ROWS_BEFORE + sum(rows for _, rows, _ in self.columns) + self.rows_after

    def offset_of(self, tensor: str) -> int:
        """Numbers by which a tensor is off its alignment."""
        return self.offset if self.only in (None, tensor) else 0


def _styles() -> list[dict]:
    """Layouts, so that neighbours differ in several of them."""
    return [
        dict(columns=MULTI_HOT),
        dict(columns=MULTI_HOT, ragged=True, id_bytes=8, weighted=True),
        dict(columns=ONE_HOT, bad_ids=True),
        dict(columns=LONG, id_bytes=8, uses=3, bad_ids=True),
        dict(columns=MULTI_HOT, weighted=True, uses=2, offset=1),
        dict(columns=LONG, ragged=True, bad_ids=True, multiprocessors=2),
        dict(columns=MULTI_HOT, bad_ids=True, id_bytes=8, offset=4, multiprocessors=3),
    ]


def forward_sweep(long: bool) -> Iterator[BagCase]:
    """Every dim, with every table's and output's dtype in turn; `long`: in all styles."""
    turn = itertools.count()
    styles = _styles()
    dtypes = list(itertools.product(FLOATS, FLOATS))
    pairs = itertools.cycle(dtypes)
    for dim in DIMS:
        for dtype, other in dtypes if long else [next(pairs) for _ in range(3)]:
            for style in styles if long else [styles[next(turn) % len(styles)]]:
                yield BagCase(dim, 9, dtype=dtype, other=other, **style)
    yield from edges()
    for dtype, only in itertools.product(FLOATS, ("table", "output")):
        yield BagCase(16, 3, dtype=dtype, offset=1, only=only)
    yield BagCase(16, 3, MANY, dtype="float16", weighted=True, multiprocessors=2)


def update_sweep(long: bool) -> Iterator[BagCase]:
    """Every dim with every optimizer; dtypes and styles in turn, `long`: all dtypes."""
    turn = itertools.count()
    styles = _styles()
    dtypes = itertools.cycle(itertools.product(FLOATS, FLOATS))
    for dim in DIMS:
        for optimizer in OPTIMIZERS:
            for _ in range(9 if long else 1):
                dtype, other = next(dtypes)
                style = styles[next(turn) % len(styles)]
                yield BagCase(dim, 9, dtype=dtype, other=other, optimizer=optimizer, **style)
    for optimizer in OPTIMIZERS:
        for case in edges():
            yield case._replace(optimizer=optimizer)
        for only in TENSORS:
            yield BagCase(8, 3, optimizer=optimizer, offset=1, only=only)
    # Several tiles of pairs, and stretches that many threads add up.
    for weighted in (False, True):
        yield BagCase(4, 150, LONG, weighted=weighted, optimizer="adagrad", multiprocessors=2)
    yield BagCase(2, 9, MANY, optimizer="row_wise_adagrad", uses=2)
    # A group of lanes takes several pieces, one after the other.
    for optimizer in ("sgd", "row_wise_adagrad"):
        yield BagCase(128, 60, ((16, 9000, False),), optimizer=optimizer)


def edges() -> Iterator[BagCase]:
    """Nothing to look up, in several ways; a row that is every id; all ids out of range."""
    yield BagCase(8, 0)
    yield BagCase(8, 0, ragged=True)
    yield BagCase(8, 3, ((0, 4, True),))
    yield BagCase(8, 3, ((0, 4, False),), ragged=True)
    yield BagCase(8, 3, uses=0)
    yield BagCase(4, 5, ((0, 3, False), (2, 3, False), (0, 3, True)), uses=2, id_bytes=8)
    yield BagCase(12, 64, ((1, 1, False),))
    yield BagCase(12, 65, ((1, 1, False),), rows_after=260)
    yield BagCase(12, 7, ((3, 0, False), (2, 0, True)), bad_ids=True)
