"""The finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
OOPSLA 2014), a hash of 64-bit numbers.
"""

import numpy as np

INCREMENT = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / the golden ratio, odd


def finalize(words: np.ndarray) -> np.ndarray:
    """Replaces words, uint64 [n], by their hashes, one to one; returns them."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words
