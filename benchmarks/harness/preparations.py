"""Preparations of data sets as commands: seconds, peak memory, and the files that they leave."""

import argparse
import contextlib
import hashlib
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import distributions, version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from benchmarks.harness import report
from benchmarks.harness.report import spread
from dataloading.engines import environment

ROOT = Path(__file__).resolve().parents[2]
_ARROW_VERSION = re.compile(rb"parquet-cpp-arrow version [0-9.]+")
_SAMPLE_S = 0.5  # between two samples of the memory, each of which takes the kernel some work


class PreparationRun(NamedTuple):
    """One command."""

    elapsed_s: float  # from its start to its end
    # sampled memory of its processes and of those that work for it: the sum of proportional
    # set sizes (a page that n processes share counts as 1/n of a page in each)
    peak_mib: float
    resident_mib: float = 0.0  # largest resident memory of one process, as the kernel counts it
    log: str = ""  # its output
    checksum: str = ""  # of the files that it left
    # processor time of its processes, sampled, or of those that it waited for where that is more:
    # on a machine with other work, times depend on that
    cpu_s: float = 0.0


def run(
    module: str,
    *arguments: object,
    others: Sequence[int] = (),
    python: str | Path = sys.executable,
    root: Path = ROOT,
) -> PreparationRun:
    """Runs a module of the checkout `root`, with `others` working for it, and waits for it.

    others: ids of processes.

    Raises:
        RuntimeError: it fails; the message holds its output.
    """
    return run_command([python, "-m", module, *arguments], others, root)


def run_command(
    words: Sequence[object],
    others: Sequence[int] = (),
    root: Path = ROOT,
    variables: Mapping[str, str] | None = None,
) -> PreparationRun:
    """Runs a command in `root`, with more environment `variables`, as `run` does a module."""
    command = list(map(str, words))
    peak_mib, cpu_s = 0.0, {}
    with tempfile.TemporaryFile("w+") as log:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=root, stdout=log, stderr=log, env={**os.environ, **(variables or {})}
        )
        handle = os.pidfd_open(process.pid)
        ending = select.poll()  # select() takes no descriptor above 1023
        ending.register(handle, select.POLLIN)
        while not ending.poll(1000 * _SAMPLE_S):
            used_mib = sum(tree_memory_mib(pid) for pid in (process.pid, *others))
            peak_mib = max(peak_mib, used_mib)
            cpu_s |= tree_cpu_s(process.pid)
        os.close(handle)
        _, status, usage = os.wait4(process.pid, 0)
        elapsed_s = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        output = log.read()
    if process.returncode:
        raise RuntimeError(f"{command} failed with {process.returncode}:\n{output}")
    return PreparationRun(
        elapsed_s,
        peak_mib,
        usage.ru_maxrss / 1024,
        output,
        cpu_s=max(sum(cpu_s.values()), usage.ru_utime + usage.ru_stime),
    )


def tree_memory_mib(pid: int) -> float:
    """Memory of a process and its descendants now; 0 for those that have ended."""
    total = 0
    try:
        process = psutil.Process(pid)
        tree = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    for process in tree:
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total / 2**20


