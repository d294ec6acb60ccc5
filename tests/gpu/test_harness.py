"""The harness without a GPU, its reference against loops, and its tables."""

import contextlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.gpu import __main__ as harness
from tests.gpu import (
    build,
    cases,
    check,
    compile_report,
    ptxas,
    reference,
    rounds,
    timing,
)
from tests.gpu.cases import Case
from tests.gpu.embedding_bag import timing as bag_timing
from tests.gpu.library import width
from tests.gpu.memory import GpuMemory

pytestmark = pytest.mark.long


def test_note_without_gpu(root: Path):
    """One sentence and success; PyTorch is hidden, so that machines with a GPU print it too."""
    program = (
        "import runpy, sys\n"
        "sys.modules['torch'] = None\n"
        "runpy.run_module('tests.gpu', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"There is no GPU .* nothing was checked or measured .*\.\n", done.stdout)


def test_imports(root: Path):
    """The harness imports only NumPy: a GPU machine may lack TensorFlow and the test packages."""
    program = (
        "import sys, tests.gpu.__main__, tests.gpu.timing, tests.gpu.embedding_bag.timing\n"
        "names = {name.partition('.')[0] for name in sys.modules}\n"
        "third_party = names & {'tensorflow', 'keras', 'pytest', 'nn', 'runtime', 'torch'}\n"
        "assert not third_party, third_party\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=root, check=True)


def test_sanitizers_without_emulator(capsys):
    with pytest.raises(SystemExit):
        harness.parse(["--sanitize"])
    assert "--sanitize is for the emulator: give --emulate ARCH too" in capsys.readouterr().err


def test_page_of_several_ops(capsys):
    with pytest.raises(SystemExit):
        harness.parse(["--output", "page.md"])
    assert "--output is the page of one op: give --ops OP too" in capsys.readouterr().err


def test_missing_compiler(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert harness.main(["--emulate", "800"]) == 2
    assert "no-such-compiler is not on the PATH" in capsys.readouterr().err
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    monkeypatch.delenv("CXX")
    with pytest.raises(build.BuildError, match="launch.cu"):
        build.emulated(800)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_symbols_of_library(tmp_path):
    """A TensorFlow op and this harness may be in one process, each with its own kernels' limits."""
    source = tmp_path / "limits.cu"
    source.write_text(
        '#include "cuda/primitives.cuh"\n'
        'extern "C" int error() { return dot_interact::device::Limits().error; }\n'
    )
    target = tmp_path / "limits.o"
    command = ["nvcc", "-std=c++17", "-Xcompiler=-fPIC", "-arch=sm_80", f"-I{build.SOURCES}"]
    subprocess.run([*command, "-c", str(source), "-o", str(target)], check=True)
    symbols = subprocess.run(["nm", str(target)], capture_output=True, text=True, check=True)
    kinds = {line.split()[-1]: line.split()[-2] for line in symbols.stdout.splitlines()}
    assert kinds["error"] == "T"
    unique = [name for name, kind in kinds.items() if kind == "u"]  # one of them in a process
    assert unique == []


# ---- Reference ----------------------------------------------------------------------------------


def _loops(x, upstream_pairs, added):
    """The definition, one number at a time."""
    batch, features, dim = x.shape
    pairs = np.zeros((batch, features * (features - 1) // 2))
    gradient = np.zeros_like(x)
    for n in range(batch):
        place = 0
        for i in range(features):
            for j in range(i):
                for d in range(dim):
                    pairs[n, place] += x[n, i, d] * x[n, j, d]
                    gradient[n, i, d] += upstream_pairs[n, place] * x[n, j, d]
                    gradient[n, j, d] += upstream_pairs[n, place] * x[n, i, d]
                place += 1
        if added is not None:
            gradient[n, 0] += added[n]
    return pairs, gradient


@pytest.mark.parametrize("features", [1, 2, 3, 5])
@pytest.mark.parametrize("add_head", [False, True])
def test_reference_against_loops(features, add_head):
    random = np.random.default_rng(features)
    x = random.standard_normal((2, features, 3)).astype(np.float32)
    upstream = random.standard_normal((2, features * (features - 1) // 2)).astype(np.float32)
    added = random.standard_normal((2, 3)).astype(np.float32) if add_head else None
    pairs, gradient = _loops(
        x.astype(np.float64),
        upstream.astype(np.float64),
        None if added is None else added.astype(np.float64),
    )
    expected = reference.expected_pairs(x, "float32", tf32=False)
    np.testing.assert_allclose(expected.values, pairs, rtol=1e-14, atol=1e-14)
    expected = reference.expected_gradients(x, upstream, added, "float32", tf32=False)
    np.testing.assert_allclose(expected.values, gradient, rtol=1e-14, atol=1e-14)


def test_reference_by_hand():
    """x_0 = (1, 2), x_1 = (3, 4), x_2 = (5, 6): 11, 17, 39; upstream 1, 10, 100."""
    x = np.array([[[1, 2], [3, 4], [5, 6]]], np.float32)
    assert reference.pair_products(x).tolist() == [[11, 17, 39]]
    gradient = reference.feature_gradients(x, np.array([[1, 10, 100]], np.float32))
    assert gradient.tolist() == [[[53, 64], [501, 602], [310, 420]]]


def test_tight_bounds():
    """Errors of the dtype pass; a dropped product, or TF32 where none is allowed, does not."""
    random = np.random.default_rng(0)
    x = reference.stored(random.standard_normal((4, 27, 128)), "float16")
    exact = reference.expected_pairs(x, "float16", tf32=False)
    rounded = reference.widened(reference.stored(exact.values, "float16"), "float16")
    assert reference.complaint("pairs", rounded.astype(np.float64), exact) is None
    x[:, :, 77] = 0
    short = reference.pair_products(x.astype(np.float64))
    assert "errs by up to" in reference.complaint("pairs", short, exact)

    x = random.standard_normal((4, 27, 128)).astype(np.float32)
    full = reference.expected_pairs(x, "float32", tf32=False)
    tf32 = reference.pair_products(reference.to_tf32(x)).astype(np.float64)
    assert reference.complaint("pairs", tf32, reference.expected_pairs(x, "float32", True)) is None
    assert "errs by up to" in reference.complaint("pairs", tf32, full)
    assert full.largest_error < exact.largest_error / 50


def test_infinities():
    """NaN stays NaN, infinity may become NaN but no number; others must be numbers."""
    x = np.array([[[1.0], [np.inf], [2.0], [np.nan]]], np.float32)
    expected = reference.expected_pairs(x, "float32", tf32=False)
    right = np.array([[np.inf, 2.0, np.inf, np.nan, np.nan, np.nan]])
    assert reference.complaint("pairs", right, expected) is None
    right[0, 0] = np.nan
    assert reference.complaint("pairs", right, expected) is None
    for place, value, text in (
        (0, 3.0, "must not be finite"),
        (3, np.inf, "must be NaN"),
        (1, np.nan, "must be finite"),
    ):
        wrong = right.copy()
        wrong[0, place] = value
        assert text in reference.complaint("pairs", wrong, expected)
    # The zero diagonal of S makes NaN of an infinite x_i in matrix products; a kernel may skip it.
    x = np.array([[[np.inf], [1.0]]], np.float32)
    upstream = np.array([[2.0]], np.float32)
    expected = reference.expected_gradients(x, upstream, None, "float32", tf32=False)
    for own in (2.0, np.nan):
        gradient = np.array([[[own], [np.inf]]])
        assert reference.complaint("gradient", gradient, expected) is None
    assert "must not be finite" in reference.complaint(
        "gradient", np.array([[[2.0], [5.0]]]), expected
    )


@pytest.mark.parametrize(
    ("damage", "noticed"),
    [
        ("head", "the head is not copied"),
        ("filler", "not filled with zeros"),
        ("pair", "pairs[1, 2] is"),
        ("gradient", "gradient[2, 1, 3] is"),
        ("head_gradient", "the head's gradient is not copied"),
    ],
)
def test_complaints_of_check(damage, noticed):
    """Right results pass; one wrong number anywhere does not."""
    case = Case(4, 5, 3, "float32", joined=False)
    inputs = check.make_inputs(case)
    pairs = reference.pair_products(inputs.x)
    filler = np.zeros((3, width(5, 4) - 5 - 6), np.float32)
    gradient = reference.feature_gradients(inputs.x, inputs.upstream[:, 5:11])
    output = np.concatenate([inputs.head, pairs, filler], axis=1)
    results = check.Results(output, gradient, inputs.upstream[:, :5].copy(), [])
    assert check.compare(case, inputs, results, "plain") == []
    if damage == "head":
        results.output[0, 1] += 1e-6
    elif damage == "filler":
        results.output[2, -1] = -0.0
    elif damage == "pair":
        results.output[1, 7] += 1e-4
    elif damage == "gradient":
        results.gradient[2, 1, 3] += 1e-4
    else:
        results.head_gradient[0, 0] = 0
    complaints = check.compare(case, inputs, results, "plain")
    assert len(complaints) == 1
    assert noticed in complaints[0]


# ---- Memory -------------------------------------------------------------------------------------


class _FakeTorch:
    """Stand-in for PyTorch in GpuMemory; a stream does its work when it is waited for."""

    uint8 = np.uint8

    class Tensor(np.ndarray):
        torch: "_FakeTorch"

        def copy_(self, contents):
            self.torch.current.append(lambda: np.copyto(self, contents))

        def data_ptr(self):
            return self.ctypes.data

        def to(self, device):
            return self.copy()

        def cpu(self):
            return self

        def numpy(self):
            return np.array(self)

    class Stream(list):
        cuda_stream = 0x100

        def wait(self):
            while self:
                self.pop(0)()

    def __init__(self):
        self.Tensor.torch = self
        self.cuda = self
        self.by_handle = {}
        self.current = self.default = self.Stream()
        self.default.cuda_stream = 0

    def full(self, shape, value, dtype, device):
        return np.full(shape, value, dtype).view(self.Tensor)

    def from_numpy(self, array):
        return array.view(self.Tensor)

    def default_stream(self):
        return self.default

    @contextlib.contextmanager
    def stream(self, stream):
        self.by_handle[stream.cuda_stream] = self.current = stream
        yield
        self.current = self.default

    def _sleep(self, cycles):
        assert not self.current, "the delay comes first"
        self.current.append(lambda: None)

    def synchronize(self):
        for stream in self.by_handle.values():
            stream.wait()


def test_contents_on_stream():
    """A kernel on another stream finds NaN; forward and backward runs both are put to the test."""
    torch = _FakeTorch()
    memory = GpuMemory(torch)
    contents = np.arange(8, dtype=np.uint8)
    on_own = []
    for run in range(18):
        tensor = memory.tensor(contents, 2, writable=True)
        handle = memory.stream()
        assert (tensor.read()[0] == 0xFF).all()
        for other in set(torch.by_handle) - {handle}:
            torch.by_handle[other].wait()
        assert (tensor.read()[0] == 0xFF).all()
        if handle != 0:
            on_own.append(run)
            assert len(torch.by_handle[handle]) == 2  # delay, copy
        memory.settle()
        read, intact = tensor.read()
        assert read.tolist() == contents.tolist()
        assert intact
        memory.release()
    assert {run % 2 for run in on_own} == {0, 1}


# ---- Cases and tables ---------------------------------------------------------------------------


@pytest.mark.parametrize("sweep", [cases.for_gpu(False), cases.for_emulator(False)])
def test_coverage_of_sweeps(sweep):
    """Every number of features, dim and style comes with every dtype."""
    seen = list(sweep)
    for dtype in cases.DTYPES:
        of_dtype = [case for case in seen if case.dtype == dtype]
        assert {case.features for case in of_dtype} >= set(cases.FEATURES)
        assert {case.dim for case in of_dtype} >= set(cases.DIMS)
        for field, values in dict(
            joined={True, False}, head={True, False}, null_head_gradient={True, False},
            offset={0, 1}, gap={0, 3, 8}, broken={True, False}, only={None, *cases.TENSORS},
        ).items():  # fmt: skip
            assert {getattr(case, field) for case in of_dtype} == values, (dtype, field)
        assert 0 in {case.batch for case in of_dtype}
    flags = {(case.dtype, case.flags) for case in seen}
    assert {("float32", 0), ("float32", 1), ("float32", 2), ("float16", 2)} <= flags


def test_table_and_page():
    """Derived figures: 6 GB in 2 ms are 3,000 GB/s."""
    forward = rounds.Measured(2.0, 0.01, 6_000_000_000, 0.9, 4.0)
    assert forward.gb_per_s == pytest.approx(3000)
    backward = rounds.Measured(4.0, 0.02, 9_000_000_000, 0.675, 2.5)
    row = timing.Row(65536, 27, 128, "float16", "f16 tensor cores", forward, backward)
    table = timing.table([row])
    lines = table.splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert (
        "| 65,536 x 27 x 128 | float16 | f16 tensor cores | 2.000 | 1.0% | 3,000 | 90% | 4.0 |"
        in table
    )
    assert lines[-1].endswith("| 4.000 | 2.0% | 2,250 | 68% | 2.5 |")
    page = timing.page([row], {"device": "Some Card", "driver": "1.2"}, ["--output", "page.md"])
    assert page.startswith("# The dot interaction's CUDA kernels on Some Card\n")
    assert "`python -m tests.gpu --output page.md`" in page
    assert "- driver: 1.2" in page
    assert "3,333 GB/s" in page  # 3,000 / 0.9


def test_table_and_page_of_bags():
    """One line of three measurements; the copy is what the shares refer to."""
    lookup = rounds.Measured(2.0, 0.01, 6_000_000_000, 0.9, 4.0)
    sgd = rounds.Measured(4.0, 0.02, 9_000_000_000, 0.675, None)
    size = bag_timing.Size(16384, 26, 20, 128)
    row = bag_timing.Row(size, "bfloat16", True, lookup, sgd, sgd)
    page = bag_timing.page([row], {"device": "Some Card"}, ["--ops", "embedding_bag"])
    assert page.startswith("# The embedding bag's CUDA kernels on Some Card\n")
    assert "`python -m tests.gpu --ops embedding_bag`" in page
    line = "| 16,384 x 26 x 20, 128 | bfloat16 | log-uniform | 2.000 | 1.0% | 3,000 | 90% | 4.0 |"
    assert line in page
    assert "| 4.000 | 2.0% | 2,250 | 68% |  |" in page
    assert "3,333 GB/s" in page  # 3,000 / 0.9


_REPORT = """
ptxas info    : Compiling entry function '_ZN13embedding_bag6device15CountRunsKernelENS0_14RunsParametersE' for 'sm_90'
ptxas info    : Function properties for _ZN13embedding_bag6device15CountRunsKernelENS0_14RunsParametersE
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers
"""  # noqa: E501


def test_report_of_compiler():
    """Registers and spills of a kernel, by its name in the source, and its cell in the table."""
    symbols = ptxas.usages(_REPORT)
    assert list(symbols.values()) == [ptxas.Usage(32, 8, 4)]
    assert ptxas.readable(symbols) == ["CountRunsKernel"]
    kernels = {
        "ForwardKernel<float, float, 4, 4>": ptxas.Usage(40, 0, 0),
        "ForwardKernel<float, __half, 4, 4>": ptxas.Usage(45, 8, 4),
    }
    table = compile_report.table({90: compile_report.Compiled(kernels, [], 1.0, None)})
    assert table.splitlines()[-1] == "| lookup, float table, vectors of 4 | 2 | 45, 4 spilled |"


@pytest.mark.parametrize(
    ("kernel", "family"),
    [
        ("ForwardKernel<signed char, __half, 16, 2>", "lookup, int8 table, vectors of 16"),
        ("ForwardKernel<float, __half, 4, 1>", "lookup, float table, vectors of 4, one id"),
        (
            "ReduceKernel<PieceSource<float>, Optimizer<__half, 2>, 4>",
            "sums of pieces, row-wise Adagrad, vectors of 4",
        ),
        (
            "ReduceKernel<PartialSource, RowList, 1>",
            "sums of partial sums, list of rows, vectors of 1",
        ),
        ("OtherRowsKernel<float, 4>", "other rows, Adam, vectors of 4"),
        ("WriteRunsKernel", "WriteRunsKernel"),
    ],
)
def test_families_of_kernels(kernel, family):
    assert compile_report.family(kernel) == family
