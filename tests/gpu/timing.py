"""Times the kernels on a GPU, compared with PyTorch and with a plain copy of memory."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tests.gpu import reference, rounds
from tests.gpu.library import DTYPES, NO_TF32, Library, Shape, width
from tests.gpu.rounds import Measured

# (batch, features, dim); DLRM's own first. Batches of wide samples are smaller to fit small cards.
SIZES = (
    (65536, 27, 128),
    (65536, 13, 64),
    (32768, 40, 128),
    (65536, 27, 16),
    (8192, 100, 128),
    (512, 128, 1024),
)
_CACHES_PASSED = 3  # buffers of a contender together, in L2 cache sizes
_MOST_BUFFERS = 32
_SHARE_OF_MEMORY = 0.4


class Row(NamedTuple):
    """One line of the table."""

    batch: int
    features: int
    dim: int
    dtype: str
    kernel: str
    forward: Measured
    backward: Measured


class _Buffers(NamedTuple):
    """One set of tensors: x_0 (which is the head too), the others, and what PyTorch takes."""

    first: object  # [batch, D]
    rest: object  # [batch, F - 1, D]
    output: object  # [batch, width]
    upstream: object  # [batch, width]
    first_gradient: object
    rest_gradient: object
    together: object  # [batch, F, D], requires a gradient


def measure(library: Library, torch) -> list[Row]:
    """Every size in every dtype; float32 also without TF32.

    Raises:
      RuntimeError: a kernel returned an error, or results at the ends of a batch are wrong.
    """
    copy = rounds.copier(torch)
    rows = []
    for batch, features, dim in SIZES:
        for dtype, flags in (("float16", 0), ("bfloat16", 0), ("float32", 0), ("float32", NO_TF32)):
            if flags and (features, dim) != SIZES[0][1:]:
                continue
            torch.backends.cuda.matmul.allow_tf32 = not flags
            rows.append(_measure_size(library, torch, copy, batch, features, dim, dtype, flags))
    return rows


def check_large(library: Library, torch) -> list[str]:
    """Offsets beyond 2^31 numbers: the first and last samples of a batch that has them.

    Returns what is wrong; nothing where the card has no memory for it.
    """
    features, dim, dtype = 27, 128, "float16"
    batch = math.ceil((2**31 + 2**28) / (features * dim))
    needed_bytes = 2 * batch * (2 * features * dim + 2 * width(dim, features))
    if needed_bytes > 0.8 * torch.cuda.mem_get_info()[0]:
        return []
    buffers = _make_buffers(torch, batch, features, dim, dtype, for_torch=False)
    shape = _shape(batch, features, dim, dtype)
    _run_forward(library, torch, shape, buffers, 0)
    _run_backward(library, torch, shape, buffers, 0)
    complaint = _complaint_of_some_samples(torch, buffers, dtype, library.kernel(shape))
    return [complaint] if complaint else []


def _measure_size(library, torch, copy, batch, features, dim, dtype, flags) -> Row:
    size = np.dtype(reference.STORAGE[dtype]).itemsize
    x_bytes, row_bytes = features * dim * size, width(dim, features) * size
    # x, its gradient, upstream and output; PyTorch's x, gradient and intermediate products.
    sample_bytes = 4 * x_bytes + 4 * row_bytes + 3 * features**2 * size
    while batch * sample_bytes > _SHARE_OF_MEMORY * torch.cuda.mem_get_info()[0]:
        batch //= 2
    cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    wanted = math.ceil(_CACHES_PASSED * cache_bytes / (batch * (x_bytes + row_bytes)))
    fits = int(_SHARE_OF_MEMORY * torch.cuda.mem_get_info()[0] / (batch * sample_bytes))
    count = max(1, min(wanted, fits, _MOST_BUFFERS))
    buffers = [_make_buffers(torch, batch, features, dim, dtype, True) for _ in range(count)]
    shape = _shape(batch, features, dim, dtype)
    kernel = library.kernel(shape, flags)

    _run_forward(library, torch, shape, buffers[0], flags)
    _run_backward(library, torch, shape, buffers[0], flags)
    if complaint := _complaint_of_some_samples(torch, buffers[0], dtype, kernel):
        raise RuntimeError(f"{batch} x {features} x {dim} {dtype} ({kernel}): {complaint}")

    ours = functools.partial(_run_forward, library, torch, shape, flags=flags)
    theirs = _torch_forward(torch, batch, features, dim)
    forward = rounds.compare(torch, copy, ours, theirs, buffers, batch * (x_bytes + row_bytes))
    ours = functools.partial(_run_backward, library, torch, shape, flags=flags)
    results = {id(b): theirs(b) for b in buffers}

    def their_backward(b):
        torch.autograd.grad(results[id(b)], b.together, b.upstream, retain_graph=True)

    moved_bytes = batch * (2 * x_bytes + row_bytes)
    backward = rounds.compare(torch, copy, ours, their_backward, buffers, moved_bytes)
    return Row(batch, features, dim, dtype, kernel, forward, backward)


def _shape(batch: int, features: int, dim: int, dtype: str) -> Shape:
    return Shape(batch, features, dim, dim, dim, (features - 1) * dim, DTYPES[dtype])


def _make_buffers(torch, batch, features, dim, dtype, for_torch: bool) -> _Buffers:
    options = dict(dtype=getattr(torch, dtype), device="cuda")
    first = torch.empty(batch, dim, **options).normal_()
    rest = torch.empty(batch, features - 1, dim, **options).normal_()
    upstream = torch.empty(batch, width(dim, features), **options).normal_()
    together = None
    if for_torch:
        together = torch.cat([first[:, None], rest], dim=1).requires_grad_()
    return _Buffers(
        *(first, rest, torch.empty_like(upstream), upstream),
        *(torch.empty_like(first), torch.empty_like(rest), together),
    )


def _raise_error(library: Library, error: int) -> None:
    if error != 0:
        raise RuntimeError(f"a kernel returned {error}: {library.error(error)}")


def _run_forward(library, torch, shape, b: _Buffers, flags: int) -> None:
    pointers = [t.data_ptr() for t in (b.first, b.rest, b.first, b.output)]
    stream = torch.cuda.current_stream().cuda_stream
    _raise_error(library, library.forward(shape, *pointers, flags, stream))


def _run_backward(library, torch, shape, b: _Buffers, flags: int) -> None:
    tensors = (b.first, b.rest, b.upstream, b.first_gradient, b.rest_gradient)
    pointers = [t.data_ptr() for t in tensors]
    stream = torch.cuda.current_stream().cuda_stream
    _raise_error(library, library.backward(shape, *pointers, 0, flags, stream))


def _torch_forward(torch, batch: int, features: int, dim: int) -> Callable:
    """The operation as DLRM has it in PyTorch: bmm, the triangle by index, cat with the head."""
    rows, columns = torch.tril_indices(features, features, -1, device="cuda")
    filler = width(dim, features) - dim - len(rows)

    def forward(b: _Buffers):
        x = b.together
        products = torch.bmm(x, x.transpose(1, 2))
        zeros = torch.zeros(batch, filler, dtype=x.dtype, device="cuda")
        return torch.cat([x[:, 0], products[:, rows, columns], zeros], dim=1)

    return forward


def _complaint_of_some_samples(torch, b: _Buffers, dtype: str, kernel: str) -> str | None:
    """The first, the last and some samples between, against float64."""
    batch, dim = b.first.shape
    chosen = torch.linspace(0, batch - 1, 7, dtype=torch.float64, device="cuda").long().unique()

    def array(tensor):
        rows = tensor[chosen].cpu()
        return rows.view(torch.uint16).numpy() if dtype == "bfloat16" else rows.numpy()

    def values(stored):
        return reference.widened(stored, dtype).astype(np.float64)

    x = np.concatenate([array(b.first)[:, None], array(b.rest)], axis=1)
    output, upstream = array(b.output), array(b.upstream)
    pairs = slice(dim, dim + x.shape[1] * (x.shape[1] - 1) // 2)
    tf32 = "tf32" in kernel
    expected = reference.expected_pairs(x, dtype, tf32)
    if complaint := reference.complaint("pairs", values(output[:, pairs]), expected):
        return complaint
    if output[:, :dim].tobytes() != x[:, 0].tobytes():
        return "the head is not copied bit by bit"
    gradient = [array(b.first_gradient)[:, None], array(b.rest_gradient)]
    expected = reference.expected_gradients(x, upstream[:, pairs], upstream[:, :dim], dtype, tf32)
    return reference.complaint("gradient", values(np.concatenate(gradient, axis=1)), expected)


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown."""
    return rounds.table(
        ["batch x F x D", "dtype", "kernel"],
        ["fwd", "bwd"],
        [
            (
                [f"{row.batch:,} x {row.features} x {row.dim}", row.dtype, row.kernel],
                [row.forward, row.backward],
            )
            for row in rows
        ],
    )


def page(rows: Sequence[Row], machine: dict[str, str], arguments: Sequence[str]) -> str:
    """A dated page of results for benchmarks/results."""
    measured = [m for row in rows for m in (row.forward, row.backward)]
    title = "The dot interaction's CUDA kernels"
    return (
        rounds.page(title, measured, machine, arguments, table(rows))
        + """GB/s: each input read once, each output written once (x_0 is the head too). "x torch":
the time of `torch.bmm`, the triangle by index and `torch.cat` (backward: their autograd) by ours;
PyTorch has all features in one tensor already, and TF32 where our kernel has it.
"""
    )
