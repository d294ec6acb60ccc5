"""DuckDB under a memory limit: the connection of every DuckDB engine, and its errors."""

import contextlib
from pathlib import Path

import duckdb

# What the process needs beside the memory that DuckDB accounts for: Python, NumPy, Arrow, code
# (about 110 MiB), one block of results and the mapped part of a file (about 40 MiB), allocator
# slack.
_OUTSIDE_DUCKDB_BYTES = 192 << 20


class DuckDBConnection:
    """A context manager around one connection, `_connection`, which an engine adds its work to.

    Args:
        memory_limit_bytes: for the whole process; `_memory_bytes` of it are DuckDB's.
        threads: DuckDB's.
        scratch: for what does not fit; DuckDB makes files in it and removes them.
        settings: more of DuckDB's configuration, by its names.
    """

    def __init__(self, memory_limit_bytes: int, threads: int, scratch: Path, **settings: bool):
        self._memory_limit_bytes = memory_limit_bytes
        self._memory_bytes = memory_limit_bytes - _OUTSIDE_DUCKDB_BYTES
        self._threads = threads
        self._scratch = scratch
        self._settings = settings

    def __enter__(self):
        self._connection = duckdb.connect(
            config={
                "memory_limit": f"{self._memory_bytes}B",
                "threads": self._threads,
                "temp_directory": str(self._scratch),
                **self._settings,
            }
        )
        return self

    def __exit__(self, *exception):
        self._connection.close()

    @contextlib.contextmanager
    def explained_errors(self):
        """Turns what DuckDB says when memory or disk run out into an error that says what to do,
        and its way to say Ctrl-C into Python's.

        Raises:
            KeyboardInterrupt: a query was interrupted.
            ValueError: out of memory.
            OSError: the disk is full, or another error of reading and writing.
        """
        try:
            yield
        except duckdb.OutOfMemoryException as error:
            raise ValueError(
                f"--memory_limit {self._memory_limit_bytes / (1 << 20):.0f} MiB is too small, or "
                "the disk of --temp_dir too full; possible ways out: a larger --memory_limit, "
                f"fewer --threads, another --temp_dir. DuckDB says: {error}"
            ) from error
        except duckdb.IOException as error:
            raise OSError(f"reading or writing failed: {error}") from error
        except duckdb.InterruptException as error:
            raise KeyboardInterrupt from error
        except RuntimeError as error:
            # What DuckDB raises where the signal reaches it between two steps of a query.
            if str(error) == "Query interrupted":
                raise KeyboardInterrupt from error
            raise
