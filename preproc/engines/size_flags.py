"""Sizes of memory in the flags of tools."""

import re

MIN_BYTES = 128 << 20
MOST_BYTES = 1 << 50
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_bytes(text: str) -> int:
    """Returns the bytes of `--memory_limit`, a size like 1.5GB, 512 MiB or 2000000000."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(I?)B)?\s*", text.upper())
    unit = (1024 if match[3] else 1000) ** _POWERS[match[2] or ""] if match else 0
    size = float(match[1]) * unit if match else 0
    if not MIN_BYTES <= size <= MOST_BYTES:
        raise ValueError(
            f"expected a size like 1GB, from {MIN_BYTES >> 20}MiB to {MOST_BYTES >> 30}GiB, got "
            f"'{text:.40}'"
        )
    return round(size)
