"""Times the kernels on a GPU, compared with PyTorch's EmbeddingBag and with a copy of memory."""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tests.gpu import rounds
from tests.gpu.embedding_bag import reference
from tests.gpu.embedding_bag.library import (
    DTYPES,
    OPTIMIZERS,
    BagLibrary,
    Column,
    Ids,
    Optimizer,
    Table,
    Use,
)
from tests.gpu.rounds import Measured

DEVICE = "cuda"
ROWS_OF_TABLE = 200_000


class Size(NamedTuple):
    """Tables of ROWS_OF_TABLE rows in one variable, each with the same ids per sample."""

    batch: int
    tables: int
    hotness: int
    dim: int


# DLRM's with one id, and DCNv2's with 20.
SIZES = (
    Size(65536, 26, 1, 128),
    Size(16384, 26, 20, 128),
    Size(16384, 26, 20, 64),
    Size(16384, 26, 20, 16),
    Size(65536, 26, 1, 16),
)
_BUFFERS = 3
_SHARE_OF_MEMORY = 0.6
_RATE = 2.0**-10
_EPSILON = 2.0**-10


class Row(NamedTuple):
    """One line of the table."""

    size: Size
    dtype: str
    skewed: bool
    forward: Measured
    sgd: Measured
    adagrad: Measured


class _Buffers(NamedTuple):
    """The ids and gradients of a batch, for our kernels and for PyTorch."""

    ids: object  # [batch, tables * hotness] int32, rows of their tables
    all_rows: object  # [batch * tables * hotness] int64, rows of the variable
    output: object  # [bags, dim]
    upstream: object  # [bags, dim]


class _Bags:
    """One size in memory: the table, its accumulators, batches, and calls of the kernels."""

    def __init__(self, library: BagLibrary, torch, size: Size, dtype: str, skewed: bool):
        self.library, self.torch, self.size, self.dtype = library, torch, size, dtype
        options = dict(dtype=getattr(torch, dtype), device=DEVICE)
        rows = size.tables * ROWS_OF_TABLE
        self.weights = torch.empty(rows, size.dim, **options).normal_()
        self.accumulators = torch.full((rows, size.dim), 0.5, device=DEVICE)
        self.buffers = [self._make_buffers(options, skewed) for _ in range(_BUFFERS)]
        num_bags = size.batch * size.tables
        self.offsets = torch.arange(num_bags, device=DEVICE) * size.hotness
        scalars = reference.Scalars(1.0, _RATE, 1.0, _EPSILON)
        self.scalars = torch.tensor(scalars, dtype=torch.float32, device=DEVICE)
        self.columns = (Column * size.tables)(
            *((size.hotness, i * ROWS_OF_TABLE, ROWS_OF_TABLE, 0) for i in range(size.tables))
        )
        self.table = Table(self.weights.data_ptr(), rows, size.dim, DTYPES[dtype])
        size_bytes = library.workspace(self.table, self._use(self.buffers[0]), 1)
        self.workspace = torch.empty(size_bytes, dtype=torch.uint8, device=DEVICE)

    def _make_buffers(self, options: dict, skewed: bool) -> _Buffers:
        torch, size = self.torch, self.size
        shape = (size.batch, size.tables, size.hotness)
        uniform = torch.rand(shape, dtype=torch.float64, device=DEVICE)
        ids = ROWS_OF_TABLE**uniform - 1 if skewed else ROWS_OF_TABLE * uniform
        ids = ids.long().clamp(0, ROWS_OF_TABLE - 1)
        first_rows = torch.arange(size.tables, device=DEVICE)[:, None] * ROWS_OF_TABLE
        upstream = torch.empty(size.batch * size.tables, size.dim, **options).normal_()
        all_rows = (ids + first_rows).reshape(-1)
        return _Buffers(ids.int().contiguous(), all_rows, torch.empty_like(upstream), upstream)

    def _ids(self, b: _Buffers) -> Ids:
        num_ids = b.ids.numel()
        pointers = (b.ids.data_ptr(), 4, num_ids, self.size.batch, 0, 0)
        return Ids(*pointers, self.columns, self.size.tables)

    def _use(self, b: _Buffers):
        return (Use * 1)((self._ids(b), b.upstream.data_ptr()))

    def _stream(self) -> int:
        return self.torch.cuda.current_stream().cuda_stream

    def _check(self, error: int) -> None:
        if error != 0:
            raise RuntimeError(f"a kernel returned {error}: {self.library.error(error)}")

    def forward(self, b: _Buffers) -> None:
        """Our lookup."""
        dtype, output = DTYPES[self.dtype], b.output.data_ptr()
        self._check(self.library.forward(self.table, self._ids(b), dtype, output, self._stream()))

    def update(self, b: _Buffers, optimizer: str) -> None:
        """Our gradient and update."""
        settings = Optimizer(OPTIMIZERS[optimizer])
        settings.slots[0] = self.accumulators.data_ptr()
        self._check(
            self.library.update(
                *(self.table, self._use(b), 1, DTYPES[self.dtype], settings),
                *(self.scalars.data_ptr(), self.workspace.data_ptr(), self._stream()),
            )
        )

    def distinct_rows(self) -> float:
        """Mean number of different rows of a batch."""
        return float(np.mean([b.all_rows.unique().numel() for b in self.buffers]))


