"""The compiled operations, with each instruction set."""

import ctypes

import pytest
from distributed_embeddings.ops import kernels

ISAS = ("avx512", "avx2", "generic")


@pytest.fixture(scope="session")
def library():
    """The C interface of the installed library."""
    reason = kernels.reason_for_fallback()
    if reason is not None:
        pytest.skip(reason)
    from distributed_embeddings_kernels import LIBRARY

    loaded = ctypes.CDLL(str(LIBRARY))
    loaded.embedding_bag_cpu_isa.restype = ctypes.c_char_p
    loaded.embedding_bag_cpu_use_isa.argtypes = [ctypes.c_char_p]
    return loaded


@pytest.fixture(params=ISAS)
def isa(request, library):
    """Each instruction set in turn; afterwards the best again."""
    if library.embedding_bag_cpu_use_isa(request.param.encode()):
        pytest.skip(f"this processor lacks {request.param}")
    yield request.param
    assert library.embedding_bag_cpu_use_isa(None) == 0
