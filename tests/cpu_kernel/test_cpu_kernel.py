"""The CPU kernels through the C interface, with each instruction set of this processor."""

import ctypes
import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.cpu_kernel.cpu_library import (
    BAD_ARGUMENT,
    DTYPES,
    ISAS,
    OUT_OF_MEMORY,
    Gradients,
    Shape,
    backward,
    empty_like_rows,
    forward,
    make_shape,
    plain_backward,
    plain_forward,
    pointer_to,
    round_up,
)
from tests.cpu_kernel.guarded_memory import GuardedMemory

SIZES = sorted(
    {
        *itertools.product(range(1, 41), [1, 8, 16, 33]),
        *itertools.product([1, 2, 3, 8, 27], range(1, 71)),
        *itertools.product([4, 6, 26], [96, 128, 144, 200]),
        *((features, 5) for features in (63, 64, 65, 100, 127, 128, 129)),
        *((3, dim) for dim in (255, 256, 257, 511, 513, 1000, 1023, 1024, 1025)),
        *((129, 1), (129, 130), (30, 1025), (300, 9), (9, 3000)),
    }
)


def whole_numbers(generator, dtype, *shape) -> np.ndarray:
    """-4 ... 4: sums of their products are exact in float32, so results are known to the bit."""
    return generator.integers(-4, 5, shape).astype(np.float32).astype(dtype)


def normal_numbers(generator, dtype, *shape) -> np.ndarray:
    return generator.standard_normal(shape, np.float32).astype(dtype)