def _torch_bags(bags: _Bags, weights, rows):
    return bags.torch.nn.functional.embedding_bag(
        rows, weights, bags.offsets, mode="sum", sparse=True
    )


def _torch_forward(bags: _Bags, weights):
    def forward(b: _Buffers):
        with bags.torch.no_grad():
            _torch_bags(bags, weights, b.all_rows)

    return forward


def _torch_update(bags: _Bags, weights, optimizer):
    """The backward of EmbeddingBag with a sparse gradient, and a step; not its forward."""
    results = {id(b): _torch_bags(bags, weights, b.all_rows) for b in bags.buffers}

    def update(b: _Buffers):
        weights.grad = None
        results[id(b)].backward(b.upstream, retain_graph=True)
        optimizer.step()

    return update


def _where_supported(theirs, b: _Buffers):
    """Returns the peer, or None where PyTorch lacks it for the dtype."""
    try:
        theirs(b)
    except (NotImplementedError, RuntimeError) as error:
        print(f"PyTorch is left out: {error}", flush=True)
        return None
    return theirs


def measure(library: BagLibrary, torch) -> list[Row]:
    """Every size in float32 and bfloat16, with uniform and with skewed ids.

    Raises:
      RuntimeError: a kernel returned an error, or results are wrong.
    """
    copy = rounds.copier(torch)
    rows = []
    for size in SIZES:
        for dtype in ("float32", "bfloat16"):
            for skewed in (False, True):
                batch = _fitting_batch(torch, size)
                fitting = size._replace(batch=batch)
                rows.append(_measure_size(library, torch, copy, fitting, dtype, skewed))
    return rows


def _fitting_batch(torch, size: Size) -> int:
    """The batch size that leaves room for PyTorch's copy of the table and its gradients."""
    memory_bytes = _SHARE_OF_MEMORY * torch.cuda.mem_get_info()[0]
    table_bytes = 4 * ROWS_OF_TABLE * size.tables * size.dim * 4
    batch = size.batch
    while batch > 1024:
        bags = batch * size.tables
        # Ours, and a gradient for each id, which is coalesced for Adagrad.
        needed_bytes = _BUFFERS * bags * (12 * size.dim + 12 * size.hotness)
        needed_bytes += bags * size.hotness * (40 + 12 * size.dim)
        if table_bytes + needed_bytes <= memory_bytes:
            break
        batch //= 2
    return batch


def _measure_size(library, torch, copy, size: Size, dtype: str, skewed: bool) -> Row:
    bags = _Bags(library, torch, size, dtype, skewed)
    if complaint := _complaint(bags):
        raise RuntimeError(f"{size} {dtype}: {complaint}")
    number_bytes = 4 if dtype == "float32" else 2
    row_bytes = size.dim * number_bytes
    num_ids, num_bags = size.batch * size.tables * size.hotness, size.batch * size.tables

    def compare(ours, theirs, moved_bytes: int) -> Measured:
        theirs = _where_supported(theirs, bags.buffers[0])
        return rounds.compare(torch, copy, ours, theirs, bags.buffers, moved_bytes)

    weights = torch.nn.Parameter(bags.weights.clone())

    moved_bytes = num_ids * (4 + row_bytes) + num_bags * row_bytes
    theirs = _torch_forward(bags, weights)
    forward = compare(bags.forward, theirs, moved_bytes)

    # A gradient for each id, and each row that occurs read and written.
    distinct = math.ceil(bags.distinct_rows())
    moved_bytes = num_ids * (4 + row_bytes) + 2 * distinct * row_bytes
    ours = functools.partial(bags.update, optimizer="sgd")
    theirs = _torch_update(bags, weights, torch.optim.SGD([weights], lr=_RATE))
    sgd = compare(ours, theirs, moved_bytes)

    moved_bytes += 2 * distinct * size.dim * 4
    ours = functools.partial(bags.update, optimizer="adagrad")
    optimizer = torch.optim.Adagrad([weights], lr=_RATE, eps=_EPSILON)
    theirs = _torch_update(bags, weights, optimizer)
    adagrad = compare(ours, theirs, moved_bytes)
    return Row(size, dtype, skewed, forward, sgd, adagrad)


