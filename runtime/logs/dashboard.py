"""A page of all runs of a folder: one HTML file with everything in it, without scripts."""

import base64
import csv
import re
import tempfile
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from dataloading.spec.data_checks import read_findings
from dataloading.spec.data_set_files import CHECKS_FILE
from runtime.files.outputs import output_file
from runtime.logs.compare import LOG_FILE, RunRecord, draw_curves, metric_texts, read_run

_BEST = r"best_((pr_|g)?auc|log_loss|normalized_entropy|\w+@\d+)"  # by --metric
# Patterns of the metrics of the overview, if one of the runs has them.
_OVERVIEW = (
    *("auc", "test_auc", "validation_auc", "log_loss", "test_loss", "validation_loss"),
    *("gauc", r"ndcg@\d+", r"hr@\d+", _BEST, f"{_BEST}_step", "steps"),
    *("throughput", "elapsed_s"),
)
# Runs whose curves are in one picture: more are hard to distinguish.
_MAX_COMPARED = 8
_STYLE = """
:root { color-scheme: light dark; --line: #8885; --quiet: #888 }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem }
table { border-collapse: collapse; display: block; margin: 1rem 0; overflow-x: auto }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .8rem .25rem 0; text-align: left }
th { font-weight: 600 } td { font-variant-numeric: tabular-nums }
img { background: #fff; display: block; margin: 1rem 0; max-height: 24rem; max-width: 100% }
summary { cursor: pointer; font-weight: 600; margin: .4rem 0 }
pre { overflow-x: auto } .quiet { color: var(--quiet) }
"""


def write_dashboard(folder: str | Path, output: str | Path) -> tuple[int, int]:
    """Writes the page of all runs below a folder, the newest first.

    A run has its metrics, pictures, messages (tables and their placement) and flags. Runs whose log
    cannot be read have a line with the reason. Findings of the checks of the runs' data sets, as
    these are now, and results of `deployment.evaluate_latency` below the folder follow.

    Returns:
        The number of runs, and that of runs that cannot be read.

    Raises:
        ValueError: there is no run that can be read.
        OSError: as of `output_file`.
    """
    folder = Path(folder)
    records, unreadable = _read_runs(folder)
    if not records and unreadable:
        raise ValueError(f"{folder}: expected a run that can be read, got: {unreadable[0]}")
    if not records:
        raise ValueError(f"{folder}: expected a folder with runs ({LOG_FILE} below it), got none")
    records.sort(key=lambda record: record.start, reverse=True)
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in unreadable)
    body = [
        f"<h1>Runs in {escape(str(folder))}</h1>",
        _overview(records, folder),
        *(["<h2>Logs that cannot be read</h2>", f"<ul>{reasons}</ul>"] if reasons else []),
        *_comparison(records),
        *_checks(records),
        "<h2>Runs</h2>",
        *(part for number, record in enumerate(records) for part in _run(record, number, folder)),
        *_latencies(folder),
    ]
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
    return records, unreadable


def _name(path: str | Path, folder: Path) -> str:
    return str(Path(path).relative_to(folder))


def _overview(records: Sequence[RunRecord], folder: Path) -> str:
    metrics = [metric_texts(record) for record in records]
    labels = {
        record.label(name): None
        for pattern in _OVERVIEW
        for record in records
        for name in record.metrics()
        if re.fullmatch(pattern, name)
    }
    rows = []
    for number, (record, values) in enumerate(zip(records, metrics, strict=True)):
        link = f'<a href="#run-{number}">{escape(_name(record.name, folder))}</a>'
        cells = [record.parameters.get(name, "-") for name in ("recipe", "mode")]
        state = "complete" if record.summary is not None else "without summary"
        texts = [values.get(label, "-") for label in labels]
        rows.append([link, *map(escape, map(str, [*cells, record.start, state, *texts]))])
    return _table(["run", "recipe", "mode", "start", "state", *map(escape, labels)], rows)


def _comparison(records: Sequence[RunRecord]) -> Iterator[str]:
    trained = [record for record in records if record.points(("loss", "total_loss"))]
    if len(trained) < 2:
        return
    yield "<h2>Learning curves</h2>"
    if len(trained) > _MAX_COMPARED:
        yield f'<p class="quiet">The newest {_MAX_COMPARED} of {len(trained)} trainings.</p>'
    with tempfile.TemporaryDirectory() as scratch:
        picture = Path(scratch) / "curves.png"
        draw_curves(picture, trained[:_MAX_COMPARED])
        yield _image(picture, "learning curves of the runs")


def _checks(records: Sequence[RunRecord]) -> Iterator[str]:
    """Yields the findings of the checks of each data set that has them."""
    paths = dict.fromkeys(str(record.parameters.get("dataset_path")) for record in records)
    folders = [path for path in paths if (Path(path) / CHECKS_FILE).is_file()]
    if folders:
        yield "<h2>Checks of the data sets</h2>"
    for path in folders:
        yield f"<h3>{escape(path)}</h3>"
        try:
            rows = [
                [f.level, f.check, ", ".join(f.columns), f.seen, f.why, f.remedy]
                for f in read_findings(Path(path))
            ]
        except (ValueError, OSError) as error:
            yield f"<p>{escape(str(error))}</p>"
            continue
        cells = [[*map(escape, row)] for row in rows]
        header = ["level", "check", "columns", "finding", "reason", "remedy"]
        yield _table(header, cells) if cells else "<p>All checks passed.</p>"


def _run(record: RunRecord, number: int, folder: Path) -> Iterator[str]:
    name = escape(_name(record.name, folder))
    yield f'<details open id="run-{number}"><summary>{name}</summary>'
    rows = [[escape(label), escape(text)] for label, text in metric_texts(record).items()]
    yield _table(["metric", "value"], rows)
    for picture in sorted(Path(record.name).glob("*.png")):
        yield _image(picture, f"{picture.stem} of {_name(record.name, folder)}")
    messages = "\n".join(escape(message) for message in record.messages)
    yield f"<details><summary>Messages: data, tables, plan</summary><pre>{messages}</pre></details>"
    rows = [[escape(name), escape(str(value))] for name, value in record.parameters.items()]
    yield f"<details><summary>Flags and versions</summary>{_table(['flag', 'value'], rows)}"
    yield "</details></details>"


def _latencies(folder: Path) -> Iterator[str]:
    for file in sorted(folder.rglob("*.csv")):
        try:
            header, rows = _read_latencies(file)
        except (ValueError, csv.Error, OSError):  # such as a binary file: not a table of latencies
            continue
        if not header:
            continue
        yield f"<h2>Served latency: {escape(_name(file, folder))}</h2>"
        yield _table([escape(name) for name in header], rows)


def _read_latencies(file: Path) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows, cells as HTML; an empty header for another table."""
    with file.open(newline="") as lines:
        reader = csv.reader(lines)
        header = next(reader, [])
        if not {"batch_size", "p99_ms"} <= set(header):
            return [], []  # such as predictions, which may be many
        return header, [[escape(cell) for cell in row] for row in reader]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{cell}</th>" for cell in header)
    lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"


def _image(file: Path, description: str) -> str:
    data = base64.b64encode(file.read_bytes()).decode()
    return f'<img alt="{escape(description)}" src="data:image/png;base64,{data}">'
