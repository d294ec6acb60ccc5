"""DuckDB under a memory limit; what does not fit goes to a folder."""

from pathlib import Path


class Session:
    """A context manager around a DuckDB connection. DuckDB is imported when it is entered.

    Args:
        scratch: a folder for what does not fit into memory.
        memory_limit_bytes: what DuckDB may use.

    Raises (on exit):
        ValueError: the memory is too small.
        OSError: reading or writing failed, the disk is full.
    """

    def __init__(self, scratch: Path, memory_limit_bytes: int):
        self._scratch = scratch
        self._memory_bytes = memory_limit_bytes

    def __enter__(self):
        import duckdb

        self._connection = duckdb.connect(
            config={
                "memory_limit": f"{self._memory_bytes}B",
                "temp_directory": str(self._scratch / "duckdb"),
            }
        )
        return self

    def __exit__(self, kind, error, traceback):
        import duckdb

        self._connection.close()
        if isinstance(error, duckdb.OutOfMemoryException):
            raise ValueError(
                f"--memory_limit {self._memory_bytes >> 20} MiB is too small, or the disk of "
                f"--output too full; possible solutions: a larger --memory_limit, more disk space. "
                f"DuckDB: {error}"
            ) from error
        if isinstance(error, duckdb.IOException):
            raise OSError(f"reading or writing failed: {error}") from error

    def query(self, statement: str):
        """Runs a statement; returns the connection, of which results are fetched."""
        return self._connection.execute(statement)
