"""A page of all runs of a folder: one HTML file with everything in it, without scripts."""

import base64
import contextlib
import csv
import io
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from dataloading.spec.data_checks import read_findings
from dataloading.spec.data_set_files import CHECKS_FILE
from runtime.files.outputs import output_file
from runtime.logs.compare import (
    LOG_FILE,
    RunRecord,
    best_of,
    draw_curves,
    find_label,
    label_to_sort_by,
    order_by,
    read_run,
)
from runtime.readable import metric_text

# Patterns of the metrics of the overview, if one of the runs has them.
_OVERVIEW = [
    re.compile(pattern)
    for pattern in (
        *("auc", r"(full_)?(ndcg|hr|recall)@\d+", "log_loss", "gauc"),
        *(r"best_((pr_|g)?auc|log_loss|normalized_entropy|\w+@\d+)", "throughput", "elapsed_s"),
    )
]
_BASELINE = "baseline.json"  # results of `--baseline`
_FLAGS = ("recipe", "mode")  # that the overview has
_NOTHING = object()
# Runs whose curves are in one picture: more are hard to distinguish.
_MAX_COMPARED = 8
_PICTURE_BYTES = 700_000  # of a page
_WIDTH = 1280  # of a picture, in pixels
_STYLE = """
:root { color-scheme: light dark; --line: #8885; --quiet: #888 }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem }
table { border-collapse: collapse; display: block; margin: 1rem 0; overflow-x: auto }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .8rem .25rem 0; text-align: left }
th { font-weight: 600 } td { font-variant-numeric: tabular-nums }
td:first-child, td:last-child { white-space: nowrap }
img { background: #fff; display: block; margin: 1rem 0; max-height: 24rem; max-width: 100% }
summary { cursor: pointer; font-weight: 600; margin: .4rem 0 }
pre { overflow-x: auto } .quiet { color: var(--quiet) }
"""


def write_dashboard(
    folder: str | Path, output: str | Path, sort: str | None = None
) -> tuple[int, int]:
    """Writes the page of all runs below a folder, by data set.

    A data set has a table of its runs with the findings of its checks, as these are now, and
    learning curves. A run has its metrics, pictures, messages (tables and their placement) and
    flags. Runs whose log cannot be read have a line with the reason, as have simple models whose
    results cannot. Results of `deployment.evaluate_latency` below the folder follow.

    Args:
        sort: beginning of the metric by which the runs of a data set are sorted; None: the first
            one that they have, of test samples if one has them.

    Returns:
        The number of runs, and that of runs that cannot be read.

    Raises:
        ValueError: there is no run that can be read, or none has the metric `sort`.
        OSError: as of `output_file`.
    """
    folder = Path(folder)
    records, unreadable = _read_runs(folder)
    if not records and unreadable:
        raise ValueError(f"{folder}: expected a run that can be read, got: {unreadable[0]}")
    if not records:
        raise ValueError(f"{folder}: expected a folder with runs ({LOG_FILE} below it), got none")
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in unreadable)
    if sort:
        label_to_sort_by([*{x: None for record in records for x in record.metrics()}], sort)
    pictures = _Pictures()
    common = _common_parameters(records)
    body = [
        f"<h1>Runs in {escape(str(folder))}</h1>",
        *(["<h2>Logs that cannot be read</h2>", f"<ul>{reasons}</ul>"] if reasons else []),
    ]
    for data_set in dict.fromkeys(record.data_set for record in records):
        own = [record for record in records if record.data_set == data_set]
        body += [
            f"<h2>{escape(data_set)}</h2>",
            _overview(own, folder, sort),
            *_comparison(own, folder, pictures),
            *_checks(data_set),
        ]
    body.append("<h2>Runs</h2>")
    for record in records:
        body += _run(record, folder, pictures, common)
    body += ["<h2>Flags and versions of all runs</h2>", _parameters(common), *_latencies(folder)]
    page = "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Runs in {escape(str(folder))}</title><style>{_STYLE}</style></head><body>",
            *body,
            "</body></html>\n",
        ]
    )
    with output_file(output) as file:
        file.write(page.encode())
    return len(records), len(unreadable)


