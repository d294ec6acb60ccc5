"""Comparison of runs by their logs: flags that differ, metrics, learning curves in one picture."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime.logs import plots
from runtime.logs.plots import Points
from runtime.logs.run_logger import readable

LOG_FILE = "log.json"
_START = b"DLLL "
# Parameters that name the run itself.
_OWN = {"run_dir", "log_path"}
# Values of a panel of the picture; recipes have different names for them.
_PANELS = {
    "Training loss": ("loss", "total_loss"),
    "Loss of evaluations": ("log_loss", "test_loss", "validation_loss"),
    "AUC": ("auc", "test_auc", "validation_auc"),
    "Hit rate": ("hr@",),
    "NDCG": ("ndcg@",),
}


@dataclass
class RunRecord:
    """Content of a run's log.

    Attributes:
        name: the folder or the file, as it was passed.
        parameters: the flags, versions and the machine; those of the last resume.
        summary: the metrics of the summary; None if the run did not end.
        series: (step, value) of each logged value, by step.
        units: unit of each value, if the log has one.
        splits: evaluated split of each value, if the log has one.
        messages: lines for people, such as those on the placement of tables.
        start: date and time of the first line.
    """

    name: str
    parameters: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] | None = None
    series: dict[str, dict[int, float]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    splits: dict[str, str] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    start: str = ""

    def metrics(self) -> dict[str, Any]:
        """Returns the values of the summary, or the last ones that were logged."""
        if self.summary is not None:
            return self.summary
        return {name: points[max(points)] for name, points in self.series.items()}

    def label(self, name: str) -> str:
        """Returns the name of a value with its split, so that test and validation differ."""
        split = self.splits.get(name)
        return name if split is None or name.startswith(split) else f"{name} ({split})"

    def series_name(self, names: Sequence[str]) -> str | None:
        """Returns the first of these names that has a series; one may be a beginning (`hr@`)."""
        for name in names:
            for key in self.series:
                if key == name or (name.endswith("@") and key.startswith(name)):
                    return key
        return None

    def points(self, names: Sequence[str]) -> Points:
        """Returns the series of `series_name`."""
        key = self.series_name(names)
        return () if key is None else sorted(self.series[key].items())


def read_run(path: str | Path) -> RunRecord:
    """Reads the log of a run; a resumed run replaces what it repeats.

    A line that is cut is left out: the last one during a training, others after a full disk.

    Args:
        path: the folder of the run, or its log.

    Raises:
        ValueError: there is no log, or it has another format.
    """
    file = Path(path)
    file = file / LOG_FILE if file.is_dir() else file
    if not file.is_file():
        raise ValueError(
            f"{path}: expected the folder of a run with {LOG_FILE}, or a log, got neither"
        )
    record, step = RunRecord(str(path)), 0
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        try:
            if (entry := _parse(line)) is not None:
                step = _add(record, entry, step)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError):
            raise ValueError(
                f"{file}, line {number}: expected a line of a run's log (DLLL and a JSON object), "
                f"got {line[:60].decode(errors='replace')!r}"
            ) from None
    if not record.parameters:
        raise ValueError(f"{file}: expected the log of a run, got a file without parameters")
    return record


def _parse(line: bytes) -> Any:
    """Returns the JSON value of a line; None of a line that is cut, ValueError of others."""
    if _START.startswith(line):
        return None
    if not line.startswith(_START):
        raise ValueError
    with contextlib.suppress(ValueError):
        return json.loads(line.removeprefix(_START))
    return None


def _add(record: RunRecord, entry: Mapping[str, Any], last_step: int) -> int:
    """Adds a line of the log; returns the step that it is of."""
    if entry["type"] == "METADATA":
        for values, name in ((record.units, "unit"), (record.splits, "split")):
            if text := entry["metadata"].get(name):
                values[entry["metric"]] = text
        return last_step
    step, data = entry["step"], dict(entry["data"])
    record.start = record.start or entry["datetime"].partition(".")[0]
    if step == "PARAMETER":
        record.parameters = data
    elif step == []:
        record.summary = data
    elif step == "MESSAGE":
        record.messages.append(str(data["message"]))
    else:
        # The line of an epoch, [epoch], has the values of the step before it.
        number = last_step if isinstance(step, list) and len(step) == 1 else step
        last_step = int(number[-1] if isinstance(number, list) else number)
        record.summary = None  # of an earlier part of a resumed run
        for name, value in data.items():
            if isinstance(value, int | float):
                record.series.setdefault(name, {})[last_step] = value
    return last_step


def report(records: Sequence[RunRecord]) -> str:
    """Returns the flags and versions that differ, and the metrics, as tables."""
    names = [record.name for record in records]
    parameters = {k: None for record in records for k in record.parameters if k not in _OWN}
    rows = []
    for name in parameters:
        values = [_text(record.parameters.get(name, "-")) for record in records]
        if len(set(values)) > 1:
            rows.append([name, *values])
    lines = _table(["flags that differ", *names], rows or [["none"]])
    metrics = [metric_texts(record) for record in records]
    labels = {label: None for texts in metrics for label in texts}
    values_by_label = [[label, *(texts.get(label, "-") for texts in metrics)] for label in labels]
    lines += ["", *_table(["metrics", *names], values_by_label)]
    for record in records:
        if record.summary is None:
            lines.append(f"note: {record.name} has no summary; its values are the last ones logged")
    return "\n".join(lines)


def draw_curves(path: str | Path, records: Sequence[RunRecord]) -> None:
    """Draws losses and quality of runs against the step; OSError if it cannot be written."""
    curves: dict[str, dict[str, Points]] = {title: {} for title in _PANELS}
    for title, names in _PANELS.items():
        for record in records:
            split = record.splits.get(record.series_name(names) or "")
            line = record.name if split is None else f"{record.name} ({split})"
            curves[title][line] = record.points(names)
    drawn = {title: lines for title, lines in curves.items() if any(lines.values())}
    plots.draw("comparison", path, curves=drawn)


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def metric_texts(record: RunRecord) -> dict[str, str]:
    """Returns the metrics of a run for people, by their labels."""
    units = record.units
    return {
        record.label(name): metric_text(value, units.get(name))
        for name, value in record.metrics().items()
    }


def metric_text(value: Any, unit: str | None) -> str:
    """Returns a metric for people, rounded and with its unit; `-` for None."""
    if value is None:
        return "-"
    if isinstance(value, float) and unit is None:
        return readable(value, format=".5f")
    return readable(value, unit)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [list(header), *([_cut(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells if i < len(row)) for i in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in cells
    ]


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
