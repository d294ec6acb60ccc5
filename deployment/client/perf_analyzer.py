"""Latency by NVIDIA's perf_analyzer, which tritonclient brings along: requests without Python.

Before it measures it puts a request together for each row of its data, beginning there, in each
thread: rows x batch size x concurrency copies, 2 million a second were seen. So it gets few rows
where requests are large.
"""

import base64
import json
import subprocess
import tempfile
from pathlib import Path

from deployment.client.latency_requests import RequestRows
from deployment.client.latency_statistics import Timing, timing
from deployment.serve.environment import ENVIRONMENT, variables

PROGRAM = ENVIRONMENT / "bin/perf_analyzer"

_COPIES = 2**23  # of rows, seconds


def works() -> bool:
    """Whether it is there and starts."""
    try:
        return not _run(["--version"], 30).returncode
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False


def is_quick(batch_size: int, concurrency: int) -> bool:
    """Whether its preparations take seconds, with a request's rows different from each other."""
    return batch_size**2 * concurrency <= _COPIES


def measure(
    url: str, model_name: str, rows: RequestRows, batch_size: int, concurrency: int, requests: int
) -> Timing:
    """Measures so many requests.

    Args:
        url: of the server's gRPC.
        model_name: of the model.
        rows: of which requests are made, `batch_size` neighbouring ones each; the first of them only,
            where it would prepare too long.
        concurrency: requests that are in flight all the time.

    Raises:
        ValueError: it did not end well, as when a request is refused; the text has its words.
    """
    with tempfile.TemporaryDirectory() as folder:
        data, found = Path(folder, "data.json"), Path(folder, "found.json")
        data.write_text(json.dumps({"data": _steps(rows, batch_size, concurrency)}))
        flags = {
            "-m": model_name,
            "-u": url,
            "-i": "grpc",
            "-b": batch_size,
            "--input-data": data,
            "--concurrency-range": concurrency,
            "--request-count": requests,
            "--profile-export-file": found,
        }
        done = _run([str(part) for flag in flags.items() for part in flag], None)
        if done.returncode or not found.exists():
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-5:]
            raise ValueError(f"perf_analyzer could not measure {model_name}: {' '.join(said)}")
        (experiment,) = json.loads(found.read_text())["experiments"]
    # Of each request when it was sent and answered, in ns. Its own throughput is per second that it
    # waited, also where all requests were answered sooner.
    times = [(r["timestamp"], r["response_timestamps"][-1]) for r in experiment["requests"]]
    elapsed_ns = max(end for _, end in times) - min(start for start, _ in times)
    return timing([(end - start) / 1e9 for start, end in times], 0, elapsed_ns / 1e9)


def _steps(rows: RequestRows, batch_size: int, concurrency: int) -> list[dict]:
    """Its form of rows: one at a time, base64 of their bytes."""
    num_rows = max(batch_size, _COPIES // (batch_size * concurrency))
    num_rows = min(num_rows, len(next(iter(rows.values()))))
    return [
        {name: {"b64": base64.b64encode(v[n].tobytes()).decode()} for name, v in rows.items()}
        for n in range(num_rows)
    ]


def _run(arguments: list[str], timeout_s: float | None) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(PROGRAM), *arguments],
        env=variables(ENVIRONMENT / "triton"),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