def _complaint(bags: _Bags) -> str | None:
    """Forward and SGD against float64, on the first bags and on their rows."""
    torch, size = bags.torch, bags.size
    b = bags.buffers[0]
    before = bags.weights.clone()
    bags.forward(b)
    chosen = slice(0, min(1000, len(b.upstream)))
    rows = b.all_rows.reshape(-1, size.hotness)[chosen]
    expected = before[rows].double().sum(1)
    bounds = 2.0**-8 if bags.dtype == "bfloat16" else 2.0**-16
    magnitudes = before[rows].double().abs().sum(1)
    if not ((b.output[chosen].double() - expected).abs() <= bounds * magnitudes).all():
        return "the output is wrong"
    bags.update(b, "sgd")
    some = rows.reshape(-1)[:20].unique()
    for row in some.tolist():
        places = (b.all_rows == row).nonzero()[:, 0] // size.hotness
        gradients = b.upstream[places].double()
        expected = before[row].double() - _RATE * gradients.sum(0)
        magnitudes = before[row].double().abs() + _RATE * gradients.abs().sum(0)
        if not ((bags.weights[row].double() - expected).abs() <= bounds * magnitudes).all():
            return f"row {row} is wrong after an update"
    moved = (bags.weights != before).any(1)
    moved[b.all_rows] = False
    if moved.any():
        return "a row moved that does not occur"
    again = bags.weights.clone()
    bags.weights.copy_(before)
    bags.update(b, "sgd")
    same_bits = torch.equal(again, bags.weights)
    return None if same_bits else "the same update has other bits"


def check_large(library: BagLibrary, torch) -> list[str]:
    """Offsets beyond 2^31 numbers; nothing where the card has no memory for it."""
    dim, rows = 96, 2**25
    if 2 * rows * dim > 0.8 * torch.cuda.mem_get_info()[0]:
        return []
    weights = torch.zeros(rows, dim, dtype=torch.float16, device=DEVICE)
    touched = torch.tensor([0, rows // 3, 2 * rows // 3, rows - 1], device=DEVICE)
    weights[touched] = 2.0
    ids = touched.repeat_interleave(torch.tensor([1, 2, 3, 100], device=DEVICE))
    upstream = torch.ones(len(ids), dim, device=DEVICE)
    output = torch.empty_like(upstream)
    scalars = torch.tensor([1, 0.5, 1, 0, 0, 0], dtype=torch.float32, device=DEVICE)
    columns = (Column * 1)((1, 0, rows, 0))
    table = Table(weights.data_ptr(), rows, dim, DTYPES["float16"])
    use = (Use * 1)()
    use[0].ids = Ids(ids.data_ptr(), 8, len(ids), len(ids), 0, 0, columns, 1)
    use[0].gradient = upstream.data_ptr()
    size_bytes = library.workspace(table, use, 1)
    workspace = torch.empty(size_bytes, dtype=torch.uint8, device=DEVICE)
    stream = torch.cuda.current_stream().cuda_stream
    float32 = DTYPES["float32"]
    errors = [
        library.forward(table, use[0].ids, float32, output.data_ptr(), stream),
        library.update(
            *(table, use, 1, float32, Optimizer(OPTIMIZERS["sgd"]), scalars.data_ptr()),
            *(workspace.data_ptr(), stream),
        ),
    ]
    if any(errors):
        return [f"errors {errors}: {[library.error(error) for error in errors]}"]
    complaints = [] if bool((output == 2.0).all()) else ["a bag has other numbers than its row"]
    expected = torch.tensor([1.5, 1.0, 0.5, -48.0], dtype=torch.float16, device=DEVICE)
    if not bool((weights[touched] == expected[:, None]).all()):
        complaints.append(f"rows are {weights[touched, 0].tolist()} after an update")
    return complaints


# ---- Results ------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown."""
    titles = ["batch x tables x ids, dim", "dtype", "ids"]
    lines = []
    for row in rows:
        size = f"{row.size.batch:,} x {row.size.tables} x {row.size.hotness}, {row.size.dim}"
        words = [size, row.dtype, "log-uniform" if row.skewed else "uniform"]
        lines.append((words, [row.forward, row.sgd, row.adagrad]))
    return rounds.table(titles, ["lookup", "SGD", "Adagrad"], lines)


def page(rows: Sequence[Row], machine: dict[str, str], arguments: Sequence[str]) -> str:
    """A dated page of results for benchmarks/results."""
    measured = [m for row in rows for m in (row.forward, row.sgd, row.adagrad)]
    title = "The embedding bag's CUDA kernels"
    return (
        rounds.page(title, measured, machine, arguments, table(rows))
        + f"""Tables of {ROWS_OF_TABLE:,} rows in one variable. GB/s: lookup, ids, a row for each id
and the output; update, ids, a gradient for each id, and each row that occurs (Adagrad: its
accumulators too) read and written. The caches hold rows that occur often: log-uniform ids may pass
the copy. "x torch": the time of `torch.nn.functional.embedding_bag` (updates: its backward with a
sparse gradient, and the step of `torch.optim`) by ours.
"""
    )
