"""Preparations of data sets as commands: seconds, peak memory, and the files that they leave."""

import argparse
import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from benchmarks.harness import report
from benchmarks.harness.report import Page, spread
from runtime.files.outputs import MARKER

ROOT = Path(__file__).resolve().parents[2]
_ARROW_VERSION = re.compile(rb"parquet-cpp-arrow version [0-9.]+")
DUCKDB = f"duckdb {version('duckdb')}"
_SAMPLE_S = 0.2  # between two samples of the memory


class PreparationRun(NamedTuple):
    """Seconds from start to end, processor seconds, and peak memory of a command's processes."""

    elapsed_s: float
    cpu_s: float
    peak_mib: float
    checksum: str = ""  # of the files that it left


class Preparation(NamedTuple):
    """A preparation of generated logs."""

    name: str  # module of the benchmark
    title: str
    module: str
    unit: str  # plural noun
    # writes a log of N units into a folder; returns the flags that read it
    generate: Callable[[Path, int], Sequence[object]]
    output_flag: str
    speed_flags: Sequence[object] = ()  # where seconds are compared
    memory_flags: Sequence[object] = ()  # where the memory is measured

    def run(self, work: Path, *flags: object, root: Path = ROOT) -> PreparationRun:
        """Prepares into a folder in `work`, which is removed again."""
        output = work / "prepared"
        result = run(self.module, *flags, self.output_flag, output, root=root)
        digest = checksum(output)
        shutil.rmtree(output)
        return result._replace(checksum=digest)


def run(module: str, *arguments: object, root: Path = ROOT) -> PreparationRun:
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


def checksum(folder: Path) -> str:
    """SHA-256 over names and contents of all files but the marker, which has keys of paths.

    Parquet files count without the version of Arrow that wrote them: engines have another one.
    """
    total = hashlib.sha256()
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != MARKER)
    for path in sorted(paths):
        content = path.read_bytes()
        if path.suffix == ".parquet":
            content = _ARROW_VERSION.sub(b"", content)
        total.update(f"{path.relative_to(folder)} {hashlib.sha256(content).hexdigest()}\n".encode())
    return total.hexdigest()


def compare(
    sides: dict[str, Callable[[], PreparationRun]], repeats: int
) -> dict[str, list[PreparationRun]]:
    """Runs the sides in turn, in an order that alternates from round to round.

    Raises:
        RuntimeError: two runs left different files.
    """
    runs: dict[str, list[PreparationRun]] = {name: [] for name in sides}
    for turn in range(repeats):
        for name in list(sides)[:: -1 if turn % 2 else 1]:
            runs[name].append(sides[name]())
            print(f"round {turn}: {name}: {runs[name][-1].elapsed_s:.1f} s", file=sys.stderr)
    checksums = {each.checksum: name for name in runs for each in runs[name]}
    if len(checksums) != 1:
        raise RuntimeError(f"different files: {checksums}")
    return runs


def median_s(runs: Sequence[PreparationRun]) -> float:
    return float(np.median([each.elapsed_s for each in runs]))


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
    return report.table(columns, rows)


def parser_of(description: str, engines: tuple[str, ...], **counts) -> argparse.ArgumentParser:
    parser = report.parser_of(description, **counts, memory_limit_mib=512, repeats=3)
    parser.add_argument("--engines", type=report.listed(str), default=engines)
    parser.add_argument("--other", type=Path, help="compare with another checkout, too")
    parser.add_argument("--work_dir", type=Path, help="of temporary files; default: the system's")
    return parser


def measure(
    preparation: Preparation, args: argparse.Namespace
) -> tuple[Page, dict[str, list[PreparationRun]]]:
    """Compares the engines, and measures the memory of the first one under a limit."""
    page = Page(preparation.title, [report.command(preparation.name, args)], [DUCKDB])
    roots = {"": ROOT} | ({f" of {args.other}": args.other} if args.other else {})
    with tempfile.TemporaryDirectory(dir=args.work_dir) as folder:
        work = Path(folder)
        flags = (*preparation.generate(work / "log", args.count), *preparation.speed_flags)
        sides = {
            f"{engine}{of_root}": lambda engine=engine, root=root: preparation.run(
                work, *flags, "--engine", engine, root=root
            )
            for engine in args.engines
            for of_root, root in roots.items()
        }
        runs = compare(sides, args.repeats)
        lines = table(runs, preparation.unit, args.count)
        page.add(f"{args.count:,} {preparation.unit}", *lines)
        shutil.rmtree(work / "log")
        flags = (*preparation.generate(work / "log", args.memory_count), *preparation.memory_flags)
        flags += ("--memory_limit", f"{args.memory_limit_mib}MiB")
        limited = preparation.run(work, *flags, "--engine", args.engines[0])
    lines = table({args.engines[0]: [limited]}, preparation.unit, args.memory_count)
    title = f"--memory_limit {args.memory_limit_mib}MiB, {args.memory_count:,} {preparation.unit}"
    page.add(title, *lines)
    text = f"peak memory {limited.peak_mib:.0f} MiB"
    page.judge(text, args.memory_limit_mib, limited.peak_mib <= args.memory_limit_mib)
    return page, runs