def tree_cpu_s(pid: int) -> dict[int, float]:
    """Processor time of a process and its descendants so far, by process."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        tree = [process, *process.children(recursive=True)]
        times = {}
        for each in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                times[each.pid] = sum(each.cpu_times()[:2])
        return times
    return {}


def checksum(folder: Path) -> str:
    """SHA-256 over names and contents of all files.

    Parquet files count without the version of Arrow that wrote them: engines have another one.
    """
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = hashlib.sha256()
        if path.suffix == ".parquet":
            content.update(_ARROW_VERSION.sub(b"", path.read_bytes()))
        else:
            with open(path, "rb") as file:
                while block := file.read(1 << 20):
                    content.update(block)
        total.update(f"{path.relative_to(folder)} {content.hexdigest()}\n".encode())
    return total.hexdigest()


def prepare(
    work: Path,
    module: str,
    *arguments: object,
    flag: str = "--output",
    checksum_of: Callable[[Path], str] = checksum,
    **options,
) -> PreparationRun:
    """Runs a preparation into a folder in `work`, the value of `flag`, which is removed again."""
    output = work / "prepared"
    result = run(module, *arguments, *filter(None, [flag]), output, **options)
    digest = checksum_of(output)
    shutil.rmtree(output)
    return result._replace(checksum=digest)


def compare(
    order: Sequence[str], prepare_side: Callable[[str], PreparationRun], repeats: int, what: str
) -> dict[str, list[PreparationRun]]:
    """Runs the sides in turn, in an order that changes from round to round.

    Raises:
        RuntimeError: two runs left different files, or another `what`.
    """
    runs: dict[str, list[PreparationRun]] = {side: [] for side in order}
    for turn in range(repeats):
        for side in order[:: -1 if turn % 2 else 1]:
            result = prepare_side(side)
            runs[side].append(result)
            words = f"{result.elapsed_s:.1f} s, {result.peak_mib:.0f} MiB"
            print(f"round {turn}: {side}: {words}", file=sys.stderr)
    checksums = {each.checksum: side for side in runs for each in runs[side]}
    if len(checksums) != 1:
        raise RuntimeError(f"different {what}: {checksums}")
    return runs


def median_s(runs: Sequence[PreparationRun]) -> float:
    return float(np.median([each.elapsed_s for each in runs]))


def table(
    runs: Mapping[str, Sequence[PreparationRun]],
    unit: str,
    count: int,
    extra: Mapping[str, Callable[[Sequence[PreparationRun]], float]] | None = None,
) -> list[str]:
    """Seconds (median, least, most) of all sides, their speed in `unit`, and peak memory.

    `count` units are prepared; `extra` are more columns.
    """
    extra = extra or {}
    columns = ("side", "seconds", f"{unit} per second", *extra, "peak memory, MiB")
    rows = []
    for side, each in runs.items():
        speed = f"{count / median_s(each):,.0f}"
        cells = (f"{value(each):.1f}" for value in extra.values())
        peak = f"{max(run.peak_mib for run in each):,.0f}"
        rows.append((side, spread([run.elapsed_s for run in each]), speed, *cells, peak))
    return report.table(columns, rows)


def growth(
    unit: str,
    counts: Sequence[int],
    generate: Callable[[int], Path],
    prepare_log: Callable[[Path], Sequence[PreparationRun]],
) -> tuple[list[str], list[float]]:
    """Prepares logs of several lengths; returns a table, and the peak memory of each in MiB."""
    rows, peaks = [], []
    for count in counts:
        log = generate(count)
        runs = prepare_log(log)
        peaks.append(max(run.peak_mib for run in runs))
        rows.append(
            (f"{count:,}", f"{size_mb(log):,.0f}", f"{median_s(runs):.1f}", f"{peaks[-1]:,.0f}")
        )
        shutil.rmtree(log)
    return report.table((unit, "log, MB", "seconds", "peak memory, MiB"), rows, 0), peaks


def size_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.iterdir()) / 1e6


def versions(*packages: str) -> str:
    return ", ".join(f"{name} {version(name)}" for name in packages)


def engine_versions(*packages: str) -> str:
    """`versions` in the environment of Spark and NVTabular."""
    folder = environment.packages_folder()
    if folder is None:
        raise RuntimeError("no Spark and NVTabular: run `make engines`")
    installed = {each.name: each.version for each in distributions(path=[str(folder)])}
    listed = ", ".join(f"{name} {installed[name]}" for name in packages)
    return f"{folder.parents[2].name}: {listed}"


def parser_of(description: str, repeats: int, **integers: int) -> argparse.ArgumentParser:
    parser = report.parser_of(description, **integers)
    parser.add_argument("--repeats", type=int, default=repeats, help="rounds")
    parser.add_argument("--work_dir", type=Path, help="of temporary files; default: the system's")
    return parser