def as_bits(tensor: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(tensor).view({2: np.uint16, 4: np.uint32}[tensor.itemsize])


def apart(first, rest, gap):
    """first and rest with row strides `gap` wider than their rows."""
    wide = [np.empty([len(t), t.shape[1] + gap], t.dtype)[:, : t.shape[1]] for t in (first, rest)]
    wide[0][...], wide[1][...] = first, rest
    return wide


def joined(first, rest):
    """first and rest as views of one [batch, features * dim]."""
    both = np.concatenate([first, rest], axis=1)
    return both[:, : first.shape[1]], both[:, first.shape[1] :]


# ---- results ------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_end", [True, False], ids=["end of page", "start of page"])
def test_all_sizes_between_guard_pages(library, isa, dtype, at_end, request):
    """Whole numbers between guard pages: results are exact to the bit, and no byte next to the
    tensors is read or written. Layouts and heads alternate over the sizes."""
    generator = np.random.default_rng(5)
    memories = [GuardedMemory(1 << 20) for _ in range(8)]
    stride = (1 if at_end else 7) * (1 if request.config.getoption("--long") else 4)
    for turn, (features, dim) in enumerate(SIZES[::stride]):
        head_width, split_head = [(0, False), (dim, False), (dim, True)][turn % 3]
        batch, sizes = 2, f"{features} features x {dim}, head {head_width}, turn {turn}"
        width = library.dot_interact_width(head_width, features)
        first = whole_numbers(generator, dtype, batch, dim)
        rest = whole_numbers(generator, dtype, batch, (features - 1) * dim)
        head = normal_numbers(generator, dtype, batch, dim) if head_width else None
        upstream = whole_numbers(generator, dtype, batch, width)
        first, rest = apart(first, rest, gap=[0, 3, 8][turn % 3])
        expected_output = plain_forward(first, rest, features, head).astype(dtype)
        expected = plain_backward(first, rest, features, upstream, head_width, split_head)
        tensors = [first, rest, upstream, np.zeros([batch, width], dtype)]
        tensors += [empty_like_rows(first), empty_like_rows(rest)]
        tensors += [head] * (head is not None) + [np.zeros_like(head)] * split_head
        placed = [
            memory.place(tensor, at_end) for memory, tensor in zip(memories, tensors, strict=False)
        ]
        first, rest, upstream, output, of_first, of_rest = placed[:6]
        for tensor in (output, of_first, of_rest):
            tensor[...] = 77
        forward(library, first, rest, features, placed[6] if head_width else None, output)
        np.testing.assert_array_equal(output, expected_output, sizes)
        gradients = Gradients(of_first, of_rest, placed[7] if split_head else None)
        backward(
            library, first, rest, features, upstream, head_width, split_head, gradients=gradients
        )
        np.testing.assert_array_equal(gradients.first, expected.first.astype(dtype), sizes)
        np.testing.assert_array_equal(gradients.rest, expected.rest.astype(dtype), sizes)
        if split_head:
            np.testing.assert_array_equal(as_bits(gradients.head), as_bits(upstream[:, :dim]))
        for memory in memories[: len(placed)]:
            assert memory.is_sound(), sizes


@pytest.mark.parametrize("batch", [0, 1, 255])
def test_batches_and_layouts(library, isa, dtype, batch):
    """One tensor of all features or two; any split over calls and threads gives the same bits."""
    generator = np.random.default_rng(batch)
    features, dim = 11, 24
    first = normal_numbers(generator, dtype, batch, dim)
    rest = normal_numbers(generator, dtype, batch, (features - 1) * dim)
    upstream = normal_numbers(generator, dtype, batch, round_up(dim + 55))
    results = []
    for tensors in ((first, rest), joined(first, rest), apart(first, rest, gap=7)):
        output = forward(library, *tensors, features, head=first)
        gradients = backward(library, *tensors, features, upstream, head_width=dim)
        results.append((output, gradients.first, gradients.rest))
    output = np.full_like(results[0][0], 77)
    gradients = Gradients(empty_like_rows(first), empty_like_rows(rest), None)
    cuts = sorted(generator.integers(0, batch + 1, 6).tolist())
    with ThreadPoolExecutor(3) as threads:
        for begin, end in itertools.pairwise([0, *cuts, batch]):
            part = {"begin": begin, "end": end}
            threads.submit(forward, library, first, rest, features, first, output, **part)
            threads.submit(
                backward, library, first, rest, features, upstream, dim,
                gradients=gradients, **part,
            )  # fmt: skip
    results.append((output, gradients.first, gradients.rest))
    for other in results[1:]:
        for tensor, same in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(as_bits(tensor), as_bits(same))


def aligned(dtype, batch, width, stride, offset_bytes):
    """Returns a tensor that begins `offset_bytes` after a 64-byte boundary."""
    size = batch * stride * np.dtype(dtype).itemsize
    storage = np.empty(size + 128, np.uint8)
    begin = -storage.ctypes.data % 64 + offset_bytes
    return storage[begin : begin + size].view(dtype).reshape(batch, stride)[:, :width]


def test_gradients_written_past_the_caches(library, isa, dtype):
    """Gradients of over 32 MiB whose rows all lie on 64-byte boundaries take other stores: the same
    bits as where only the first row of one of them lies elsewhere, or only the later rows."""
    generator = np.random.default_rng(2)
    features, dim = 8, 96
    widths = dim, (features - 1) * dim
    batch = 34 * 2**20 // (sum(widths) * np.dtype(dtype).itemsize)
    rows = [normal_numbers(generator, dtype, 1, width) for width in widths]
    upstream = normal_numbers(generator, dtype, batch, 32)
    results = []
    for gap, *offsets in ((0, 0, 0), (0, 4, 0), (0, 0, 4), (1, 0, 0)):
        features_of_all, gradients = (
            [aligned(dtype, batch, w, w + gap, o) for w, o in zip(widths, offsets, strict=True)]
            for _ in range(2)
        )
        for tensor, row in zip(features_of_all, rows, strict=True):
            tensor[...] = row
        backward(
            library, *features_of_all, features, upstream, gradients=Gradients(*gradients, None)
        )
        results.append(gradients)
    for other in results[1:]:
        for tensor, same in zip(results[0], other, strict=True):
            assert np.array_equal(as_bits(tensor), as_bits(same))
    expected = plain_backward(*(tensor[:9] for tensor in features_of_all), features, upstream[:9])
    np.testing.assert_allclose(
        results[0][1][:9].astype(np.float64), expected.rest, rtol=0.01, atol=0.05
    )


@pytest.mark.parametrize(
    ("features", "dim"), [(2, 1000), (3, 17), (13, 16), (27, 64), (27, 128), (60, 33), (65, 40)]
)
def test_errors_against_plain_version(library, isa, dtype, features, dim):
    """Against float64: at most 2 times (gradients 3 times) the error of sums in float32 by numpy,
    rounded to the dtype; and each result within what its format and the sums' length allow."""
    generator = np.random.default_rng(features * dim)
    first = normal_numbers(generator, dtype, 40, dim)
    rest = normal_numbers(generator, dtype, 40, (features - 1) * dim)
    width = round_up(dim + features * (features - 1) // 2)
    upstream = normal_numbers(generator, dtype, 40, width)
    ours = [forward(library, first, rest, features, first)]
    plain = [plain_forward(first, rest, features, first, np.float32)]
    exact = [plain_forward(first, rest, features, first)]
    summands = [plain_forward(abs(first), abs(rest), features, abs(first))]
    for add, numbers in ((plain, np.float32), (exact, np.float64)):
        gradients = plain_backward(first, rest, features, upstream, dim, numbers=numbers)
        add += [np.concatenate([gradients.first, gradients.rest], axis=1)]
    gradients = backward(library, first, rest, features, upstream, dim)
    ours += [np.concatenate([gradients.first, gradients.rest], axis=1)]
    gradients = plain_backward(abs(first), abs(rest), features, abs(upstream), dim)
    summands += [np.concatenate([gradients.first, gradients.rest], axis=1)]
    roundoff = float(ml_dtypes.finfo(dtype).eps) / 2
    for result, other, truth, sizes, length, factor in zip(
        ours, plain, exact, summands, (dim, features + 1), (2, 3), strict=True
    ):
        error = result.astype(np.float64) - truth
        error_of_plain = other.astype(dtype).astype(np.float64) - truth
        assert np.square(error_of_plain).mean() > 0
        assert np.square(error).mean() <= factor**2 * np.square(error_of_plain).mean()
        assert abs(error).max() <= factor * abs(error_of_plain).max()
        in_sum = length * 2.0**-24 * sizes
        assert (abs(error) <= in_sum + roundoff * (abs(truth) + in_sum) + 1e-7).all()


# ---- numbers of 16 bits --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_all_16_bit_numbers(library, isa, name):
    """The head's gradient plus a sum of zeros: itself, but that -0 + 0 is 0 and a NaN is quiet."""
    numbers = np.arange(1 << 16, dtype=np.uint16).reshape(-1, 32)
    zeros = np.zeros(numbers.shape, DTYPES[name])
    upstream = np.concatenate([numbers.view(DTYPES[name]), zeros[:, :8]], axis=1)
    gradients = backward(library, zeros, zeros, 2, upstream, head_width=32)
    infinity, quiet = {"float16": (0x7C00, 0x200), "bfloat16": (0x7F80, 0x40)}[name]
    expected = np.where((numbers & 0x7FFF) > infinity, numbers | quiet, numbers)
    expected[numbers == 0x8000] = 0
    np.testing.assert_array_equal(as_bits(gradients.first), expected)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_rounding_of_products(library, isa, name):
    """Every number times a random one: exact in float32 but for bfloat16's smallest, then rounded
    as numpy and ml_dtypes round; subnormal, infinite and NaN results among them."""
    dtype = DTYPES[name]
    generator = np.random.default_rng(1)
    left = np.arange(1 << 16, dtype=np.uint16)
    right = generator.permutation(left)
    if name == "bfloat16":  # no subnormal factors and products
        right = np.where(abs(right.view(dtype).astype(np.float32)) < 1, right ^ 0x4000, right)
    left, right = left.view(dtype)[:, np.newaxis], right.view(dtype)[:, np.newaxis]
    with np.errstate(all="ignore"):
        expected = (left.astype(np.float32) * right.astype(np.float32)).astype(dtype)[:, 0]
    if name == "bfloat16":
        tiny = abs(expected.astype(np.float32)) < 2.0**-125
        assert tiny.mean() < 0.3
        expected = np.where(tiny, 0, expected.astype(np.float32)).astype(dtype)
    output = forward(library, left, right, 2)[:, 0]
    if name == "bfloat16":
        output = np.where(tiny, 0, output.astype(np.float32)).astype(dtype)
    else:
        half = abs(expected.astype(np.float64))
        assert ((half > 0) & (half < 2.0**-14)).sum() > 1000
    assert np.isinf(expected).sum() > 100
    np.testing.assert_array_equal(np.isnan(output), np.isnan(expected))
    np.testing.assert_array_equal(output[~np.isnan(output)], expected[~np.isnan(expected)])


# ---- NaN and infinity ----------------------------------------------------------------------------


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf], ids=["nan", "inf", "-inf"])
def test_nonfinite_numbers(library, isa, dtype, number):
    """A feature that is not finite spoils its pairs and the other features' gradients, never its
    own gradient, its neighbours' pairs or another sample."""
    generator = np.random.default_rng(9)
    features, dim, spoilt = 14, 37, 5
    first = normal_numbers(generator, dtype, 3, dim)
    rest = normal_numbers(generator, dtype, 3, (features - 1) * dim)
    upstream = normal_numbers(generator, dtype, 3, round_up(91))
    clean_output = forward(library, first, rest, features)
    clean = backward(library, first, rest, features, upstream)
    rest[1, (spoilt - 1) * dim + 36] = number
    output = forward(library, first, rest, features)
    spoilt_pairs = np.zeros_like(output, bool)
    rows, columns = np.tril_indices(features, k=-1)
    spoilt_pairs[1, :91] = (rows == spoilt) | (columns == spoilt)
    assert not np.isfinite(output[spoilt_pairs]).any()
    np.testing.assert_array_equal(output[~spoilt_pairs], clean_output[~spoilt_pairs])
    gradients = backward(library, first, rest, features, upstream)
    is_spoilt = np.zeros([3, features, dim], bool)
    is_spoilt[1, :, 36] = np.arange(features) != spoilt
    for result, before, mask in (
        (gradients.first, clean.first, is_spoilt[:, 0]),
        (gradients.rest, clean.rest, is_spoilt[:, 1:].reshape(3, -1)),
    ):
        assert not np.isfinite(result[mask]).any()
        np.testing.assert_array_equal(result[~mask], before[~mask])


