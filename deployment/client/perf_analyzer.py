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
from deployment.serve.environment import ENVIRONMENT, variables

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
) -> Timing:
    """Measures a number of requests of `batch_size` rows, of which `concurrency` are in flight.

    Of `rows`, tensors by name, only the first are sent if preparing all takes too long.

    Raises:
        ValueError: it failed, for example because a request was refused.
    """
    num_rows = max(batch_size, _MAX_COPIES // (batch_size * concurrency))
    num_rows = min(num_rows, len(next(iter(rows.values()))))
    steps = [
        {name: {"b64": base64.b64encode(v[n].tobytes()).decode()} for name, v in rows.items()}
        for n in range(num_rows)
    ]
    with tempfile.TemporaryDirectory() as folder:
        data, profile = Path(folder, "data.json"), Path(folder, "profile.json")
        data.write_text(json.dumps({"data": steps}))
        flags = {
            "-m": model_name,
            "-u": url,
            "-i": "grpc",
            "-b": batch_size,
            "--input-data": data,
            "--concurrency-range": concurrency,
            "--request-count": requests,
            "--profile-export-file": profile,
        }
        done = _run([str(part) for flag in flags.items() for part in flag], None)
        if done.returncode or not profile.exists():
            message = (done.stderr.strip() or done.stdout.strip()).splitlines()[-5:]
            raise ValueError(f"perf_analyzer could not measure {model_name}: {' '.join(message)}")
        (experiment,) = json.loads(profile.read_text())["experiments"]
    # Times of sending and answering in ns. Its own throughput includes its waiting after the last
    # answer.
    times = [(r["timestamp"], r["response_timestamps"][-1]) for r in experiment["requests"]]
    elapsed_ns = max(end for _, end in times) - min(start for start, _ in times)
    return timing([(end - start) / 1e9 for start, end in times], 0, elapsed_ns / 1e9)


def _run(arguments: list[str], timeout_s: float | None) -> subprocess.CompletedProcess:
    return subprocess.run(
        [PROGRAM, *arguments],
        env=variables(ENVIRONMENT / "triton"),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
