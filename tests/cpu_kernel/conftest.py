"""The CPU kernels of the installed op."""

import platform

import pytest

from nn.layers.fused_op import custom_op
from tests.cpu_kernel import cpu_library


@pytest.fixture(scope="session")
def library():
    ops = custom_op()
    ops.library()  # TensorFlow loads what it depends on
    return cpu_library.load(ops.LIBRARY)


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
