"""Engines by name, imported when they are needed: their packages may be absent."""

import importlib.util
from pathlib import Path

from preproc.engines import environment

_GPU = Path("/dev/nvidiactl")  # exists where NVIDIA's driver is loaded


def default_engine() -> str:
    """Returns NVTabular where it is installed and has a GPU to work with, else DuckDB."""
    modules = ("nvtabular", "cudf")
    is_there = all(map(importlib.util.find_spec, modules)) or environment.is_installed(*modules)
    return "nvtabular" if is_there and _GPU.exists() else "duckdb"
