"""Engines by name, imported when they are needed: their packages may be absent."""

import importlib.util
from pathlib import Path

from dataloading.engines import environment
from preproc.amazon_books.engines.interface import AmazonEngine
from preproc.amazon_books.options import AmazonOptions

_GPU = Path("/dev/nvidiactl")  # exists where NVIDIA's driver is loaded


def default_engine() -> str:
    """Returns NVTabular where it is installed and has a GPU to work with, else DuckDB."""
    modules = ("nvtabular", "cudf")
    is_there = all(map(importlib.util.find_spec, modules)) or environment.is_installed(*modules)
    return "nvtabular" if is_there and _GPU.exists() else "duckdb"


def open_engine(options: AmazonOptions, scratch: Path) -> AmazonEngine:
    """Returns the engine that `--engine` names."""
    if options.engine == "spark":
        environment.require_spark()
        from preproc.amazon_books.engines.spark_engine import AmazonSparkEngine

        return AmazonSparkEngine(options, scratch)
    if options.engine == "nvtabular":
        from preproc.amazon_books.engines.nvtabular_engine import AmazonNVTabularEngine

        return AmazonNVTabularEngine(options, scratch)
    from preproc.amazon_books.engines.duckdb_engine import AmazonDuckDBEngine

    return AmazonDuckDBEngine(options, scratch)
