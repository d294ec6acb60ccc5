"""DuckDB under a memory limit, and its errors in terms of the command line."""

import contextlib
import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_BATCH_ROWS = 1 << 16


class DuckDBSession:
    """Context manager around one `connection`, made with the import of DuckDB when it is used.

    Args:
        scratch: folder for the temporary files of DuckDB.
        memory_limit_bytes: the limit that the user set, `--memory_limit`.
        reserved_bytes: the part of the limit that DuckDB leaves to the rest of the process.
        threads: DuckDB's; None for one per core.
        settings: more of DuckDB's configuration, by its names.

    Raises (on exit):
        KeyboardInterrupt: a query was interrupted.
        ValueError: out of memory.
        OSError: the disk is full, or another error of reading and writing.
    """

    def __init__(
        self,
        scratch: Path,
        memory_limit_bytes: int,
        *,
        reserved_bytes: int = 0,
        threads: int | None = None,
        **settings,
    ):
        self.scratch, self.threads = scratch, threads
        self.memory_bytes = memory_limit_bytes - reserved_bytes
        self._memory_limit_bytes = memory_limit_bytes
        self._settings = settings

    def __enter__(self):
        return self

    @functools.cached_property
    def connection(self):
        """The connection, until the context ends."""
        import duckdb

        threads = {} if self.threads is None else {"threads": self.threads}
        return duckdb.connect(
            config={
                "memory_limit": f"{self.memory_bytes}B",
                "temp_directory": str(self.scratch),
                **threads,
                **self._settings,
            },
        )

    def __exit__(self, kind, error, traceback):
        if "connection" in vars(self):  # a context that is entered again gets another one
            vars(self).pop("connection").close()
        self._explain(error)

    @contextlib.contextmanager
    def explained_errors(self) -> Iterator[None]:
        """Translates errors as leaving the session does, while it stays open."""
        try:
            yield
        except BaseException as error:
            self._explain(error)
            raise

    def stream(self, query: str) -> Iterator:
        """Yields a result as Arrow record batches; a thread computes the next one while one is
        used."""
        with self._thread() as (cursor, thread):
            opened = thread.submit(lambda: cursor.sql(query).to_arrow_reader(_BATCH_ROWS))
            reader = opened.result()
            following = thread.submit(next, reader, None)
            while (batch := following.result()) is not None:
                following = thread.submit(next, reader, None)
                yield batch

    def fetch_table(self, query: str):
        """Returns a small result as a table of Arrow."""
        with self._thread() as (cursor, thread):
            return thread.submit(lambda: cursor.sql(query).to_arrow_table()).result()

    @contextlib.contextmanager
    def _thread(self) -> Iterator[tuple]:
        """Yields a cursor, as an open result blocks it, and a thread for its queries: in the main
        thread, they would notice Ctrl-C at their end."""
        with (
            self.explained_errors(),
            contextlib.closing(self.connection.cursor()) as cursor,
            ThreadPoolExecutor(1) as thread,
        ):
            try:
                yield cursor, thread
            except BaseException:
                cursor.interrupt()
                raise

    def _explain(self, error: BaseException | None) -> None:
        """Raises an exception of Python in place of DuckDB's."""
        import duckdb

        # A stream of batches raises an OSError in place of each of DuckDB's exceptions.
        is_stream = isinstance(error, OSError) and "Out of Memory Error" in str(error)
        if is_stream or isinstance(error, duckdb.OutOfMemoryException):
            raise ValueError(
                f"--memory_limit {self._memory_limit_bytes >> 20} MiB is too small, or the disk of "
                "temporary files too full; possible solutions: a larger --memory_limit, or more "
                f"free space in {self.scratch}. DuckDB: {error}"
            ) from error
        if isinstance(error, duckdb.IOException):
            raise OSError(f"reading or writing failed: {error}") from error
        if isinstance(error, duckdb.InvalidInputException) and "not valid UTF8" in str(error):
            words = str(error).partition(": ")[2].partition("\n")[0]
            raise ValueError(f"expected UTF-8 text: {words:.300}") from error
        # DuckDB raises a RuntimeError where the signal arrives between two steps of a query.
        is_interrupt = isinstance(error, RuntimeError) and str(error) == "Query interrupted"
        if is_interrupt or isinstance(error, duckdb.InterruptException):
            raise KeyboardInterrupt from error
