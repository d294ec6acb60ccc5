"""Seconds and peak memory of preparations, end to end; engines run in turn.

python -m benchmarks.preparation
python -m benchmarks.preparation --data reviews
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from benchmarks.harness import result_page
from benchmarks.harness.result_page import Page, in_turns, spread, table
from config.flag import flag

ROUNDS, QUICK_COUNT, MEMORY_LIMIT_MIB = 3, 2000, 512
DAYS = 4  # of Criteo's logs
_SAMPLE_S = 0.2  # between two samples of the memory


class PreparationRun(NamedTuple):
    """Seconds from start to end, processor seconds, and peak memory of a command's processes."""

    elapsed_s: float
    cpu_s: float
    peak_mib: float


class Data(NamedTuple):
    """A preparation of generated data.

    Attributes:
        generator: module that writes the data to `--output`.
        size: flags of the generator with the number of units.
        input_flag, output_flag: of the preparation.
        counts: units of the runs whose seconds are compared, and of the one whose memory is
            measured.
        flags: of these runs.
        engines: the first one has the targets.
        rate: target in units per second; None: for information.
        ratio: target of the speed relative to another engine's.
    """

    title: str
    module: str
    unit: str  # plural noun
    generator: str
    size: tuple[str, ...]
    input_flag: str
    output_flag: str
    counts: tuple[int, int]
    flags: tuple[tuple[str, ...], tuple[str, ...]]
    engines: tuple[str, ...]
    rate: int | None = None
    ratio: float | None = None


DATA = {
    "criteo": Data(
        title="Preparing Criteo logs",
        module="preproc.criteo",
        unit="rows",
        generator="preproc.criteo.generate_logs",
        size=("--days", f"{DAYS}", "--rows_per_day"),
        input_flag="--input",
        output_flag="--output",
        counts=(1_000_000, 4_000_000),
        flags=(("--frequency_threshold", "15"), ("--frequency_threshold", "0")),
        engines=("duckdb",),
        rate=150_000,  # on 2 cores
    ),
    "reviews": Data(
        title="Reviews for sequential recommenders",
        module="preproc.amazon_books",
        unit="reviews",
        generator="preproc.amazon_books.generate_reviews",
        size=("--reviews",),
        input_flag="--amazon_dataset_path",
        output_flag="--output_path",
        counts=(1_000_000, 2_000_000),
        flags=((), ()),
        engines=("duckdb", "nvtabular"),
        ratio=1,
    ),
}


def run_module(module: str, *arguments: object) -> PreparationRun:
    """Runs a module.

    The peak memory is sampled: the kernel's own peak (`ru_maxrss`) counts the memory of the parent
    process before the command starts, too.

    Raises:
        RuntimeError: it fails; the message ends with its output.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with tempfile.TemporaryFile("w+") as log:
        start, peak_mib = time.perf_counter(), 0.0
        process = subprocess.Popen(command, stdout=log, stderr=log)
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


def median_s(runs: Sequence[PreparationRun]) -> float:
    return float(np.median([each.elapsed_s for each in runs]))


@dataclass(frozen=True, kw_only=True)
class PreparationOptions(result_page.QuickOptions):
    """Flags of the benchmark."""

    data: str = flag("criteo", "the preparation", choices=tuple(DATA))
    engines: tuple[str, ...] = flag((), "the first one has the targets")


def add_table(page: Page, data: Data, count: int, runs: dict[str, list], suffix: str = "") -> None:
    """Adds a section: seconds of all engines, their speed, and memory."""
    columns = ("side", "seconds", f"{data.unit} per second", "processor seconds")
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
    page.add(f"{count:,} {data.unit}{suffix}", *table((*columns, "peak memory, MiB"), rows))


def measure(data: Data, args: PreparationOptions, work: Path, page: Page) -> None:
    """Compares the engines, and measures the memory of the first one under a limit."""
    count, memory_count = (QUICK_COUNT,) * 2 if args.quick else data.counts
    engines = args.engines or data.engines
    log, output = work / "log", work / "prepared"

    def generate(number: int) -> None:
        number = number // DAYS if "--days" in data.size else number
        run_module(data.generator, "--output", log, *data.size, number)

    def prepare(engine: str, *flags: object) -> PreparationRun:
        where = (data.input_flag, log, data.output_flag, output)
        result = run_module(data.module, *where, *flags, "--engine", engine)
        shutil.rmtree(output)
        return result

    generate(count)
    runs = {engine: [] for engine in engines}
    for engine in in_turns(engines, 1 if args.quick else ROUNDS):
        runs[engine].append(prepare(engine, *data.flags[0]))
    add_table(page, data, count, runs)
    first, *others = engines
    rate = count / median_s(runs[first])
    page.judge(f"{rate:,.0f} {data.unit}/s", data.rate, rate >= (data.rate or 0))
    for other in others:
        ratio = median_s(runs[other]) / median_s(runs[first])
        text = f"{first} is {ratio:.2f} times as fast as {other}"
        page.judge(text, data.ratio, ratio >= (data.ratio or 0))
    shutil.rmtree(log)
    generate(memory_count)
    limit = ("--memory_limit", f"{MEMORY_LIMIT_MIB}MiB")
    limited = prepare(first, *data.flags[1], *limit)
    add_table(page, data, memory_count, {first: [limited]}, f", {' '.join(limit)}")
    text = f"peak memory {limited.peak_mib:.0f} MiB"
    page.judge(text, MEMORY_LIMIT_MIB, limited.peak_mib <= MEMORY_LIMIT_MIB)


def main(argv: Sequence[str] | None = None) -> int:
    args = result_page.parse(PreparationOptions, argv, "preparation", __doc__)
    data = DATA[args.data]
    page = Page(data.title, "preparation", args, [f"duckdb {version('duckdb')}"])
    with tempfile.TemporaryDirectory() as folder:
        measure(data, args, Path(folder), page)
    return page.finish()


if __name__ == "__main__":
    sys.exit(main())
