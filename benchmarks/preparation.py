"""Seconds and peak memory of preparations, end to end; engines and peers run in turn.

python -m benchmarks.preparation
python -m benchmarks.preparation --data reviews
python -m benchmarks.preparation --data table --polars_python PYTHON

The peer of `table` (`polars_table.py`) holds all rows in memory: it is the least that a user would
write for the same files.
"""

import contextlib
import dataclasses
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv as pc

from benchmarks.harness import result_page
from benchmarks.harness.result_page import Page, spread
from config.flag import flag

ROOT = Path(__file__).resolve().parents[1]
PEER = Path(__file__).with_name("polars_table.py")
DAYS = 4  # of Criteo's logs
_SAMPLE_S = 0.2  # between two samples of the memory
Flags = tuple[object, ...]


class PreparationRun(NamedTuple):
    """Seconds from start to end, processor seconds, and peak memory of a command's processes."""

    elapsed_s: float
    cpu_s: float
    peak_mib: float


class Data(NamedTuple):
    """A preparation of generated data.

    Attributes:
        generate: writes N units to a path; returns the flags that read it.
        counts: units of the runs whose seconds are compared, and of those whose memory is measured,
            by default.
        flags, memory_flags: of these runs.
        rate: target of the first engine in units per second; None: for information.
        ratio: target of its speed relative to another one's.
    """

    title: str
    module: str
    unit: str  # plural noun
    generate: Callable[[Path, int], Flags]
    output_flag: str
    counts: tuple[int, int]
    flags: Flags = ()
    memory_flags: Flags = ()
    engines: tuple[str, ...] = ("duckdb",)
    rate: int | None = None
    ratio: float | None = None


