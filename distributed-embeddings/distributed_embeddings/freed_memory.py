"""Memory that the process frees and needs again in the next step."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep_freed_memory() -> bool:
    """Makes glibc keep what the process frees for its next allocations, until the process ends.

    TensorFlow returns each tensor above 32 MB to the system and gets it again, page by page, in
    every step, unless oneDNN's allocator keeps it: with TF_ENABLE_ONEDNN_OPTS=1, which is its
    default on processors with AVX512-VNNI. The process then needs more memory (measured in
    docs/optimizers.md).

    Returns:
        Whether the C library is glibc; otherwise nothing is changed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    return mallopt is not None and all(
        mallopt(option, value) == 1 for option, value in ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1))
    )
