"""Runs a kernel on one case and reports the errors of its results."""

import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tests.gpu import reference
from tests.gpu.cases import Case
from tests.gpu.library import (
    BAD_ARGUMENT,
    DTYPES,
    NO_TF32,
    PLAIN,
    EmulatedLibrary,
    Library,
    Shape,
    width,
)
from tests.gpu.memory import INPUT_GUARD, OUTPUT_GUARD, Memory

_BROKEN = (np.nan, np.inf, -np.inf)


class Inputs(NamedTuple):
    """Input tensors of one case, in the storage of its dtype."""

    x: np.ndarray  # [batch, F, D]
    head: np.ndarray  # [batch, head]
    upstream: np.ndarray  # [batch, width]


class Results(NamedTuple):
    """Outputs of one case, in the storage of its dtype; complaints about launches and writes."""

    output: np.ndarray  # [batch, width]
    gradient: np.ndarray  # [batch, F, D]
    head_gradient: np.ndarray | None  # [batch, head]
    complaints: list[str]


def make_inputs(case: Case) -> Inputs:
    """Normal numbers, the same for the same case."""
    sizes = case._replace(device=None, broken=False)
    random = np.random.default_rng(zlib.crc32(str(sizes).encode()))

    def normal(*shape):
        return reference.stored(random.standard_normal(shape, np.float32), case.dtype)

    head = case.dim if case.head else 0
    return Inputs(
        normal(case.batch, case.features, case.dim),
        normal(case.batch, head),
        normal(case.batch, width(head, case.features)),
    )


def _break(inputs: Inputs, case: Case) -> Inputs:
    """Puts NaN and infinities into sample 1, at places all over."""
    x, head, upstream = (array.copy() for array in inputs)
    random = np.random.default_rng(case.features)
    for turn, value in enumerate(_BROKEN):
        broken = reference.stored(np.float32(value), case.dtype)
        x[1, random.integers(case.features), random.integers(case.dim)] = broken
        if case.head:
            head[1, random.integers(case.dim)] = broken
        if turn < 2 and upstream.shape[1] > 0:
            upstream[1, random.integers(upstream.shape[1])] = broken
    return Inputs(x, head, upstream)


class _Features:
    """x_0 and the others in memory, as the case lays them out; or their gradients."""

    def __init__(self, memory: Memory, case: Case, x: np.ndarray, gradient: bool):
        self._case, self._shape = case, x.shape
        batch, features, dim = x.shape
        names = ("first_gradient", "rest_gradient") if gradient else ("first", "rest")
        offsets_bytes = [case.offset_of(name) * x.itemsize for name in names]
        if case.joined:
            tensor = memory.tensor(x, offsets_bytes[0], writable=gradient)
            self.tensors = [tensor]
            self.first = tensor.address
            self.rest = tensor.address + dim * x.itemsize if features > 1 else 0
            return
        filler = OUTPUT_GUARD if gradient else INPUT_GUARD
        self.tensors = []
        for part, gap, offset_bytes in zip(
            (x[:, :1], x[:, 1:]), _gaps(case), offsets_bytes, strict=True
        ):
            stride = part.shape[1] * dim + gap
            rows = np.full(batch * stride * x.itemsize, filler, np.uint8).view(x.dtype)
            rows = rows.reshape(batch, stride)
            rows[:, : stride - gap] = part.reshape(batch, stride - gap)
            # Nothing lies beyond the last sample's numbers.
            end = max(rows.size - gap, 0)
            self.tensors.append(memory.tensor(rows.reshape(-1)[:end], offset_bytes, gradient))
        self.first = self.tensors[0].address
        self.rest = self.tensors[1].address if features > 1 else 0

    def read(self, dtype: np.dtype) -> tuple[np.ndarray, list[str]]:
        """Returns the gradients [batch, F, D] and complaints about the bytes around them."""
        batch, features, dim = self._shape
        contents = [tensor.read() for tensor in self.tensors]
        complaints = [
            f"numbers next to tensor {i} of the gradients were written"
            for i, (_, intact) in enumerate(contents)
            if not intact
        ]
        if self._case.joined:
            return contents[0][0].view(dtype).reshape(self._shape), complaints
        parts = []
        for (data, _), gap, count in zip(
            contents, _gaps(self._case), (1, features - 1), strict=True
        ):
            stride = count * dim + gap
            filler = np.full(batch * stride * dtype.itemsize - data.size, OUTPUT_GUARD, np.uint8)
            rows = np.concatenate([data, filler]).view(dtype).reshape(batch, stride)
            between = rows[:, stride - gap :]
            if (np.ascontiguousarray(between).view(np.uint8) != OUTPUT_GUARD).any():
                complaints.append("the gap between samples of the gradients was written")
            parts.append(rows[:, : stride - gap].reshape(batch, count, dim))
        return np.concatenate(parts, axis=1), complaints


