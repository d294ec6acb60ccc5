"""The harness without a GPU, and its reference against loops."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.gpu import __main__ as harness
from tests.gpu import build, cases, check, reference
from tests.gpu.cases import Case
from tests.gpu.library import width

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


# ---- Cases ---------------------------------------------------------------------------


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
