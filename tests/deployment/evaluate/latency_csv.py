"""Reader of latency measurements."""

import csv
from pathlib import Path

from deployment.client.latency_statistics import Measurement


def read_csv(path: Path) -> list[Measurement]:
    """Reads a file of `latency_statistics.write_csv`."""
    kinds = Measurement.__annotations__.values()
    with open(path, newline="") as file:
        header, *lines = csv.reader(file)
    assert tuple(header) == Measurement._fields
    return [Measurement(*(k(v) for k, v in zip(kinds, line, strict=True))) for line in lines]