def test_bits_of_head(library, isa, dtype):
    head = np.random.default_rng(0).integers(0, 1 << 16, [40, 36], np.uint16).view(dtype)
    dim = head.shape[1]
    rest = np.zeros([40, dim], dtype)
    output = forward(library, np.zeros([40, dim], dtype), rest, 2, head)
    np.testing.assert_array_equal(as_bits(output[:, :dim]), as_bits(head))
    gradients = backward(library, rest, rest, 2, output, head_width=dim, split_head=True)
    np.testing.assert_array_equal(as_bits(gradients.head), as_bits(head))


# ---- sizes and errors ----------------------------------------------------------------------------


def test_features_without_numbers(library, isa, dtype):
    """With dim 0 all pairs are zero and features are not read; one feature forms no pairs."""
    nothing = np.zeros([2, 0], dtype)
    output = np.full([2, 8], 77, dtype)
    shape = make_shape(nothing, nothing, 4, 0)
    call = library.dot_interact_cpu_forward
    assert call(ctypes.byref(shape), None, None, None, pointer_to(output), 0, 2) == 0
    assert (output == 0).all()
    call = library.dot_interact_cpu_backward
    assert call(ctypes.byref(shape), None, None, pointer_to(output), None, None, None, 0, 2) == 0
    first = whole_numbers(np.random.default_rng(0), dtype, 2, 3)
    shape = make_shape(first, nothing, 1, 0)
    assert library.dot_interact_width(0, 1) == 0
    call = library.dot_interact_cpu_forward
    assert call(ctypes.byref(shape), pointer_to(first), None, None, None, 0, 2) == 0
    gradients = backward(library, first, nothing, 1, np.zeros([2, 0], dtype))
    assert (gradients.first == 0).all()