def generate_logs(path: Path, num_rows: int) -> Flags:
    days = ("--days", DAYS, "--rows_per_day", num_rows // DAYS)
    run_module("preproc.criteo.generate_logs", "--output", path, *days)
    return ("--input", path)


def generate_reviews(path: Path, num_reviews: int) -> Flags:
    flags = ("--output", path, "--reviews", num_reviews)
    run_module("preproc.amazon_books.generate_reviews", *flags)
    return ("--amazon_dataset_path", path)


def generate_table(path: Path, num_rows: int) -> Flags:
    """Writes users and items by power laws, a city, three numbers and a label."""
    rng = np.random.default_rng(0)
    cities = pa.array([f"city{i}" for i in range(50)])
    users = pa.array(rng.zipf(1.2, num_rows) % 200_000).cast(pa.string())
    columns = {
        "user": pa.compute.binary_join_element_wise("u", users, ""),
        "item": pa.array(rng.zipf(1.1, num_rows) % 1_000_000),
        "city": cities.take(pa.array(rng.integers(0, 50, num_rows))),
        "price": pa.array(rng.lognormal(3, 1, num_rows).round(2)),
        "age": pa.array(rng.integers(18, 90, num_rows)),
        "score": pa.array(rng.normal(0, 1, num_rows).round(4)),
        "click": pa.array((rng.random(num_rows) < 0.3).astype(int)),
    }
    path.mkdir()
    pc.write_csv(pa.table(columns), path / "table.csv")
    return ("--input", path / "table.csv", "--label", "click", "--split", "0.8,0.1,0.1")


DATA = {
    "criteo": Data(
        title="Preparing Criteo logs",
        module="preproc.criteo",
        unit="rows",
        generate=generate_logs,
        output_flag="--output",
        counts=(1_000_000, 4_000_000),
        flags=("--frequency_threshold", 15),
        memory_flags=("--frequency_threshold", 0),
        rate=150_000,  # on 2 cores
    ),
    "reviews": Data(
        title="Reviews for sequential recommenders",
        module="preproc.amazon_books",
        unit="reviews",
        generate=generate_reviews,
        output_flag="--output_path",
        counts=(1_000_000, 2_000_000),
        engines=("duckdb", "nvtabular"),
        ratio=1,
    ),
    "table": Data(
        title="A table of your own, prepared",
        module="preproc.transcode",
        unit="rows",
        generate=generate_table,
        output_flag="--output",
        counts=(5_000_000, 5_000_000),
        ratio=0.625,
    ),
}


def run_module(module: str, *arguments: object, root: Path = ROOT) -> PreparationRun:
    """Runs a module of the checkout `root`; see `run_command`."""
    return run_command([sys.executable, "-m", module, *arguments], root)


def run_command(arguments: Sequence[object], root: Path = ROOT) -> PreparationRun:
    """Runs a command in the checkout `root`.

    The peak memory is sampled: the kernel's own peak (`ru_maxrss`) counts the memory of the parent
    process before the command starts, too.

    Raises:
        RuntimeError: it fails; the message ends with its output.
    """
    command = [*map(str, arguments)]
    with tempfile.TemporaryFile("w+") as log:
        start, peak_mib = time.perf_counter(), 0.0
        process = subprocess.Popen(command, cwd=root, stdout=log, stderr=log)
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            peak_mib = max(peak_mib, _tree_memory_mib(process.pid))
            time.sleep(_SAMPLE_S)
        elapsed_s, (_, status, usage) = time.perf_counter() - start, ended
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            log.seek(0)
            raise RuntimeError(f"{command} failed with {process.returncode}:\n{log.read()}")
    return PreparationRun(elapsed_s, usage.ru_utime + usage.ru_stime, peak_mib)


def _tree_memory_mib(pid: int) -> float:
    """Proportional set size of a process and its descendants."""
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += each.memory_full_info().pss
    return total / 2**20


def prepare(data: Data, output: Path, *flags: object, root: Path = ROOT) -> PreparationRun:
    """Prepares into a folder, which is removed again."""
    result = run_module(data.module, *flags, data.output_flag, output, root=root)
    shutil.rmtree(output)
    return result


def in_turns(
    sides: dict[str, Callable[[], PreparationRun]], repeats: int
) -> dict[str, list[PreparationRun]]:
    """Runs the sides in turn, in an order that alternates from round to round."""
    runs: dict[str, list[PreparationRun]] = {name: [] for name in sides}
    for turn in range(repeats):
        for name in list(sides)[:: -1 if turn % 2 else 1]:
            runs[name].append(sides[name]())
            print(f"round {turn}: {name}: {runs[name][-1].elapsed_s:.1f} s", file=sys.stderr)
    return runs


def table(runs: dict[str, list[PreparationRun]], unit: str, count: int) -> list[str]:
    """Seconds of all sides, their speed in `unit` per second, and memory."""
    columns = ("side", "seconds", f"{unit} per second", "processor seconds", "peak memory, MiB")
    rows = [
        (
            name,
            spread([run.elapsed_s for run in each]),
            f"{count / median_s(each):,.0f}",
            spread([run.cpu_s for run in each]),
            f"{max(run.peak_mib for run in each):,.0f}",
        )
        for name, each in runs.items()
    ]
    return result_page.table(columns, rows)


def median_s(runs: Sequence[PreparationRun]) -> float:
    return float(np.median([each.elapsed_s for each in runs]))


@dataclass(frozen=True, kw_only=True)
class PreparationOptions(result_page.BenchmarkOptions):
    """Flags of the benchmark."""

    memory_limit_mib: int = flag(512, "memory limit", at_least=1)
    repeats: int = flag(3, "preparations of each side", at_least=1)
    data: str = flag("criteo", "the preparation", choices=tuple(DATA))
    count: int | None = flag(None, "rows whose seconds are compared", at_least=1)
    memory_count: int | None = flag(None, "rows under the memory limit", at_least=1)
    engines: tuple[str, ...] = flag((), "the first one has the targets")
    other: Path | None = flag(None, "compare with another checkout, too")
    polars_python: str | None = flag(None, "of --data table: Python with polars, numpy and pyarrow")
    work_dir: Path | None = flag(None, "of temporary files; default: the system's")


def measure(data: Data, args: PreparationOptions, work: Path, page: Page) -> None:
    """Compares the sides, and measures the memory of the first engine under a limit."""
    first, *_ = args.engines
    log, output = work / "log", work / "prepared"
    flags = (*data.generate(log, args.count), *data.flags)
    roots = {"": ROOT} | ({f" of {args.other}": args.other} if args.other else {})
    sides: dict[str, Callable[[], PreparationRun]] = {
        f"{engine}{of_root}": functools.partial(
            prepare, data, output, *flags, "--engine", engine, root=root
        )
        for engine in args.engines
        for of_root, root in roots.items()
    }
    if args.polars_python:
        (work / "peer").mkdir()
        script = (args.polars_python, PEER, log / "table.csv", work / "peer")
        sides["polars"] = functools.partial(run_command, script)
    runs = in_turns(sides, args.repeats)
    page.add(f"{args.count:,} {data.unit}", *table(runs, data.unit, args.count))
    rate = args.count / median_s(runs[first])
    page.judge(f"{rate:,.0f} {data.unit}/s", data.rate, rate >= (data.rate or 0))
    for other in list(runs)[1:]:
        ratio = median_s(runs[other]) / median_s(runs[first])
        text = f"{first} is {ratio:.2f} times as fast as {other}"
        page.judge(text, data.ratio, ratio >= (data.ratio or 0))
    shutil.rmtree(log)
    limit = f"{args.memory_limit_mib}MiB"
    flags = (*data.generate(log, args.memory_count), *data.memory_flags, "--memory_limit", limit)
    limited = prepare(data, output, *flags, "--engine", first)
    title = f"--memory_limit {limit}, {args.memory_count:,} {data.unit}"
    page.add(title, *table({first: [limited]}, data.unit, args.memory_count))
    text = f"peak memory {limited.peak_mib:.0f} MiB"
    page.judge(text, args.memory_limit_mib, limited.peak_mib <= args.memory_limit_mib)


def main(argv: Sequence[str] | None = None) -> int:
    args = result_page.parse(PreparationOptions, argv, "preparation", __doc__)
    data = DATA[args.data]
    args = dataclasses.replace(
        args,
        count=args.count or data.counts[0],
        memory_count=args.memory_count or data.counts[1],
        engines=args.engines or data.engines,
    )
    facts = [f"duckdb {version('duckdb')}"]
    page = Page(data.title, [result_page.command("preparation", args)], facts)
    with tempfile.TemporaryDirectory(dir=args.work_dir) as folder:
        measure(data, args, Path(folder), page)
    return page.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
