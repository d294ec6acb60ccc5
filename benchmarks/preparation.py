"""Rows per second and peak memory of the Criteo preparation, end to end.

    python -m benchmarks.preparation

Generates logs into a temporary folder and runs `python -m preproc.criteo` on them in a process of
its own: wall time from its start to its end, peak resident memory as the kernel counted it.

1. Speed: a million rows in 4 days, frequency threshold 15; median and all of 3 runs.
2. Memory: four million rows in 4 days, every value kept, under a small `--memory_limit`.
"""

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

ROOT = Path(__file__).resolve().parent.parent
TARGET_ROWS_PER_S = 150_000  # on 2 cores
MIB = 1 << 20


def generate(folder: Path, num_days: int, rows_per_day: int) -> int:
    """Writes a log; returns its size in bytes."""
    arguments = ["--output", folder, "--days", num_days, "--rows_per_day", rows_per_day]
    _run("preproc.criteo.generate_logs", arguments)
    return sum(path.stat().st_size for path in folder.iterdir())


def prepare(log: Path, output: Path, *flags) -> tuple[float, float]:
    """Seconds from start to end, and peak resident MiB of the process."""
    started = time.perf_counter()
    peak_mib = _run("preproc.criteo", ["--input", log, "--output", output, *flags])
    elapsed_s = time.perf_counter() - started
    shutil.rmtree(output)
    return elapsed_s, peak_mib


def _run(module: str, arguments: list) -> float:
    """Runs a module; returns its peak resident MiB."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            log.seek(0)
            raise RuntimeError(f"{module} failed:\n{log.read().decode()}")
    return usage.ru_maxrss / 1024  # Linux counts in KiB


def main(argv: list[str] | None = None) -> int:
    """Prints both parts; the exit status is 0 if both targets are met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.preparation")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the first part")
    parser.add_argument("--memory_rows", type=int, default=4_000_000, help="of the second part")
    parser.add_argument("--memory_limit_mib", type=int, default=512, help="of the second part")
    parser.add_argument("--repeats", type=int, default=3, help="runs of the first part")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work_dir", help="folder for the temporary files (default: the system's)")
    flags = parser.parse_args(argv)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, {flags.threads} threads, load "
        f"{os.getloadavg()[0]:.1f}; Python {platform.python_version()}, DuckDB {duckdb.__version__}"
    )
    with tempfile.TemporaryDirectory(dir=flags.work_dir) as work:
        speed_met = _speed(Path(work), flags)
        memory_met = _memory(Path(work), flags)
    return 0 if speed_met and memory_met else 1


def _speed(work: Path, flags) -> bool:
    log = work / "speed"
    size = generate(log, 4, flags.rows // 4)
    common = ["--frequency_threshold", 15, "--threads", flags.threads]
    runs = [prepare(log, work / "out", *common) for _ in range(flags.repeats)]
    shutil.rmtree(log)
    median_s = statistics.median(elapsed_s for elapsed_s, _ in runs)
    rate = flags.rows / median_s
    print(f"speed: {flags.rows:,} rows ({size / 1e6:.0f} MB) in 4 days, threshold 15")
    print(f"  seconds: {', '.join(f'{s:.2f}' for s, _ in runs)}; median {median_s:.2f}")
    print(f"  peak memory: {max(peak for _, peak in runs):.0f} MiB")
    met = rate >= TARGET_ROWS_PER_S
    print(f"  {rate:,.0f} rows/s; target {TARGET_ROWS_PER_S:,}: {'met' if met else 'NOT met'}")
    return met


def _memory(work: Path, flags) -> bool:
    log, limit = work / "memory", flags.memory_limit_mib
    size = generate(log, 4, flags.memory_rows // 4)
    common = ["--frequency_threshold", 0, "--threads", flags.threads]
    elapsed_s, peak = prepare(log, work / "out", *common, "--memory_limit", f"{limit}MiB")
    print(f"memory: {flags.memory_rows:,} rows ({size / 1e6:.0f} MB) in 4 days, all values kept")
    print(f"  {elapsed_s:.2f} s, {flags.memory_rows / elapsed_s:,.0f} rows/s")
    met = peak <= limit
    print(
        f"  peak memory {peak:.0f} MiB; --memory_limit {limit} MiB: {'held' if met else 'BROKEN'}"
    )
    return met


if __name__ == "__main__":
    sys.exit(main())
