"""Checks of flags that several commands have in common."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtime.options import check_range


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
    """Raises ValueError for a flag outside its limits; see `runtime.options.check_range`."""
    for name, least in minimum.items():
        check_range(name, flags[name], least, (maximum or {}).get(name))


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
