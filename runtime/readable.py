"""Values and tables for people."""

import math
from collections.abc import Sequence
from typing import Any

from runtime.logs.dlll import plain

# Larger values are unreadable with a fixed number of decimals: the loss of a diverged training.
_LARGE = 1e6


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a table, whose columns are as wide as their longest cell."""
    cells = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def readable(value: Any, unit: str | None = None, format: str | None = None) -> str:
    """Formats a value: floats with four digits and an SI prefix from 10,000, integers in full.

    >>> readable(0.45123), readable(1234567.0, "samples/s"), readable(1234567)
    ('0.4512', '1.235M samples/s', '1,234,567')
    """
    value = plain(value)
    if format is not None and isinstance(value, float) and _LARGE <= abs(value) < math.inf:
        text = f"{value:.4g}"
    elif format is not None and isinstance(value, int | float):
        text = f"{value:{format}}"
    elif isinstance(value, float):
        text = _si(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        text = f"{value:,}"
    else:
        text = str(value)
    return f"{text} {unit}" if unit else text


def metric_text(value: Any, unit: str | None) -> str:
    """Returns a metric for people, rounded and with its unit; `-` for None."""
    if value is None:
        return "-"
    if isinstance(value, float) and unit is None:
        return readable(value, format=".5f")
    return readable(value, unit)


def _si(value: float) -> str:
    if 1e4 <= abs(value) < math.inf:
        for power, prefix in ((1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")):
            text = f"{value / power:.4g}"
            if abs(float(text)) < 1e3:
                return text + prefix
    return f"{value:.4g}"