def run(library: Library, memory: Memory, case: Case, inputs: Inputs) -> Results:
    """Both kernels on tensors of `memory`; every number they leave unwritten is a poison."""
    dtype = np.dtype(reference.STORAGE[case.dtype])
    head = case.dim if case.head else 0
    shape = _shape(case)
    complaints = []

    def tensor(name, contents, writable):
        return memory.tensor(contents, case.offset_of(name) * dtype.itemsize, writable)

    def poison(*shape):
        return np.full((*shape, dtype.itemsize), OUTPUT_GUARD, np.uint8).view(dtype)[..., 0]

    def finish(error: int, what: str):
        memory.settle()
        if error != 0:
            complaints.append(f"{what} returns {error}: {library.error(error)}")

    def read(tensor, *shape):
        data, intact = tensor.read()
        if not intact:
            complaints.append("numbers next to an output were written")
        return data.view(dtype).reshape(shape)

    try:
        features = _Features(memory, case, inputs.x, gradient=False)
        head_tensor = tensor("head", inputs.head, writable=False)
        rows = (case.batch, width(head, case.features))
        output_tensor = tensor("output", poison(*rows), writable=True)
        addresses = (features.first, features.rest, head_tensor.address if head else 0)
        error = library.forward(
            shape, *addresses, output_tensor.address, case.flags, memory.stream()
        )
        finish(error, "forward")
        output = read(output_tensor, *rows).copy()
        memory.release()

        features = _Features(memory, case, inputs.x, gradient=False)
        gradients = _Features(memory, case, poison(*inputs.x.shape), gradient=True)
        upstream_tensor = tensor("upstream", inputs.upstream, writable=False)
        separate = head > 0 and not case.null_head_gradient
        head_gradient_tensor = tensor("head_gradient", poison(case.batch, head), writable=True)
        error = library.backward(
            *(shape, features.first, features.rest, upstream_tensor.address),
            *(gradients.first, gradients.rest),
            *(head_gradient_tensor.address if separate else 0, case.flags, memory.stream()),
        )
        finish(error, "backward")
        gradient, around = gradients.read(dtype)
        complaints += around
        head_gradient = read(head_gradient_tensor, case.batch, head).copy() if separate else None
    finally:
        memory.release()
    return Results(output, gradient.copy(), head_gradient, complaints)


def _uses_tf32(case: Case, kernel: str, backward: bool) -> bool:
    # The plain kernel and CUDA cores have full precision, which the bounds of TF32 would not see.
    if backward and kernel.endswith("backward plain"):
        return False
    return kernel.startswith("tf32") and not case.flags & (NO_TF32 | PLAIN)


def compare(case: Case, inputs: Inputs, results: Results, kernel: str) -> list[str]:
    """Returns a description of each error of the results; empty if they are correct."""
    if results.complaints:
        return results.complaints
    head = case.dim if case.head else 0
    pairs = case.features * (case.features - 1) // 2
    complaints = []

    def bits(array):
        return np.ascontiguousarray(array).view(np.uint8)

    def values(array):
        return reference.widened(array, case.dtype).astype(np.float64)

    if not np.array_equal(bits(results.output[:, :head]), bits(inputs.head)):
        complaints.append("the head is not copied bit by bit")
    if bits(results.output[:, head + pairs :]).any():
        complaints.append("the output is not filled with zeros")
    tf32 = _uses_tf32(case, kernel, backward=False)
    expected = reference.expected_pairs(inputs.x, case.dtype, tf32)
    got = values(results.output[:, head : head + pairs])
    complaints.append(reference.complaint("pairs", got, expected))

    upstream_pairs = inputs.upstream[:, head : head + pairs]
    upstream_head = inputs.upstream[:, :head]
    added = upstream_head if head and case.null_head_gradient else None
    tf32 = _uses_tf32(case, kernel, backward=True)
    expected = reference.expected_gradients(inputs.x, upstream_pairs, added, case.dtype, tf32)
    complaints.append(reference.complaint("gradient", values(results.gradient), expected))
    if results.head_gradient is not None and not np.array_equal(
        bits(results.head_gradient), bits(upstream_head)
    ):
        complaints.append("the head's gradient is not copied bit by bit")
    return [complaint for complaint in complaints if complaint]


def check(library: Library, memory: Memory, case: Case) -> list[str]:
    """Runs the case; returns a description of each error, with its place."""
    healthy = make_inputs(case)
    inputs = _break(healthy, case) if case.broken else healthy
    results = run(library, memory, case, inputs)
    complaints = compare(case, inputs, results, kernel_of(library, case))
    if case.broken and not complaints:
        # Nothing of a broken sample may reach the others.
        alone = run(library, memory, case, healthy)
        for name, with_it, without in zip(Results._fields, results, alone, strict=True):
            if isinstance(with_it, np.ndarray):
                for sample in (i for i in range(case.batch) if i != 1):
                    if with_it[sample].tobytes() != without[sample].tobytes():
                        complaints.append(f"{name} of sample {sample} changes with sample 1's NaN")
    return complaints