def test_widths(library):
    assert library.dot_interact_width(128, 27) == 480
    assert library.dot_interact_width(0, 5) == 16
    assert library.dot_interact_width(1, 1) == 8
    assert library.dot_interact_width(0, 1 << 31) == (1 << 30) * ((1 << 31) - 1)
    for head, features in ((-1, 5), (0, 0), (0, 1 << 33), ((1 << 63) - 3, 1)):
        assert library.dot_interact_width(head, features) == BAD_ARGUMENT


def call_both(library, tensors=None, begin=0, end=2, **sizes):
    """Returns the errors of forward and backward for a valid 2 x 3 x 4 call with these changes."""
    numbers = {
        name: np.zeros(200, np.float32)
        for name in ("first", "rest", "head", "output", "upstream", "of_first", "of_rest")
    } | (tensors or {})
    sound = {"batch": 2, "features": 3, "dim": 4, "head": 4, "first_stride": 4, "rest_stride": 8}
    shape = Shape(*(sound | {"dtype": 0} | sizes).values())
    pointers = {name: pointer_to(tensor) for name, tensor in numbers.items()}
    outcome = (
        library.dot_interact_cpu_forward(
            ctypes.byref(shape), *(pointers[n] for n in ("first", "rest", "head", "output")),
            begin, end,
        ),
        library.dot_interact_cpu_backward(
            ctypes.byref(shape),
            *(pointers[n] for n in ("first", "rest", "upstream", "of_first", "of_rest")),
            None, begin, end,
        ),
    )  # fmt: skip
    if outcome == (BAD_ARGUMENT, BAD_ARGUMENT):
        assert not any(tensor is not None and tensor.any() for tensor in numbers.values())
    return outcome


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch": -1, "end": 0},
        {"features": 0},
        {"features": 1 << 40, "rest_stride": 1 << 50},
        {"dim": -1, "head": 0},
        {"dim": 1 << 62, "head": 0, "first_stride": 1 << 62, "rest_stride": (1 << 63) - 1},
        {"head": 3},
        {"head": -4},
        {"first_stride": 3},
        {"rest_stride": 7},
        {"rest_stride": 1 << 62},
        {"batch": 1 << 60},
        {"dtype": 3},
        {"dtype": -1},
        {"begin": -1},
        {"begin": 2, "end": 1},
        {"end": 3},
    ],
    ids=str,
)
def test_bad_sizes(library, wrong):
    assert call_both(library) == (0, 0)
    assert call_both(library, **wrong) == (BAD_ARGUMENT, BAD_ARGUMENT)


