"""Log of an MLPerf training: the `:::MLLOG` lines of the package mlperf-logging."""

import logging
import re
from pathlib import Path
from typing import Any

from runtime.files.line_file import LineFile

_ROOT = Path(__file__).resolve().parent.parent.parent


class MLPerfLog:
    """File of `:::MLLOG` lines, which `python -m mlperf_logging.compliance_checker` reads.

        :::MLLOG {"namespace": "", "time_ms": 1700000000123, "event_type": "POINT_IN_TIME",
                  "key": "seed", "value": 1, "metadata": {"file": "training/mlperf_hook.py", ...}}

    Each reaches the operating system when it is written. The metadata name the calling line.

    Args:
        path, append: as of `LineFile`.

    Raises:
        ValueError: the package is not installed.
        OSError: the file cannot be written.
    """

    def __init__(self, path: str | Path, append: bool = False):
        try:
            from mlperf_logging.mllog.mllog import MLLogger
        except ImportError:
            raise ValueError(
                "--mlperf_log needs the package mlperf-logging, which is not installed: install "
                "the packages of requirements/base.lock again (make setup)"
            ) from None
        # The checker reads a line that follows a cut one without a separator, and not a cut line.
        self._file = LineFile(Path(path), append, separator=b"")
        logger = logging.Logger("mlperf_log")  # not that of the package, which prints
        logger.addHandler(logging.StreamHandler(self._file))
        root = re.escape(str(_ROOT))
        self._lines = MLLogger(logger, default_stack_offset=2, root_dir=root)

    def event(self, key: str, value: Any = None, **metadata: Any) -> None:
        """Logs a value or an event without duration."""
        self._lines.event(key, value, metadata)

    def start(self, key: str, time_ms: int | None = None, **metadata: Any) -> None:
        """Logs the start of an interval, at `time_ms` since the epoch of Unix instead of now."""
        self._lines.start(key, None, metadata, time_ms=time_ms)

    def end(self, key: str, **metadata: Any) -> None:
        """Logs the end of an interval."""
        self._lines.end(key, None, metadata)

    def close(self) -> None:
        """Closes the file; may be called twice."""
        self._file.close()