def kernel_of(library: Library, case: Case) -> str:
    """The kernel that a case takes."""
    return library.kernel(_shape(case), case.flags)


def _gaps(case: Case) -> tuple[int, int]:
    return case.gap_of("first"), case.gap_of("rest")


def _shape(case: Case) -> Shape:
    head = case.dim if case.head else 0
    first_gap, rest_gap = _gaps(case)
    first_stride, rest_stride = case.dim + first_gap, (case.features - 1) * case.dim + rest_gap
    if case.joined:
        first_stride = rest_stride = case.features * case.dim
    sizes = (case.batch, case.features, case.dim, head, first_stride, rest_stride)
    return Shape(*sizes, DTYPES[case.dtype])


# Sizes whose offsets in bytes pass 64 bits: each in one way, all others being in range.
_HUGE: tuple[dict, ...] = (
    dict(batch=1, features=1 << 31, dim=0, head=0),
    dict(batch=1, features=(1 << 31) - 1, dim=1 << 40, head=0, first_stride=1 << 40,
         rest_stride=1 << 41),
    dict(batch=1, dim=1 << 62, head=0, first_stride=1 << 62, rest_stride=(1 << 63) - 1),
    dict(batch=1, first_stride=1 << 60),
    dict(batch=1, rest_stride=1 << 60),
    dict(batch=1 << 30, first_stride=1 << 32),
    dict(batch=1 << 30, rest_stride=1 << 32),
    dict(batch=1 << 23, features=1 << 20, dim=1, head=0, rest_stride=1 << 20),
    dict(batch=1 << 60, features=1, dim=1, head=0, first_stride=1, rest_stride=0),
)  # fmt: skip


def check_arguments(library: Library, memory: Memory) -> list[str]:
    """Every argument that the interface excludes is refused, and nothing is launched."""
    good = dict(batch=2, features=3, dim=4, head=4, first_stride=4, rest_stride=8, dtype=0)
    wrong: list[dict] = [
        *(dict(batch=-1), dict(features=0), dict(features=-3), dict(dim=-1), dict(head=3)),
        *(dict(head=-4), dict(first_stride=3), dict(rest_stride=7), dict(dtype=3), dict(dtype=-1)),
        *_HUGE,
    ]
    data = memory.tensor(np.zeros(64, np.float32), 0, writable=False).address
    target = memory.tensor(np.zeros(64, np.float32), 0, writable=True).address
    complaints = []

    def expect_refusal(error: int, what: str):
        if error != BAD_ARGUMENT:
            complaints.append(f"{what}: {error} instead of {BAD_ARGUMENT}")

    for change in wrong:
        shape = Shape(**(good | change))
        expect_refusal(library.forward(shape, data, data, data, target), f"forward, {change}")
        error = library.backward(shape, data, data, data, target, target, target)
        expect_refusal(error, f"backward, {change}")
    expect_refusal(library.forward(None, data, data, data, target), "forward, no shape")
    error = library.backward(None, data, data, data, target, target, target)
    expect_refusal(error, "backward, no shape")
    shape = Shape(**good)
    for missing in range(4):
        pointers = [data, data, data, target]
        pointers[missing] = 0
        expect_refusal(library.forward(shape, *pointers), f"forward, pointer {missing} null")
    for missing in range(5):
        pointers = [data, data, data, target, target, target]
        pointers[missing] = 0
        expect_refusal(library.backward(shape, *pointers), f"backward, pointer {missing} null")
    memory.settle()
    memory.release()
    if not library.error(BAD_ARGUMENT) or not library.error(0) or not library.error(1):
        complaints.append("an error number has no text")
    return complaints


def same_for_every_seed(library, memory: Memory, case: Case, seeds) -> list[str]:
    """Results must not depend on the order in which the emulator's threads and blocks run."""
    inputs = make_inputs(case)
    complaints = []
    library.set_seed(0)
    first = run(library, memory, case, inputs)
    try:
        for seed in seeds:
            library.set_seed(seed)
            other = run(library, memory, case, inputs)
            complaints += [f"seed {seed}: {complaint}" for complaint in other.complaints]
            for name, array, expected in zip(Results._fields, other, first, strict=True):
                if isinstance(array, np.ndarray) and array.tobytes() != expected.tobytes():
                    complaints.append(f"seed {seed}: other bits in {name}")
    finally:
        library.set_seed(0)
    return first.complaints + complaints


def sweep(
    library: Library, memory: Memory, cases: Iterable[Case]
) -> Iterator[tuple[Case, list[str]]]:
    """Checks case by case; yields each case with the descriptions of its errors."""
    for case in cases:
        if case.device is not None:
            library.set_device(case.device)
        complaints = check(library, memory, case)
        if isinstance(library, EmulatedLibrary) and (race := library.take_race()) and complaints:
            complaints.append(f"garbage was read, first: {race}")
        yield case, complaints
