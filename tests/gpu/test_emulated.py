"""The CUDA kernels on the emulator, and the emulator on kernels with planted mistakes."""

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.gpu import build, cases, check, dot_interaction, reference
from tests.gpu.cases import SHARED_BYTES, Case
from tests.gpu.library import Device, EmulatedLibrary, Emulator, width
from tests.gpu.memory import HostMemory

pytestmark = pytest.mark.long

PLANTED = build.EMULATOR / "planted/bugs.cc"
FAULT = 719


@pytest.fixture(scope="module", params=build.ARCHITECTURES)
def kernels(request) -> tuple[EmulatedLibrary, HostMemory]:
    """The repository's kernels, each access checked."""
    library = EmulatedLibrary(build.emulated(request.param))
    return library, HostMemory(library)


def test_sweep(kernels, request):
    """Arguments, sizes, layouts, flags, dtypes: right numbers in the right places and no fault."""
    checked = dot_interaction.checked(*kernels, request.config.getoption("--long"))
    assert [(name, complaints) for name, complaints in checked if complaints] == []


def test_orders_of_threads(kernels):
    orders = dot_interaction.in_other_orders(*kernels, range(1, 5))
    assert [(case, complaints) for case, complaints in orders if complaints] == []


@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_memory_traffic(dtype):
    """At DLRM's size each input is read once and each output written once, without conflicts."""
    library = EmulatedLibrary(build.emulated(800))
    case = Case(27, 128, 3, dtype, joined=False)
    inputs = check.make_inputs(case)
    library.take_traffic()
    assert check.run(library, HostMemory(library), case, inputs).complaints == []
    traffic = library.take_traffic()
    size = inputs.x.itemsize
    row, features, head = width(128, 27) * size, 27 * 128 * size, 128 * size
    # Forward: features, head (here another tensor than x_0) -> row.
    # Backward: features, row -> gradients of features and head.
    assert traffic.bytes_read == 3 * (2 * features + head + row)
    assert traffic.bytes_written == 3 * (row + features + head)
    assert traffic.matrix_loads > 0
    assert traffic.matrix_load_conflicts == 0


def test_shared_memory_of_every_part():
    """The largest size that tiles take runs with what the smallest parts have, in every dtype."""
    library = EmulatedLibrary(build.emulated(800))
    for dtype in cases.DTYPES:
        for shared in SHARED_BYTES.values():
            library.set_device(Device(1, 1, *shared))
            case = Case(128, 1024, 1, dtype)
            assert check.check(library, HostMemory(library), case) == []