def _read_runs(folder: Path) -> tuple[list[RunRecord], list[str]]:
    records, unreadable = list[RunRecord](), list[str]()
    for log in sorted(folder.rglob("log*.json")):
        if not re.fullmatch(r"log(-\d+)?\.json", log.name):
            continue
        try:
            records.append(read_run(log.parent if log.name == LOG_FILE else log))
        except (ValueError, OSError) as error:
            unreadable.append(str(error))
    return sorted(records, key=lambda record: record.start, reverse=True), unreadable


def _name(path: str | Path, folder: Path) -> str:
    return str(Path(path).relative_to(folder))


def _overview(records: Sequence[RunRecord], folder: Path, sort: str | None) -> str:
    """Returns the table of the runs of a data set: one row for a training and its evaluations."""
    rows = _with_evaluations(records)
    metrics = [
        {label: value for record in reversed(row) for label, value in record.metrics().items()}
        for row in rows
    ]
    known = {label: label.partition(" ")[0] for values in metrics for label in values}
    compared = {record.parameters.get("metric") for record in records}  # also metrics of the user
    labels = [label for label in known if known[label] in compared]
    labels += [label for pattern in _OVERVIEW for label in known if pattern.fullmatch(known[label])]
    labels = [*dict.fromkeys(labels)]
    first = [*(label for label in labels if label.endswith("(test)")), *labels]
    label = find_label(first, sort or "") or find_label(first, "")
    order = order_by(label, metrics) if label else range(len(rows))
    rows, metrics = [rows[i] for i in order], [metrics[i] for i in order]
    best = {label: best_of(label, metrics) for label in labels}
    lines = [
        _overview_row(row, folder, {label: number in best[label] for label in labels})
        for number, row in enumerate(rows)
    ]
    return _table(["run", *_FLAGS, *map(escape, labels), "start"], lines)


def _overview_row(row: Sequence[RunRecord], folder: Path, is_best: Mapping[str, bool]) -> list[str]:
    """Returns the cells of a training and its evaluations; `is_best`: by the label of a metric."""
    run, name = row[0], escape(_name(row[0].name, folder))
    state = "" if run.summary is not None else " (without summary)"
    cells = [f'<a href="#{name}">{name}</a>{state}']
    cells += [escape(str(run.parameters.get(flag, "-"))) for flag in _FLAGS]
    for label, bold in is_best.items():
        text = next((t for record in row if (t := record.text(label)) != "-"), "-")
        cells.append(f"<b>{escape(text)}</b>" if bold else escape(text))
    return [*cells, escape(run.start)]


def _with_evaluations(records: Sequence[RunRecord]) -> list[list[RunRecord]]:
    """Returns each run with the evaluations in its folder, the newest first; other runs there, such
    as predictions, are left out."""
    folders = {Path(record.name): [record] for record in records}
    for path, (record, *_) in [*folders.items()]:
        if path.parent in folders and path.suffix != ".json":  # not an earlier log of the folder
            del folders[path]
            folders[path.parent] += [record] if record.parameters.get("mode") == "eval" else []
    return [*folders.values()]


def _comparison(records: Sequence[RunRecord], folder: Path, pictures: "_Pictures") -> Iterator[str]:
    trained = [record for record in records if record.points(("loss", "total_loss"))]
    if len(trained) < 2:
        return
    if len(trained) > _MAX_COMPARED:
        yield f'<p class="quiet">The newest {_MAX_COMPARED} of {len(trained)} trainings.</p>'
    with tempfile.TemporaryDirectory() as scratch:
        picture = Path(scratch) / "curves.png"
        draw_curves(picture, trained[:_MAX_COMPARED], f"{folder}/")
        yield pictures.html(picture, "learning curves of the runs")


def _checks(data_set: str) -> Iterator[str]:
    """Yields the findings of the checks of a data set that has them."""
    if not (Path(data_set) / CHECKS_FILE).is_file():
        return
    yield "<h3>Checks of the data set</h3>"
    try:
        findings = read_findings(Path(data_set))
    except (ValueError, OSError) as error:
        yield f"<p>{escape(str(error))}</p>"
        return
    for f in findings:
        text = f"{f.level}, {f.check}: {f.seen} ({f.why}). {f.remedy}"
        yield f"<p>{escape(text)}</p>"
    if not findings:
        yield "<p>All checks passed.</p>"


