"""Benchmark sides as processes of their own: one JSON line asks, one JSON line answers."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

# Threads of a side that waits for its turn must sleep, or they take the cores of the other side.
SLEEPING_THREADS = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "0"}


class Worker:
    """A side of a benchmark.

    Args:
        command: starts a process that calls `serve`.
        environment: variables to set for it.
    """

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str]):
        self.name = name
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **SLEEPING_THREADS, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def ask(self, action: str, **arguments) -> dict:
        """Lets the side do one thing and returns its answer.

        Raises:
            RuntimeError: the side died; the message ends with its last words.
        """
        try:
            self._process.stdin.write(json.dumps({"action": action, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self._process.stdout.readline()
        if not answer:
            self._process.wait()
            self._errors.seek(0)
            raise RuntimeError(f"{self.name} died during '{action}': {self._errors.read()[-3000:]}")
        return json.loads(answer)

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


def serve(actions: Mapping[str, Callable[..., dict]]) -> None:
    """Answers requests until the other end closes. Answers carry the CPU time they took."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries print to stdout, too
        answer_requests(actions, sys.stdin, answers)


def answer_requests(actions: Mapping[str, Callable[..., dict]], requests, answers) -> None:
    """Reads requests, a JSON line each, until the end of the stream."""
    for line in requests:
        request = json.loads(line)
        start = time.process_time()
        answer = actions[request.pop("action")](**request)
        answers.write(json.dumps({**answer, "cpu_s": time.process_time() - start}) + "\n")
        answers.flush()


def timed_ms(call: Callable[[], object]) -> float:
    """Wall-clock milliseconds of a call."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def timed_steps(step: Callable[[], float], count: int) -> dict:
    """Does `count` steps: `ms` and `losses` of each, page `faults` of each on average."""
    times, losses = [], []
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        times.append(timed_ms(lambda: losses.append(step())))
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    return {"ms": times, "losses": losses, "faults": faults / count}