@pytest.mark.parametrize("architecture", build.ARCHITECTURES)
def test_sweep_under_sanitizers(root: Path, architecture):
    """AddressSanitizer and UBSan, in a process that has them from its start."""
    command = [sys.executable, "-m", "tests.gpu", "--emulate", str(architecture), "--sanitize"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    assert re.search(r"^\d+ cases, 0 wrong", done.stdout, re.MULTILINE)


# ---- The emulator itself ------------------------------------------------------------------------


class Planted:
    """Kernels with a mistake that can be switched on."""

    def __init__(self, architecture: int):
        path = build.emulated(architecture, sources=[PLANTED])
        self.emulator = Emulator(path)
        self.kernels = ctypes.CDLL(str(path))
        self.memory = HostMemory(self.emulator)

    def run(self, name: str, bug: int, seed: int = 0) -> tuple[int, np.ndarray, str]:
        """The error number, the 64 numbers of the output, and what the emulator noticed."""
        data = np.arange(1, 65, dtype=np.float32)
        source = self.memory.tensor(data, 0, writable=False)
        target = self.memory.tensor(np.zeros(64, np.float32), 0, writable=True)
        self.emulator.set_seed(seed)
        function = self.kernels.run_planted
        addresses = (ctypes.c_void_p(source.address), ctypes.c_void_p(target.address))
        error = function(name.encode(), *addresses, bug)
        self.memory.release()
        output = target.read()[0].view(np.float32).copy()
        return error, output, self.emulator.take_fault() + self.emulator.take_race()


@pytest.fixture(scope="module")
def planted() -> Planted:
    return Planted(800)


_INPUT = np.arange(1, 65, dtype=np.float32)
_RIGHT = {
    "Reverse": _INPUT[::-1],
    "RotateInWarp": np.concatenate([np.roll(_INPUT[:32], -1), np.roll(_INPUT[32:], -1)]),
    "CopyThrough": _INPUT[::-1],
    "LoadMatrix": np.concatenate([_INPUT[:32], np.zeros(32, np.float32)]),
    "ReadGarbage": _INPUT,
    "ReadPairs": _INPUT,
    "MultiplyTf32": _INPUT,
}


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize("name", _RIGHT)
def test_right_kernels(planted, name, seed):
    error, output, _ = planted.run(name, bug=0, seed=seed)
    assert error == 0
    np.testing.assert_array_equal(output, _RIGHT[name])


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("name", "bug", "noticed"),
    [
        ("Reverse", 2, r"thread 5 of 64: .*ends while|SyncBlock after a thread .* has ended"),
        ("Reverse", 3, r"write of 4 bytes at shared byte 256 of 256"),
        ("Reverse", 4, r"read of 4 bytes at byte 256 of a tensor of 256 bytes"),
        ("Reverse", 5, r"write of 4 bytes at byte 256 of a tensor of 256 bytes"),
        ("Reverse", 6, r"of an output that block 0's thread \d+ has already written"),
        ("Reverse", 7, r"write of 4 bytes at byte \d+ of an input"),
        ("CopyThrough", 5, r"CopyAsync16 between .* not both multiples of 16"),
        ("CopyThrough", 6, r"write of shared byte 0 .* while thread 0's copy to it is under way"),
        ("CopyThrough", 7, r"ends with 1 copies under way"),
        ("CopyThrough", 8, r"CopyAsync16 to shared byte 256 of 256|while thread"),
        ("LoadMatrix", 1, r"LoadMatrices: lane 3's row is at .* no multiple of 16"),
        ("LoadMatrix", 2, r"comes to LoadMatrices(Transposed)? while others .* wait at LoadM"),
        ("LoadMatrix", 3, r"ends while lanes of its warp wait at LoadMatrices|after a lane"),
        ("LoadMatrix", 4, r"LoadMatrices: lane 3's row is at shared byte 256 of 256"),
        ("ReadPairs", 1, r"misaligned access: .* no multiple of 8 \(bugs.cc:\d+\)"),
        ("MultiplyTf32", 1, r"MmaTf32: lane 9's a 0x[0-9a-f]*1 is not rounded to TF32"),
        ("MultiplyTf32", 2, r"MmaTf32: lane 9's b 0x00001000 is not rounded to TF32"),
    ],
)
def test_faults(planted, name, bug, noticed, seed):
    """Undefined behaviour on a GPU ends the launch, in every order of threads."""
    error, _, text = planted.run(name, bug, seed)
    assert error == FAULT
    assert re.search(noticed, text), text


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("name", "bug", "noticed"),
    [
        ("Reverse", 1, r"without a barrier"),
        ("RotateInWarp", 1, r"without a barrier"),
        ("RotateInWarp", 2, r"without a barrier"),
        ("CopyThrough", 1, r"before CopyWait"),
        ("CopyThrough", 2, r"before CopyWait"),
        ("CopyThrough", 3, r"before CopyWait"),
        ("CopyThrough", 4, r"before CopyWait|without a barrier after the write"),
        ("ReadGarbage", 1, r"without a barrier"),
    ],
)
def test_missing_barriers(planted, name, bug, noticed, seed):
    """A read that races is garbage, whichever thread comes first here."""
    error, output, text = planted.run(name, bug, seed)
    assert error == 0
    assert np.isnan(output).any()
    assert re.search(noticed, text), text


