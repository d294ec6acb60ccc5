"""The CPU kernels of the installed op, or built once a session with other flags."""

import os
import platform
import shutil
from pathlib import Path

import pytest

from nn.layers.fused_op import custom_op
from tests.cpu_kernel import cpu_library


@pytest.fixture(scope="session")
def library_path(tmp_path_factory) -> Path:
    """The library that `make op` has built, or one with CPU_KERNEL_FLAGS."""
    flags = os.environ.get("CPU_KERNEL_FLAGS", "").split()
    if not flags:
        ops = custom_op()
        ops.library()  # TensorFlow loads what it depends on
        return ops.LIBRARY
    if shutil.which("g++") is None:
        pytest.skip("g++ is not there")
    folder = tmp_path_factory.mktemp("cpu_kernel")
    path = folder / "libdot_interact_cpu.so"
    objects = cpu_library.compile_objects(folder, *flags)
    cpu_library.run_compiler(["g++", "-shared", *flags, "-o", str(path), *map(str, objects)])
    return path


@pytest.fixture(scope="session")
def library(library_path):
    return cpu_library.load(library_path)


@pytest.fixture(params=cpu_library.ISAS)
def isa(request, library):
    """Each instruction set in turn; afterwards the best again."""
    if library.dot_interact_cpu_use_isa(request.param.encode()):
        pytest.skip(f"this processor ({platform.machine()}) lacks {request.param}")
    yield request.param
    assert library.dot_interact_cpu_use_isa(None) == 0


@pytest.fixture(params=cpu_library.DTYPES)
def dtype(request):
    return cpu_library.DTYPES[request.param]
