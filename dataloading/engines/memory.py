"""Sizes of memory in the flags of tools."""

import re

MOST_BYTES = 1 << 50
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def size_bytes(text: str) -> float | None:
    """Returns the bytes of text such as 4GB, 512 MiB or 2000000000; None for other text."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(I?)B)?\s*", text.upper())
    if match is None:
        return None
    return float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2] or ""]