def _run(
    record: RunRecord, folder: Path, pictures: "_Pictures", common: Mapping[str, Any]
) -> Iterator[str]:
    name = _name(record.name, folder)
    yield f'<details open id="{escape(name)}"><summary>{escape(name)}</summary>'
    rows = [[escape(label), escape(record.text(label))] for label in record.metrics()]
    yield _table(["metric", "value"], rows)
    yield from _baseline(Path(record.name))
    for picture in sorted(Path(record.name).glob("*.png")):
        yield pictures.html(picture, f"{picture.stem} of {name}")
    messages = "\n".join(escape(message) for message in record.messages)
    yield f"<details><summary>Messages: data, tables, plan</summary><pre>{messages}</pre></details>"
    own = {n: value for n, value in record.parameters.items() if n not in common}
    yield f"<details><summary>Flags and versions</summary>{_parameters(own)}</details></details>"


def _baseline(folder: Path) -> Iterator[str]:
    """Yields the metrics of simple models and of the checkpoint, if a run compared them."""
    file = folder / _BASELINE
    if not file.is_file():
        return
    try:
        content = json.loads(file.read_bytes())
        models = [*content["models"], *filter(None, [content.get("checkpoint")])]
        names = list(dict.fromkeys(name for model in models for name in model["metrics"]))
        cells = [
            [escape(m["model"]), *(metric_text(m["metrics"].get(name), None) for name in names)]
            for m in models
        ]
        split = content.get("split")
    except (ValueError, OSError, LookupError, TypeError, AttributeError) as error:
        reason = f"{file}: expected results of --baseline, got {error!r}"
        yield f"<p>{escape(reason)}</p>"
        return
    title = f"compared on the {split} split" if split else "simple models"
    yield _table([escape(title), *map(escape, names)], cells)


def _common_parameters(records: Sequence[RunRecord]) -> dict[str, Any]:
    """Returns the flags and versions that all runs of a page share; none of a single run."""
    first, *others = records
    return {
        name: value
        for name, value in first.parameters.items()
        if others and all(other.parameters.get(name, _NOTHING) == value for other in others)
    }


def _parameters(values: Mapping[str, Any]) -> str:
    rows = [[escape(name), escape(str(value))] for name, value in values.items()]
    return _table(["flag", "value"], rows)


def _latencies(folder: Path) -> Iterator[str]:
    for file in sorted(folder.rglob("*.csv")):
        # A binary file or a table of something else, such as predictions, is left out.
        with contextlib.suppress(ValueError, csv.Error, OSError), file.open(newline="") as lines:
            reader = csv.reader(lines)
            header = [escape(name) for name in next(reader, [])]
            if {"batch_size", "p99_ms"} <= set(header):
                rows = [[escape(cell) for cell in row] for row in reader]
                yield f"<h2>Served latency: {escape(_name(file, folder))}</h2>"
                yield _table(header, rows)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{cell}</th>" for cell in header)
    lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"


class _Pictures:
    """Pictures as parts of a page, as long as they fit."""

    def __init__(self) -> None:
        self._bytes_left = _PICTURE_BYTES

    def html(self, file: Path, description: str) -> str:
        """Returns a picture, in few colors and not wider than the page, or a note on its file."""
        from PIL import Image

        note = f'<p class="quiet">{escape(description)}: {escape(str(file))}</p>'
        try:
            with Image.open(file) as picture:
                picture.thumbnail((_WIDTH, _WIDTH))
                stream = io.BytesIO()
                few = picture.convert("RGB").quantize(64, Image.Quantize.FASTOCTREE)
                few.save(stream, "PNG", optimize=True)
        except OSError:  # not a picture
            return note
        data = base64.b64encode(stream.getvalue()).decode()
        if len(data) > self._bytes_left:
            return note
        self._bytes_left -= len(data)
        return f'<img alt="{escape(description)}" src="data:image/png;base64,{data}">'
