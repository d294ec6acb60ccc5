"""Checks of flags that several commands have in common."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def distinct_integers(text: str) -> tuple[int, ...]:
    """Parses a flag like `1,64`; raises ValueError for anything but different integers."""
    numbers = tuple(int(part) for part in text.split(","))
    if len(set(numbers)) < len(numbers):
        raise ValueError
    return numbers


def check_ranges(
    flags: Mapping[str, Any],
    minimum: Mapping[str, float],
    maximum: Mapping[str, float] | None = None,
) -> None:
    """Raises ValueError for a number below its minimum, above its maximum, infinite or NaN.

    Numbers may be in tuples; None, for a flag that is not set, passes.
    """
    for name, least in minimum.items():
        most = (maximum or {}).get(name)
        for value in flags[name] if isinstance(flags[name], tuple) else (flags[name],):
            if value is None or least <= value <= (sys.float_info.max if most is None else most):
                continue
            upper = " or more" if most is None else f" to {most}"
            finite = " and finite" if isinstance(value, float) else ""
            raise ValueError(f"--{name}: expected {least}{upper}{finite}, got {value}")


def check_writable(path: Path, flag: str) -> None:
    """Creates the folder of a file; raises ValueError if the file cannot be written."""
    existed = path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        raise ValueError(
            f"{flag}: {path} cannot be written ({error.strerror}): choose another"
        ) from None
    if not existed:
        path.unlink()
