"""Times the kernels on a GPU, compared with PyTorch and with a plain copy of memory."""

import datetime
import functools
import math
import shlex
import statistics
import subprocess
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tests.gpu import reference
from tests.gpu.library import DTYPES, NO_TF32, Library, Shape, width

# (batch, features, dim); DLRM's own first. Batches of wide samples are smaller to fit small cards.
SIZES = (
    (65536, 27, 128),
    (65536, 13, 64),
    (32768, 40, 128),
    (65536, 27, 16),
    (8192, 100, 128),
    (512, 128, 1024),
)
ROUNDS = 25
WARM_UP_ROUNDS = 3
ROUND_MS = 2.0  # each contender runs at least this long in a round: events are exact to 0.5 us
COPY_BYTES = 512 << 20
_CACHES_PASSED = 3  # buffers of a contender together, in L2 cache sizes
_MOST_BUFFERS = 32
_SHARE_OF_MEMORY = 0.4


class Measured(NamedTuple):
    """One kernel on one size."""

    ms: float
    spread: float  # interquartile range by median
    bytes_moved: int  # each input read once, each output written once
    copy_share: float  # of the bandwidth of a copy in the same rounds
    torch_speedup: float  # PyTorch's time by the kernel's

    @property
    def gb_per_s(self) -> float:
        return self.bytes_moved / self.ms / 1e6


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
    copy = _copier(torch)
    rows = []
    for batch, features, dim in SIZES:
        for dtype, flags in (("float16", 0), ("bfloat16", 0), ("float32", 0), ("float32", NO_TF32)):
            if flags and (features, dim) != SIZES[0][1:]:
                continue
            torch.backends.cuda.matmul.allow_tf32 = not flags
            rows.append(_measure_size(library, torch, copy, batch, features, dim, dtype, flags))
    return rows


def check_large(library: Library, torch) -> str | None:
    """Offsets beyond 2^31 numbers: the first and last samples of a batch that has them.

    Returns what is wrong, or None; also None where the card has no memory for it.
    """
    features, dim, dtype = 27, 128, "float16"
    batch = math.ceil((2**31 + 2**28) / (features * dim))
    needed_bytes = 2 * batch * (2 * features * dim + 2 * width(dim, features))
    if needed_bytes > 0.8 * torch.cuda.mem_get_info()[0]:
        return None
    buffers = _make_buffers(torch, batch, features, dim, dtype, for_torch=False)
    shape = _shape(batch, features, dim, dtype)
    _run_forward(library, torch, shape, buffers, 0)
    _run_backward(library, torch, shape, buffers, 0)
    return _complaint_of_some_samples(torch, buffers, dtype, library.kernel(shape))


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
    forward = _compare(torch, copy, ours, theirs, buffers, batch * (x_bytes + row_bytes))
    ours = functools.partial(_run_backward, library, torch, shape, flags=flags)
    results = {id(b): theirs(b) for b in buffers}

    def their_backward(b):
        torch.autograd.grad(results[id(b)], b.together, b.upstream, retain_graph=True)

    moved_bytes = batch * (2 * x_bytes + row_bytes)
    backward = _compare(torch, copy, ours, their_backward, buffers, moved_bytes)
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


def _copier(torch) -> Callable:
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    return lambda _: target.copy_(source)


def _compare(torch, copy, ours, theirs, buffers: Sequence[_Buffers], bytes_moved) -> Measured:
    """Medians of rounds in which the contenders take turns, in an order that alternates."""
    contenders = {"ours": ours, "theirs": theirs, "copy": copy}
    next_buffers = dict.fromkeys(contenders, 0)
    times_ms: dict[str, list[float]] = {name: [] for name in contenders}

    def run(name: str, repeats: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            contenders[name](buffers[next_buffers[name] % len(buffers)])
            next_buffers[name] += 1
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / repeats

    repeats = {}
    for name in contenders:
        for _ in range(WARM_UP_ROUNDS):
            once_ms = run(name, 1)
        repeats[name] = max(1, math.ceil(ROUND_MS / once_ms))
    for turn in range(ROUNDS):
        for name in list(contenders)[:: 1 if turn % 2 == 0 else -1]:
            times_ms[name].append(run(name, repeats[name]))
    ms = {name: statistics.median(times) for name, times in times_ms.items()}
    low, _, high = statistics.quantiles(times_ms["ours"], n=4)
    copy_bytes_per_ms = 2 * COPY_BYTES / ms["copy"]
    return Measured(
        ms["ours"],
        (high - low) / ms["ours"],
        bytes_moved,
        bytes_moved / ms["ours"] / copy_bytes_per_ms,
        ms["theirs"] / ms["ours"],
    )


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
    titles = ["batch x F x D", "dtype", "kernel"]
    titles += [f"{way} {what}" for way in ("fwd", "bwd") for what in _COLUMNS]
    lines = [titles, ["---"] * 3 + ["---:"] * (len(titles) - 3)]
    for row in rows:
        line = [f"{row.batch:,} x {row.features} x {row.dim}", row.dtype, row.kernel]
        for measured in (row.forward, row.backward):
            line += [
                f"{measured.ms:.3f}",
                f"{measured.spread:.1%}",
                f"{measured.gb_per_s:,.0f}",
                f"{measured.copy_share:.0%}",
                f"{measured.torch_speedup:.1f}",
            ]
        lines.append(line)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


_COLUMNS = ("ms", "spread", "GB/s", "of copy", "x torch")


def page(rows: Sequence[Row], machine: dict[str, str], arguments: Sequence[str]) -> str:
    """A dated page of results for benchmarks/results."""
    copy_gb_per_s = statistics.median(
        m.gb_per_s / m.copy_share for row in rows for m in (row.forward, row.backward)
    )
    facts = "\n".join(f"- {name}: {value}" for name, value in machine.items())
    return f"""# The dot interaction's CUDA kernels on {machine["device"]}

{datetime.date.today().isoformat()}, `python -m tests.gpu {shlex.join(arguments)}`

{facts}
- a copy of {COPY_BYTES >> 20} MiB on the card: {copy_gb_per_s:,.0f} GB/s, read and written

{table(rows)}

Medians of {ROUNDS} rounds of at least {ROUND_MS:.0f} ms each, timed by events; spread:
interquartile range by median. In a round our kernel, PyTorch and the copy take turns, in an order
that alternates; buffers rotate so that together they pass the L2 cache. GB/s: each input read once,
each output written once (x_0 is the head too). "of copy": that by the copy's. "x torch": the time
of `torch.bmm`, the triangle by index and `torch.cat` (backward: their autograd) by ours; PyTorch
has all features in one tensor already, and TF32 where our kernel has it.
"""


def machine(torch) -> dict[str, str]:
    """Returns the properties of the machine that the numbers depend on."""
    query = [
        "nvidia-smi",
        "--query-gpu=driver_version,clocks.max.sm,power.limit",
        "--format=csv,noheader",
    ]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True)
        driver = done.stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        driver = "unknown"
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "memory": f"{properties.total_memory / 2**30:.0f} GiB",
        "L2 cache": f"{properties.L2_cache_size / 2**20:.0f} MiB",
        "multiprocessors": str(properties.multi_processor_count),
        "driver, highest clock, power limit": driver,
        "PyTorch": f"{torch.__version__}, CUDA {torch.version.cuda}",
    }
