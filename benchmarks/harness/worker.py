"""The process of a side of a training benchmark: one JSON line asks, one JSON line answers.

    python -m benchmarks.harness.worker MODULE FOLDER

`MODULE.start(FOLDER, **OPTIONS)` makes a training. FOLDER has rows, sizes and weights. NumPy and
the standard library only: it also runs in the environment of PyTorch.
"""

import importlib
import json
import os
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

PACKAGES = ("tensorflow", "torchrec", "fbgemm_gpu", "intel_extension_for_pytorch", "torch")


def save(folder: Path, rows: Mapping[str, np.ndarray], sizes: SimpleNamespace) -> None:
    """Writes arrays, and numbers and tuples of them."""
    np.savez(folder / "rows.npz", **rows)
    (folder / "sizes.json").write_text(json.dumps(vars(sizes)))


def load(folder: Path) -> tuple[Any, SimpleNamespace]:
    """Reads what `save` wrote; the arrays are a named tuple."""
    with np.load(folder / "rows.npz") as stored:
        rows = namedtuple("rows", stored.files)(*stored.values())
    sizes = json.loads((folder / "sizes.json").read_text())
    lists = {name: tuple(value) for name, value in sizes.items() if isinstance(value, list)}
    return rows, SimpleNamespace(**{**sizes, **lists})


def main() -> None:
    """Answers requests on stdin: `{"start": OPTIONS}` and `{"steps": N}`.

    A training's `step()` does one step and returns the loss.
    """
    module, folder = importlib.import_module(sys.argv[1]), Path(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the output of libraries
    training = None
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            training = None  # tables and moments of one model at a time are in memory
            training = module.start(folder, **request["start"])
            Path("/proc/self/clear_refs").write_text("5")  # the peak of the memory starts again
            packages = (name for name in PACKAGES if name in sys.modules)
            versions = (f"{name} {sys.modules[name].__version__}" for name in packages)
            answer = {"version": ", ".join(versions)}
        else:
            answer = timed_steps(training.step, request["steps"])
        print(json.dumps(answer), file=answers, flush=True)


def timed_steps(step: Callable[[], float], count: int) -> dict:
    """`ms` and `losses` of the steps, their CPU seconds, and the peak of the memory."""
    times, losses, cpu_s = [], [], time.process_time()
    for _ in range(count):
        times.append(timed_ms(lambda: losses.append(step())))
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":\t") for line in lines)
    return {
        "ms": times,
        "losses": losses,
        "cpu_s": time.process_time() - cpu_s,
        "peak_mib": int(status["VmHWM"].split()[0]) / 1024,
    }


def timed_ms(call: Callable[[], object]) -> float:
    """Wall-clock milliseconds of a call."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


if __name__ == "__main__":
    main()
