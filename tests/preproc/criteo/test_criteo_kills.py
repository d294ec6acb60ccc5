"""Restarts after kills at random moments: equal files, and no finished stage is repeated.

Spark is killed in test_spark_runs.py.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from preproc.criteo.generate_logs import generate_day
from preproc.criteo.options import CriteoOptions
from preproc.criteo.prepare import prepare
from tests.preproc.contents import contents

ROOT = Path(__file__).parents[3]
FLAGS = ("--frequency_threshold", "2", "--memory_limit", "3GiB", "--threads", "2")


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    for day in range(3):
        generate_day(folder / f"day_{day}", 8000, [8, day])
    return folder


@pytest.fixture(scope="module")
def expected(raw, tmp_path_factory):
    output = tmp_path_factory.mktemp("expected") / "out"
    prepare(
        CriteoOptions(input=raw, output=output, frequency_threshold=2, memory_limit_bytes=1 << 30)
    )
    return contents(output)


def start(raw, output):
    """Starts a run in a process group of its own."""
    command = [sys.executable, "-m", "preproc.criteo", "--input", raw, "--output", output]
    return subprocess.Popen(
        [*map(str, command), *FLAGS],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.long
@pytest.mark.parametrize("num_kills", [3, 20])
def test_kills_at_random_moments(num_kills, raw, expected, tmp_path):
    output, state = tmp_path / "out", tmp_path / "out.partial" / "state.json"
    started = time.monotonic()
    _, message = (process := start(raw, output)).communicate()
    whole_s = time.monotonic() - started
    assert process.returncode == 0, message
    assert contents(output) == expected
    moments = random.Random(num_kills)
    midway, sessions = 0, set()
    for kill in range(num_kills):
        shutil.rmtree(output)
        process = start(raw, output)
        if kill == 0:  # amid the stages, however long the start takes
            while not state.exists() and process.poll() is None:
                time.sleep(0.005)
            time.sleep(0.1)
        else:
            time.sleep(moments.uniform(0.1, 0.95) * whole_s)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        sessions.add(process.pid)
        finished = set(json.loads(state.read_text())) if state.exists() else set()
        midway += 0 < len(finished) < 56
        if output.exists():  # it was faster this time
            shutil.rmtree(output.with_name("out.partial"), ignore_errors=True)
        else:
            _, message = (process := start(raw, output)).communicate()
            assert process.returncode == 0, f"kill {kill}: {message}"
            again = set(re.findall(r"^\[\d+/\d+\] (.*?): finished before", message, re.MULTILINE))
            assert again == finished, f"kill {kill}"
        assert contents(output) == expected, f"kill {kill}"
        assert not state.parent.exists()
    assert midway >= num_kills // 3, "most kills came before the first stage or after the last"
    end = time.monotonic() + 20
    while left := _processes_of(sessions):
        assert time.monotonic() < end, f"left behind by killed runs: {left}"
        time.sleep(0.2)


def _processes_of(sessions: set[int]) -> list[int]:
    left = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) in sessions:
                left.append(int(folder.name))
        except ProcessLookupError:
            continue
    return left