def test_missing_instructions():
    """7.0 has no ldmatrix, and its copies are done at once."""
    volta = Planted(700)
    error, _, text = volta.run("LoadMatrix", bug=0)
    assert error == FAULT
    assert "compute capability 7.0 has no LoadMatrices" in text
    error, output, _ = volta.run("CopyThrough", bug=1)
    assert error == 0
    np.testing.assert_array_equal(output, _RIGHT["CopyThrough"])


def test_other_streams(planted):
    """A launch on another stream than the selected one faults; run_planted uses the default one."""
    planted.emulator.set_stream(0x100)
    try:
        error, output, text = planted.run("Reverse", bug=0)
    finally:
        planted.emulator.set_stream(0)
    assert error == FAULT
    assert not output.any()
    assert re.search(r"launch on stream .*, where the caller's is 0x100", text), text
    assert planted.run("Reverse", bug=0)[0] == 0


def test_overruns_under_sanitizer(root: Path):
    """The sanitized build ends the process where the checked one reports a fault."""
    program = (
        "from tests.gpu import build, test_emulated as t\n"
        "build_checked = build.emulated\n"
        "build.emulated = lambda a, sources: build_checked(a, 'sanitized', sources)\n"
        "planted = t.Planted(800)\n"
        "assert planted.run('Reverse', 0)[0] == 0\n"
        "print('right one passed', flush=True)\n"
        "planted.run('Reverse', {bug})\n"
    )
    environment = {"LD_PRELOAD": build.preloaded_sanitizer(), "ASAN_OPTIONS": "detect_leaks=0"}
    for bug, noticed in ((3, "heap-buffer-overflow"), (5, "use-after-poison")):
        done = subprocess.run(
            [sys.executable, "-c", program.replace("{bug}", str(bug))],
            cwd=root,
            env={**environment, "PATH": "/usr/bin:/bin", "PYTHONMALLOC": "malloc"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "right one passed" in done.stdout, done.stderr[-3000:]
        assert done.returncode != 0
        assert noticed in done.stderr


def test_number_formats(planted):
    """Conversions are NumPy's, for every half and bfloat16 and for ties."""
    functions = planted.kernels
    functions.planted_from_half.restype = functions.planted_from_bfloat16.restype = ctypes.c_float
    for to_bits in (functions.planted_to_half, functions.planted_to_bfloat16):
        to_bits.argtypes, to_bits.restype = [ctypes.c_float], ctypes.c_uint16
    every = np.arange(65536, dtype=np.uint16)

    got = np.array([functions.planted_from_half(int(bits)) for bits in every], np.float32)
    np.testing.assert_array_equal(got, every.view(np.float16).astype(np.float32))
    got = np.array([functions.planted_from_bfloat16(int(bits)) for bits in every], np.float32)
    np.testing.assert_array_equal(got, reference.widened(every, "bfloat16"))

    # Each number, the middle between it and the next, and the two neighbours of the middle.
    for dtype, to_bits in (
        ("float16", functions.planted_to_half),
        ("bfloat16", functions.planted_to_bfloat16),
    ):
        positive = every[every < {"float16": 0x7C00, "bfloat16": 0x7F80}[dtype]][::7]
        values = reference.widened(positive.view(reference.STORAGE[dtype]), dtype)
        following = reference.widened((positive + 1).view(reference.STORAGE[dtype]), dtype)
        finite = np.isfinite(following)
        with np.errstate(over="ignore"):
            middle = (values[finite] / 2 + following[finite] / 2).astype(np.float32)
        tried = np.concatenate(
            [values, middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.inf)]
        )
        tried = np.concatenate([tried, -tried, [np.inf, -np.inf, 3e38]]).astype(np.float32)
        got = np.array([to_bits(float(value)) for value in tried], np.uint16)
        np.testing.assert_array_equal(got, reference.stored(tried, dtype).view(np.uint16))

    random = np.random.default_rng(1).standard_normal(2000, np.float32)
    got = np.array([functions.planted_to_tf32(int(bits)) for bits in random.view(np.uint32)])
    expected = reference.to_tf32(random).view(np.uint32)
    np.testing.assert_array_equal(got.astype(np.int64) & 0xFFFFFFFF, expected)
