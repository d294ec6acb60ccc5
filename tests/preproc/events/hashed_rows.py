"""Order of tied events of a log that is sorted by item, in plain Python."""


def hashed_row(row: int, seed: int) -> int:
    """Returns the order of a tied event whose log is sorted by item."""
    prime = 2**31 - 1
    result = (row + seed * 1_597_334_677) % prime
    for factor in (48271, 1_277_803_737):
        result = (result ^ (result >> 15)) * factor % prime
    return result
