"""Comparison of runs by their logs: flags that differ, metrics, learning curves in one picture."""

import contextlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from config.flag import value_text
from runtime.logs import plots
from runtime.logs.plots import Points
from runtime.readable import metric_text, text_table

LOG_FILE = "log.json"
_START = b"DLLL "
_ABSENT = "-"
# Parameters that name the run itself.
_OWN = {"run_dir", "log_path"}
# NVIDIA's names of losses that are also in the log as `log_loss`.
_REPEATED = ("validation_loss", "test_loss")
# Metrics of an evaluation of which neither higher nor lower values are better.
_NEITHER = r"calibration|reachable_auc|.+_popularity"
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

    @property
    def data_set(self) -> str:
        """Path of the data set, "generated" without one."""
        return str(self.parameters.get("dataset_path") or "generated")

    def metrics(self) -> dict[str, Any]:
        """Returns the values of the summary, or the last ones that were logged, by their labels.

        Where the weights of the best evaluation are kept, those of an evaluation are of it. Losses
        that the log has a second time, under NVIDIA's names, are left out.
        """
        values = self.summary
        if values is None:
            values = {name: points[max(points)] for name, points in self.series.items()}
        if (step := self._kept_step()) is not None:
            kept = {name: self.series.get(name, {}).get(step) for name in self.splits}
            values = {**values, **{name: kept[name] for name in kept if kept[name] is not None}}
        repeated = _REPEATED if "log_loss" in values else ()
        return {self._label(name): values[name] for name in values if name not in repeated}

    def _kept_step(self) -> int | None:
        """Returns the step of the best evaluation if a complete training kept its weights."""
        keeps, patience = map(self.parameters.get, ("keep_best", "early_stopping"))
        keeps = patience if keeps is None else keeps
        summary = self.summary if keeps and self.summary else {}
        steps = (n for n in summary if n.startswith("best_") and n.endswith("_step"))
        return next((summary[name] for name in steps), None)

    def _label(self, name: str) -> str:
        """Returns the name of a value with its split, which is equal for all recipes."""
        if (split := self.splits.get(name)) is None:
            return name
        name = name.removeprefix(f"{split}_")
        return f"{'log_loss' if name == 'loss' else name} ({split})"

    def text(self, label: str) -> str:
        """Returns a metric for people, "-" for one that the run does not have."""
        return metric_text(self.metrics().get(label), self.units.get(label))

    def series_name(self, names: Sequence[str]) -> str | None:
        """Returns the first of these names that has a series; one may be a beginning (`hr@`)."""
        patterns = [name + ".*" * name.endswith("@") for name in names]
        return next((k for p in patterns for k in self.series if re.fullmatch(p, k)), None)

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


def report(records: Sequence[RunRecord], sort: str | None = None) -> str:
    """Returns data sets, the flags and versions that differ, and the metrics, as tables.

    Args:
        sort: beginning of the metric by which runs are sorted, the best one first.
    """
    metrics = [record.metrics() for record in records]
    labels = list(dict.fromkeys(label for values in metrics for label in values))
    if sort is not None:
        records = [records[i] for i in order_by(label_to_sort_by(labels, sort), metrics)]
    lines = [*_differing_flags(records), "", *_metrics(records, labels)]
    for record in records:
        if record.summary is None:
            lines.append(f"note: {record.name} has no summary; its values are the last ones logged")
    return "\n".join(lines)


def label_to_sort_by(labels: Sequence[str], sort: str) -> str:
    """Returns the first metric that begins with the value of `--sort`.

    Raises:
        ValueError: no metric with a best value does.
    """
    if (label := find_label(labels, sort)) is None:
        known = ", ".join(filter(_direction, labels))
        raise ValueError(f"--sort: expected one of {known}, got {sort!r}")
    return label


def _differing_flags(records: Sequence[RunRecord]) -> list[str]:
    rows = [["data set", *(record.data_set for record in records)]]
    for name in {k: None for record in records for k in record.parameters if k not in _OWN}:
        values = [value_text(record.parameters.get(name, _ABSENT)) for record in records]
        if len({*values} - {_ABSENT}) > 1:  # runs without the flag do not differ
            rows.append([name, *values])
    header = ["flags that differ", *(record.name for record in records)]
    return text_table(header, [[*map(_cut, row)] for row in rows])


def _metrics(records: Sequence[RunRecord], labels: Sequence[str]) -> list[str]:
    metrics = [record.metrics() for record in records]
    is_one_data_set = len({record.data_set for record in records}) == 1
    rows = []
    for label in labels:
        best = best_of(label, metrics) if is_one_data_set else []
        texts = [record.text(label) for record in records]
        rows.append([label, *(f"{t} *" if i in best else t for i, t in enumerate(texts))])
    header = ["metrics (*: best)", *(record.name for record in records)]
    return text_table(header, [[*map(_cut, row)] for row in rows])


def find_label(labels: Sequence[str], name: str) -> str | None:
    """Returns the first metric with a best value that begins with a text; None without one."""
    return next((label for label in labels if _direction(label) and label.startswith(name)), None)


def _direction(label: str) -> int:
    """Returns 1 if higher values of a metric are better, -1 if lower ones are, 0 for others.

    Of a metric with a split, also one of the user, higher values are better, but for `_NEITHER`.
    """
    name, _, split = label.removeprefix("best_").partition(" ")
    if re.fullmatch(r"log_loss|normalized_entropy|latency_\w+", name):
        return -1
    if split:
        return int(not re.fullmatch(_NEITHER, name))
    return int(bool(re.fullmatch(r"(train_|pr_|g)?auc|\w+@\d+|\w*throughput", name)))


def order_by(label: str, metrics: Sequence[Mapping[str, Any]]) -> list[int]:
    """Returns the numbers of runs by a metric, the best one first and those without it last."""
    sign, values = -_direction(label), [own.get(label) for own in metrics]
    keys = [math.inf if value is None else sign * value for value in values]
    return sorted(range(len(metrics)), key=keys.__getitem__)


def best_of(label: str, metrics: Sequence[Mapping[str, Any]]) -> list[int]:
    """Returns the numbers of the runs with the best value of a metric, none if it has none."""
    values = [own[label] for own in metrics if own.get(label) is not None]
    if not _direction(label) or len(values) < 2:
        return []
    best = max(values) if _direction(label) > 0 else min(values)
    return [number for number, own in enumerate(metrics) if own.get(label) == best]


def draw_curves(path: str | Path, records: Sequence[RunRecord], prefix: str = "") -> None:
    """Draws losses and quality of runs against the step; OSError if it cannot be written.

    Args:
        prefix: beginning of the runs' names that is left out.
    """
    curves: dict[str, dict[str, Points]] = {}
    for title, names in _PANELS.items():
        for record in records:
            split = record.splits.get(record.series_name(names) or "")
            panel = title if split is None else f"{title} ({split})"
            if points := record.points(names):
                name = record.name.removeprefix(prefix)
                curves.setdefault(panel, {})[name] = points
    plots.draw("comparison", path, curves=curves)


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
