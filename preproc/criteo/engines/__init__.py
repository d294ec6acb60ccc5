"""Engines by name, imported when they are needed: their packages may be absent."""

from pathlib import Path

from preproc.criteo.engines.engine_interface import CriteoEngine
from preproc.criteo.options import CriteoOptions
from preproc.engines import environment


def open_engine(
    options: CriteoOptions, scratch: Path, shared: Path, with_labels: bool = True
) -> CriteoEngine:
    """Returns the engine that `--engine` names.

    Args:
        options: of the run.
        scratch: folder of this machine for temporary files.
        shared: such a folder that all machines see.
        with_labels: False for a log without labels, which only DuckDB reads (`--encode_only`).
    """
    if options.engine == "spark":
        environment.require_spark()
        from preproc.criteo.engines.spark.spark_engine import SparkEngine

        return SparkEngine(options, scratch, shared)
    from preproc.criteo.engines.single_machine import CriteoDuckDBEngine

    return CriteoDuckDBEngine(options, scratch, with_labels)
