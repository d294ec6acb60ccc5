"""DuckDB with the resources of a preparation."""

from pathlib import Path

from dataloading.engines.duckdb_session import DuckDBSession
from preproc.arguments import MachineOptions

# The part of the memory limit that DuckDB does not account for: Python, NumPy, Arrow and code
# (about 110 MiB), one block of results and the mapped part of a file (about 40 MiB), allocator
# slack.
_RESERVED_BYTES = 192 << 20


class PreparationSession(DuckDBSession):
    """DuckDB session within the limits of a preparation; settings: of DuckDB."""

    def __init__(self, options: MachineOptions, scratch: Path, **settings: bool):
        super().__init__(
            scratch,
            options.memory_limit_bytes,
            reserved_bytes=_RESERVED_BYTES,
            threads=options.threads,
            remedies="fewer --threads, another --temp_dir",
            **settings,
        )