def test_null_pointers(library):
    for name, expected in {
        "first": (BAD_ARGUMENT, BAD_ARGUMENT),
        "rest": (BAD_ARGUMENT, BAD_ARGUMENT),
        "head": (BAD_ARGUMENT, 0),
        "output": (BAD_ARGUMENT, 0),
        "upstream": (0, BAD_ARGUMENT),
        "of_first": (0, BAD_ARGUMENT),
        "of_rest": (0, BAD_ARGUMENT),
    }.items():
        assert call_both(library, {name: None}) == expected, name
        assert call_both(library, {name: None}, begin=1, end=1) == (0, 0), "empty range of samples"
    assert library.dot_interact_cpu_forward(None, *[None] * 4, 0, 0) == BAD_ARGUMENT
    assert library.dot_interact_cpu_backward(None, *[None] * 6, 0, 0) == BAD_ARGUMENT


def test_out_of_memory(library):
    huge = {"dim": (1 << 56) + 1, "head": 0, "first_stride": 1 << 57, "rest_stride": 1 << 58}
    assert call_both(library, **huge) == (OUT_OF_MEMORY, OUT_OF_MEMORY)


def test_choice_of_instruction_set(library):
    flags = Path("/proc/cpuinfo").read_text()
    usable = [name for name in ISAS if library.dot_interact_cpu_use_isa(name.encode()) == 0]
    assert ("avx2" in usable) == (" avx2 " in flags and " fma " in flags and " f16c " in flags)
    assert ("avx512" in usable) == all(
        f" avx512{part} " in flags for part in ("f", "bw", "dq", "vl")
    )
    assert "generic" in usable
    for name in usable:
        assert library.dot_interact_cpu_use_isa(name.encode()) == 0
        assert library.dot_interact_cpu_isa().decode() == name
        assert library.dot_interact_cpu_use_isa(b"sse9") == BAD_ARGUMENT
        assert library.dot_interact_cpu_isa().decode() == name
    assert library.dot_interact_cpu_use_isa(None) == 0
    assert library.dot_interact_cpu_isa().decode() == usable[0]
