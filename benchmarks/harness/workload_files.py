"""Rows and sizes of a benchmark, from the process that makes them to its sides.

NumPy only: the environment of the PyTorch sides has nothing else.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np


def save_rows(path: Path, rows: Any) -> None:
    """Writes a named tuple of arrays for `load_rows`."""
    np.savez(path, **rows._asdict())


def load_rows(path: Path, kind: type) -> Any:
    with np.load(path) as stored:
        return kind(*(stored[name] for name in kind._fields))


def save(folder: Path, rows: Any, sizes: Any) -> None:
    """Writes rows and a dataclass of numbers and tuples of them for `load`."""
    save_rows(folder / "rows.npz", rows)
    (folder / "sizes.json").write_text(json.dumps(asdict(sizes)))


def load(folder: Path, rows_kind: type, sizes_kind: type) -> tuple[Any, Any]:
    stored = json.loads((folder / "sizes.json").read_text())
    sizes = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
    return load_rows(folder / "rows.npz", rows_kind), sizes_kind(**sizes)
