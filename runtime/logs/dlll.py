"""DLLL lines: the format of NVIDIA's dllogger, written by it or by our own writer.

A DLLL line is `DLLL ` and one JSON object, as in the JSON stream of NVIDIA's dllogger:

    DLLL {"timestamp": "1700000000.123456", "datetime": "2023-11-14 22:13:20.123456",
          "elapsedtime": "1.5", "type": "LOG", "step": [0, 1000], "data": {"loss": 0.4512}}
    DLLL {"timestamp": ..., "elapsedtime": ..., "datetime": ...,
          "type": "METADATA", "metric": "throughput", "metadata": {"unit": "samples/s"}}

"step" is "PARAMETER" in the first line, [] in the last one (the summary), [epoch, step] or step
between them, and "MESSAGE" where `data` is {"message": text}. NVIDIA's package writes the lines
if it is installed, else the writer below; the parameter "log_writer" names the one that did.
"""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """Converts numpy and tensor values to Python's types; returns other values unchanged."""
    if hasattr(value, "numpy"):
        value = value.numpy()
    if isinstance(value, np.ndarray):
        return [plain(entry) for entry in value] if value.ndim else plain(value[()])
    if isinstance(value, np.floating) or getattr(value, "dtype", None) == "bfloat16":
        # Via its shortest decimal: 0.1 for a float32, not 0.10000000149011612.
        return float(str(value))
    return value.item() if isinstance(value, np.generic) else value


def jsonable(value: Any) -> Any:
    """Returns a value that json.dumps turns into valid JSON.

    NaN and infinities become null, sets become sorted lists, types unknown to JSON become text.
    """
    value = plain(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): jsonable(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [jsonable(entry) for entry in value]
    if isinstance(value, set | frozenset):
        return sorted(jsonable(entry) for entry in value)
    return str(value)


class DlllWriter:
    """Our own writer of DLLL lines."""

    name = "the built-in writer (NVIDIA's dllogger is not installed)"

    def __init__(self, path: Path, append: bool):
        # One write per line: everything that was logged before a kill is in the file.
        self._file = open(path, "a" if append else "w", buffering=1, encoding="utf-8")  # noqa: SIM115
        self._start = datetime.now()

    def log(self, step: Any, data: Any) -> None:
        """Writes the values of a step."""
        stamp, when, elapsed = self._times()
        self._line(
            timestamp=stamp, datetime=when, elapsedtime=elapsed, type="LOG", step=step, data=data
        )

    def metadata(self, metric: str, metadata: Any) -> None:
        """Describes a metric."""
        stamp, when, elapsed = self._times()
        self._line(
            timestamp=stamp,
            elapsedtime=elapsed,
            datetime=when,
            type="METADATA",
            metric=metric,
            metadata=metadata,
        )

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _times(self) -> tuple[str, str, str]:
        now = datetime.now()
        return str(now.timestamp()), str(now), str((now - self._start).total_seconds())

    def _line(self, **fields: Any) -> None:
        self._file.write(f"DLLL {json.dumps(fields)}\n")


class DlloggerWriter:
    """Writer of DLLL lines by NVIDIA's package."""

    def __init__(self, dllogger: Any, path: Path, append: bool):
        self.name = f"NVIDIA's dllogger {getattr(dllogger, '__version__', '')}".rstrip()
        # Older versions have no `append`.
        mode = {"append": True} if append else {}
        stream = dllogger.JSONStreamBackend(dllogger.Verbosity.VERBOSE, str(path), **mode)
        self._logger = dllogger.Logger([stream])

    def log(self, step: Any, data: Any) -> None:
        """Writes the values of a step."""
        self._logger.log(step, data)
        self._logger.flush()

    def metadata(self, metric: str, metadata: Any) -> None:
        """Describes a metric."""
        self._logger.metadata(metric, metadata)
        self._logger.flush()

    def close(self) -> None:
        """Flushes the file, which the package closes when the process ends."""
        self._logger.flush()


def open_dlll(path: Path, append: bool) -> "DlllWriter | DlloggerWriter":
    """Opens a file for DLLL lines; creates its folder.

    Args:
        path: the file.
        append: continue an existing file, which is overwritten otherwise.

    Raises:
        ValueError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            import dllogger
        except ImportError:
            return DlllWriter(path, append)
        return DlloggerWriter(dllogger, path, append)
    except OSError as error:
        raise ValueError(
            f"--log_path {path} cannot be written ({error.strerror}): "
            "give a file in a folder that you may write"
        ) from error
