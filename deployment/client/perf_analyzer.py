"""Latency measured by NVIDIA's perf_analyzer, a part of tritonclient without Python's overhead.

Before it measures, each of its threads prepares a request for each row of its data: rows x batch
size x concurrency copies, at about 2 million per second. So it gets few rows for large requests.
"""

import base64
import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from deployment.client.latency_statistics import Timing, timing
from deployment.client.served_tensors import NATIVE, ServedTensors
from deployment.serve.serving_environment import ENVIRONMENT, variables
from deployment.serving.interface import ENCODED

PROGRAM = ENVIRONMENT / "bin/perf_analyzer"

_MAX_COPIES = 2**23  # of rows: seconds


def works() -> bool:
    """Returns whether it is installed and starts."""
    try:
        return not _run(["--version"], 30).returncode
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False


def is_quick(batch_size: int, concurrency: int) -> bool:
    """Returns whether it prepares requests of different rows within seconds."""
    return batch_size**2 * concurrency <= _MAX_COPIES


def measure(
    url: str,
    model_name: str,
    rows: Mapping[str, np.ndarray],
    batch_size: int,
    concurrency: int,
    requests: int,
    *,
    tensors: ServedTensors = NATIVE,
    version: str = "",
    timeout_s: float | None = None,
) -> Timing:
    """Measures a number of requests of `batch_size` rows, of which `concurrency` are in flight.

    Of `rows`, tensors by name, only the first are sent if preparing all takes too long.

    Args:
        version: version of the model; empty: the newest.
        timeout_s: limit of a measurement; None: no limit.

    Raises:
        ValueError: it failed, for example because a request was refused.
    """
    num_rows = max(batch_size, _MAX_COPIES // (batch_size * concurrency))
    num_rows = min(num_rows, len(next(iter(rows.values()))))
    steps, shapes = _steps(tensors, rows, num_rows, batch_size)
    with tempfile.TemporaryDirectory() as folder:
        data, profile = Path(folder, "data.json"), Path(folder, "profile.json")
        data.write_text(json.dumps({"data": steps}))
        flags = {
            "-m": model_name,
            "-u": url,
            "-i": "grpc",
            "-b": 1 if shapes else batch_size,
            "--input-data": data,
            "--concurrency-range": concurrency,
            "--request-count": requests,
            "--profile-export-file": profile,
        }
        flags |= {"-x": version} if version else {}
        if tensors.are_encoded:
            flags["--request-parameter"] = f"{ENCODED}:true:bool"
        arguments = [str(part) for flag in flags.items() for part in flag]
        arguments += [part for shape in shapes for part in ("--shape", shape)]
        answered = _profiled_requests(arguments, model_name, profile, timeout_s)
    # Times of sending and answering in ns. Its own throughput includes its waiting after the last
    # answer.
    times = [(r["timestamp"], r["response_timestamps"][-1]) for r in answered]
    elapsed_ns = max(end for _, end in times) - min(start for start, _ in times)
    return timing([(end - start) / 1e9 for start, end in times], 0, elapsed_ns / 1e9)


def _profiled_requests(
    arguments: list[str], model_name: str, profile: Path, timeout_s: float | None
) -> list[dict]:
    """Runs perf_analyzer and returns the requests of its profile.

    A profile contains tensors, and ends before the first value that is not finite, without a
    message and with status 0; one of less than 64 KiB is then empty.
    """
    try:
        done = _run(arguments, timeout_s)
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"--timeout_s {timeout_s:g}: perf_analyzer did not end before: choose a longer time, "
            "or fewer --requests"
        ) from None
    message = " ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-5:])
    if done.returncode or not profile.exists():
        raise ValueError(f"perf_analyzer could not measure {model_name}: {message}")
    try:
        # Texts of a batch are written with their binary lengths.
        (experiment,) = json.loads(profile.read_text("utf-8", errors="replace"))["experiments"]
    except json.JSONDecodeError:
        raise ValueError(
            f"perf_analyzer wrote an incomplete profile of {model_name}: it cannot write inputs or "
            f"scores that are not finite: choose --client own. Its output: {message}"
        ) from None
    return experiment["requests"]


def _steps(
    tensors: ServedTensors, rows: Mapping[str, np.ndarray], num_rows: int, batch_size: int
) -> tuple[list[dict], list[str]]:
    """Returns requests as perf_analyzer reads them, and shapes of their tensors.

    A request has one row, of which perf_analyzer sends `batch_size` in a message. Those of keys are
    whole, and have shapes: the order of their values depends on the number of rows.
    """
    size = 1 if tensors.interface is None else batch_size
    requests = [
        tensors.request({name: array[n : n + size] for name, array in rows.items()})
        for n in range(0, num_rows - size + 1, size)
    ]
    steps = [{name: _content(array) for name, array in each.items()} for each in requests]
    if tensors.interface is None:
        return steps, []
    return steps, [f"{name}:{array.shape[1]}" for name, array in requests[0].items()]


def _content(array: np.ndarray) -> dict:
    if array.dtype != object:
        return {"b64": base64.b64encode(array.tobytes()).decode()}
    return {"content": [text.decode() for text in array.ravel()], "shape": list(array.shape[1:])}


def _run(arguments: list[str], timeout_s: float | None) -> subprocess.CompletedProcess:
    return subprocess.run(
        [PROGRAM, *arguments],
        env=variables(ENVIRONMENT / "triton"),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
