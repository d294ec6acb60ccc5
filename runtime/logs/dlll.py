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
from typing import Any, NamedTuple

import numpy as np

from runtime.files.line_file import LineFile

LATENCIES = tuple(f"latency_{name}" for name in ("mean", "p50", "p90", "p95", "p99"))
# Values of every log whose unit is shown.
_MEASUREMENTS = ("throughput", *LATENCIES, "elapsed_s", "epoch_s", "time_to_auc_threshold_s")
# Ends of names, and the unit of the value.
_UNITS = {
    "throughput": "samples/s",
    "_inference_latency": "s",
    "_ms": "ms",
    "_s": "s",
    **dict.fromkeys(LATENCIES, "ms"),
}


class LogNames(NamedTuple):
    """Values in the log of an NVIDIA recipe, by their names there and here.

    Attributes:
        step, epoch, summary: our name -> NVIDIA's, by kind of line; other names are the same.
        epoch_line: values of the line that ends an epoch, besides metrics; without any there is no
            such line, and each evaluation has one.
        further: values of the summary that other logs do not have.
        unprinted: those of them that the file alone has.
        added: values that the file has in addition: NVIDIA's name -> (our name, divisor).
    """

    step: Mapping[str, str] = {}
    epoch: Mapping[str, str] = {}
    summary: Mapping[str, str] = {}
    epoch_line: tuple[str, ...] = ()
    further: tuple[str, ...] = ()
    unprinted: tuple[str, ...] = ()
    added: Mapping[str, tuple[str, float]] = {}

    def of_epoch(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns those of the values that the line of an epoch has."""
        return {name: values[name] for name in self.epoch_line if name in values}

    def of_summary(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns those of the values that this summary has and others do not."""
        return {name: values[name] for name in self.further if name in values}

    def added_to(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values that the file has in addition to those of the printed summary."""
        values = {
            name: summary[ours] / divisor
            for name, (ours, divisor) in self.added.items()
            if ours in summary
        }
        kept = (name for name in self.unprinted if name in summary)
        return values | {self.summary.get(name, name): summary[name] for name in kept}

    def measurements(self) -> list[str]:
        """Returns the names of values that no evaluation computes."""
        names = (*_MEASUREMENTS, *self.epoch_line, *self.further, *self.summary, *self.added)
        return list(dict.fromkeys(names))


def unit_of(name: str) -> str | None:
    """Returns the unit of a measurement; None of a loss or a metric."""
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)), None)


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
    """Writer of DLLL lines; `path` and `append` are those of `LineFile`."""

    def __init__(self, path: Path, append: bool):
        self._file = LineFile(path, append)
        self.earlier = self._file.earlier
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
