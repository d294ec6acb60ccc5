"""Seconds and peak memory of a command with all the processes that it starts."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
_SAMPLE_S = 0.5  # between two looks at the memory, each of which takes the kernel some work


def run(command: list, others: list[int] = ()) -> tuple[float, float]:
    """Runs a command in the repository and waits for it.

    Memory is the sum of proportional set sizes (a page that n processes share counts as 1/n of a
    page in each), looked at twice a second: shorter peaks are missed.

    Args:
        command: words; converted to text.
        others: processes that work for it and were started before, e.g. a cluster's.

    Returns:
        seconds from start to end; peak MiB of its processes and of `others`.

    Raises:
        RuntimeError: it fails; the message holds its output.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        list(map(str, command)),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    peak, ended = [0.0], threading.Event()

    def watch():
        while not ended.wait(_SAMPLE_S):
            peak[0] = max(peak[0], sum(tree_memory_mib(pid) for pid in (process.pid, *others)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        output, _ = process.communicate()
    finally:
        ended.set()
        watcher.join()
    if process.returncode:
        raise RuntimeError(f"{command} failed with {process.returncode}:\n{output}")
    return time.perf_counter() - started, peak[0]


def tree_memory_mib(pid: int) -> float:
    """Memory of a process and its descendants now; 0 for those that have ended."""
    try:
        processes = [psutil.Process(pid)]
        processes += processes[0].children(recursive=True)
    except psutil.NoSuchProcess:
        return 0.0
    total = 0
    for process in processes:
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total / (1 << 20)


def module(name: str, *arguments) -> list:
    """The command that runs one of our modules."""
    return [sys.executable, "-m", name, *arguments]
