"""Seeds of random numbers."""

import hashlib


def derive_seed(seed: int, *names: object) -> int:
    """Returns a seed in [0, 2^31) for one named use: no two uses share random numbers."""
    text = "/".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") & 0x7FFFFFFF
