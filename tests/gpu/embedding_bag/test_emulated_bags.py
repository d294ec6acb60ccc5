"""The embedding bag's CUDA kernels on the emulator."""

import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.gpu import build
from tests.gpu.embedding_bag import check, embedding_bag, reference
from tests.gpu.embedding_bag.cases import BagCase
from tests.gpu.embedding_bag.inputs import make_inputs
from tests.gpu.embedding_bag.library import (
    DTYPES,
    OPTIMIZERS,
    Column,
    EmulatedBagLibrary,
    Ids,
    Optimizer,
    Table,
    Use,
)
from tests.gpu.library import Device
from tests.gpu.memory import HostMemory

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def kernels() -> tuple[EmulatedBagLibrary, HostMemory]:
    """The repository's kernels, each access checked."""
    library = EmulatedBagLibrary(build.emulated(800, folder=build.BAG_SOURCES))
    return library, HostMemory(library)


def test_sweep_of_bags(kernels, request):
    """Arguments, dims, layouts, dtypes, optimizers: right numbers in the right places, no fault."""
    checked = embedding_bag.checked(*kernels, request.config.getoption("--long"))
    assert [(name, complaints) for name, complaints in checked if complaints] == []


def test_orders_of_threads_of_bags(kernels):
    """Bits do not depend on the order of threads and blocks, or on the number of blocks."""
    orders = embedding_bag.in_other_orders(*kernels, range(1, 4))
    assert [(case, complaints) for case, complaints in orders if complaints] == []


def test_expected_numbers_by_hand(kernels):
    """Two samples, a sum and a mean; row 6 is in both bags of the first."""
    case = BagCase(2, 2, ((2, 3, False), (2, 3, True)), optimizer="sgd", rows_after=0)
    inputs = make_inputs(case)
    table = np.zeros((11, 2), np.float32)
    table[5:] = [[1, 10], [2, 20], [3, 30], [4, 40], [5, 50], [6, 60]]
    batch = inputs.batches[0]
    batch.ids[:] = [0, 1, 1, 2, 2, -1, 0, 0]
    batch.upstream[:] = [[1, 2], [4, 8], [16, 32], [64, 128]]
    inputs = inputs._replace(table=table)
    output = check.run_forward(*kernels, case, inputs)
    np.testing.assert_array_equal(output, [[3, 30], [5.5, 55], [3, 30], [4, 40]])
    rows, gradients = check.run_gradient(*kernels, case, inputs)
    assert rows.tolist() == [5, 6, 7, 8, 9, 10]
    np.testing.assert_array_equal(gradients, [[1, 2], [1, 2], [16, 32], [64, 128], [2, 4], [2, 4]])
    # w = 0.75 w - 0.125 * 0.5 g
    weights, *_ = check.run_update(*kernels, case, inputs)
    np.testing.assert_array_equal(weights[5:7], [[0.75 - 0.0625, 7.5 - 0.125], [1.4375, 14.875]])
    np.testing.assert_array_equal(weights[8], [3 - 4, 30 - 8])


@pytest.mark.parametrize(
    ("rows", "dim", "dtype"),
    [(2**27, 24, "float16"), (2**27, 17, "float16"), (2**32 - 1, 1, "bfloat16")],
)
def test_table_of_many_numbers(kernels, rows, dim, dtype):
    """Offsets beyond 2^31 numbers and 2^32 bytes; only touched rows take memory."""
    library, memory = kernels
    values = _sparse(rows * dim, np.uint16).reshape(rows, dim)
    slot = _sparse(rows * dim, np.float32).reshape(rows, dim)
    touched = np.array([0, 1, 2**26 + 3, rows - 2, rows - 1])
    one = {"float16": 0x3C00, "bfloat16": 0x3F80}[dtype]
    values[touched] = one
    ids = np.repeat(touched, [1, 2, 3, 4, 100])  # the sorted pairs pass a stretch
    gradient = np.ones((len(ids), dim), np.float32)
    scalars = np.array([1, 0.5, 1, 0, 0, 0], np.float32)
    columns = (Column * 1)((1, 0, rows, 0))
    table = Table(values.ctypes.data, rows, dim, DTYPES[dtype])
    use = (Use * 1)()
    use[0].ids = Ids(ids.ctypes.data, 8, len(ids), len(ids), 0, 0, columns, 1)
    use[0].gradient = gradient.ctypes.data
    output = np.zeros_like(gradient)
    workspace = np.zeros(library.workspace(table, use, 1), np.uint8)
    optimizer = Optimizer(OPTIMIZERS["adagrad"])
    optimizer.slots[0] = slot.ctypes.data
    library.set_device(Device())
    stream = memory.stream()
    assert library.forward(table, use[0].ids, DTYPES["float32"], output.ctypes.data, stream) == 0
    assert (output == 1).all()
    error = library.update(
        *(table, use, 1, DTYPES["float32"], optimizer),
        *(scalars.ctypes.data, workspace.ctypes.data, stream),
    )
    assert error == 0
    np.testing.assert_array_equal(slot[touched, 0], [1, 4, 9, 16, 10000])
    assert (slot[touched] == slot[touched, :1]).all()
    # 1 - 0.5 g / |g|
    half = {"float16": 0x3800, "bfloat16": 0x3F00}[dtype]
    assert (values[touched] == half).all()
    assert not values[[2, 2**26 + 2, 2**26 + 4, rows - 3]].any()


def _sparse(count: int, dtype) -> np.ndarray:
    """Zeros, of which only the pages that are written take memory."""
    no_reserve = 0x4000  # MAP_NORESERVE, which Python names from 3.13 on
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
    mapping = mmap.mmap(-1, count * np.dtype(dtype).itemsize, flags=flags)
    return np.frombuffer(mapping, dtype)


def test_order_of_sums():
    """The reference's own order: 2^24 + 1 is lost, and 1 + 1 in another stretch is not."""
    rows = np.zeros(4, np.int64)
    pairs = reference.Pairs(np.arange(4), rows, np.ones(4), 4)
    upstream = np.array([[2.0**24], [1], [1], [1]])
    assert reference.ordered_gradient([pairs], [upstream], 64).tolist() == [[2.0**24]]
    assert reference.ordered_gradient([pairs], [upstream], 2).tolist() == [[2.0**24 + 2]]


def test_bags_under_sanitizers(root: Path):
    """AddressSanitizer and UBSan, in a process that has them from its start."""
    command = [sys.executable, "-m", "tests.gpu", "--emulate", "800", "--sanitize"]
    command += ["--ops", "embedding_bag"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    assert ", 0 wrong" in done.stdout
