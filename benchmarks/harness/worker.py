"""The process of a side of a training benchmark: one JSON line asks, one JSON line answers.

    python -m benchmarks.harness.worker MODULE FOLDER THREADS OPTIONS

`MODULE.side(FOLDER, THREADS, **OPTIONS)` returns the versions of its packages, and a function that
makes a training. FOLDER has rows, sizes and weights. NumPy and the standard library only: it also
runs in the environment of PyTorch.
"""

import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

# Versions, and what makes a training from the options of a case.
Started = tuple[str, Callable[..., Any]]


def save(folder: Path, rows: Any, sizes: Any) -> None:
    """Writes a named tuple of arrays, and a dataclass of numbers and tuples of them."""
    np.savez(folder / "rows.npz", **rows._asdict())
    (folder / "sizes.json").write_text(json.dumps(asdict(sizes)))


def load_sizes(folder: Path, kind: type) -> Any:
    stored = json.loads((folder / "sizes.json").read_text())
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()})


def load(folder: Path, rows_kind: type, sizes_kind: type) -> tuple[Any, Any]:
    """Reads what `save` wrote."""
    with np.load(folder / "rows.npz") as stored:
        rows = rows_kind(*(stored[name] for name in rows_kind._fields))
    return rows, load_sizes(folder, sizes_kind)


def serve(version: str, make: Callable[..., Any]) -> None:
    """Answers requests on stdin: `{"start": OPTIONS}` and `{"steps": N}`.

    `make(**OPTIONS)` returns a training, whose `step()` does one step and returns the loss.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the output of libraries
    training = None
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            training = None  # tables and moments of one model at a time are in memory
            training = make(**request["start"])
            reset_peak_memory()
            answer = {"version": version}
        else:
            answer = timed_steps(training.step, request["steps"])
        print(json.dumps(answer), file=answers, flush=True)


def main() -> None:
    """Starts a side and answers requests."""
    module, folder, threads, options = sys.argv[1:]
    side = importlib.import_module(module).side
    serve(*side(Path(folder), int(threads), **json.loads(options)))


def timed_steps(step: Callable[[], float], count: int) -> dict:
    """`ms` and `losses` of the steps, their CPU seconds, page faults per step, and peak memory."""
    times, losses, cpu_s = [], [], time.process_time()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        times.append(timed_ms(lambda: losses.append(step())))
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    return {
        "ms": times,
        "losses": losses,
        "cpu_s": time.process_time() - cpu_s,
        "faults": faults / max(1, count),
        "peak_mib": peak_memory_mib(),
    }


def timed_ms(call: Callable[[], object]) -> float:
    """Wall-clock milliseconds of a call."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def reset_peak_memory() -> None:
    """Restarts the measurement of `peak_memory_mib`."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_memory_mib() -> float:
    """The largest resident memory of this process since the last reset."""
    status = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
