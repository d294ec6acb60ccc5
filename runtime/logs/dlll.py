"""DLLL lines: the format of NVIDIA's dllogger.

A DLLL line is `DLLL ` and one JSON object:

    DLLL {"timestamp": "1700000000.123456", "datetime": "2023-11-14 22:13:20.123456",
          "elapsedtime": "1.5", "type": "LOG", "step": [0, 1000], "data": {"loss": 0.4512}}
    DLLL {"timestamp": ..., "datetime": ..., "elapsedtime": ...,
          "type": "METADATA", "metric": "throughput", "metadata": {"unit": "samples/s"}}

dllogger also prints `DLL 2023-11-14 22:13:20.123456 - (0, 1000) loss : 0.4512 `, see `stdout_line`.

"step" is "PARAMETER" in the first line, [] in the last one (the summary), [epoch, step] or step
between them, and "MESSAGE" where `data` is {"message": text}.
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


def stdout_line(
    step: tuple[int, ...],
    data: Mapping[str, Any],
    formats: Mapping[str, tuple[str | None, str | None]],
) -> str:
    """Returns the line that dllogger's StdOutBackend prints for the values of a step.

    Args:
        step: (epoch, step), (epoch,), or () for the summary.
        data: the values by name.
        formats: unit and format of values, as in the METADATA lines; either may be None.
    """
    words = []
    for name, value in jsonable(data).items():
        unit, form = formats.get(name, (None, None))
        if form is not None and isinstance(value, int | float):
            value = f"{value:{form}}"
        words.append(f"{name} : {value} {unit or ''}")
    return f"DLL {datetime.now()} - {step} {' '.join(words)}"


class DlllWriter:
    """Writer of DLLL lines; creates the folder of the file.

    Args:
        path: the file.
        append: continue an existing file, which is overwritten otherwise.

    Raises:
        ValueError: the file cannot be written.
    """

    def __init__(self, path: Path, append: bool):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # One write per line: everything that was logged before a kill is in the file.
            self._file = open(path, "a" if append else "w", buffering=1, encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise ValueError(
                f"--log_path {path} cannot be written ({error.strerror}): "
                "give a file in a folder that you may write"
            ) from error
        self._start = datetime.now()

    def log(self, step: Any, data: Any) -> None:
        """Writes the values of a step."""
        self._write(type="LOG", step=step, data=jsonable(data))

    def metadata(self, metric: str, metadata: Any) -> None:
        """Describes a metric."""
        self._write(type="METADATA", metric=metric, metadata=jsonable(metadata))

    def close(self) -> None:
        self._file.close()

    def _write(self, **content: Any) -> None:
        now = datetime.now()
        times = {
            "timestamp": str(now.timestamp()),
            "datetime": str(now),
            "elapsedtime": str((now - self._start).total_seconds()),
        }
        self._file.write(f"DLLL {json.dumps({**times, **content})}\n")
