"""Measurements by a stand-in of perf_analyzer."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from deployment.client import perf_analyzer
from deployment.client.perf_analyzer import SYSTEM, PerfAnalyzerOptions

# Requests of 2 and 1 ms. The text has its length of 255 in front, which is not UTF-8.
REQUESTS = [
    {"timestamp": 1_000_000, "request_inputs": {"x": "?"}, "response_timestamps": [3_000_000]},
    {"timestamp": 3_000_000, "request_inputs": {"x": "?"}, "response_timestamps": [4_000_000]},
]
PROFILE = json.dumps({"experiments": [{"requests": REQUESTS}]}).encode().replace(b"?", b"\xffab")

# Writes the profile of the number of its run, to a new file, one process at a time.
PROGRAM = """#!/bin/sh
while [ "$1" != --profile-export-file ]; do shift; done
cd "$(dirname "$0")"
[ -e "$2" ] && echo "the profile exists" >&2 && exit 1
mkdir busy || exit 1
echo run >> runs
cp "profile_$(wc -l < runs)" "$2"
sleep "$(cat pause)"
rmdir busy
echo "latency 1500 usec"
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Returns a function that sets the profiles of the runs, and returns the file of runs."""
    path = tmp_path / "perf_analyzer"
    path.write_text(PROGRAM)
    path.chmod(0o700)
    monkeypatch.setattr(perf_analyzer, "PROGRAM", path)
    monkeypatch.setattr(perf_analyzer, "variables", lambda folder: dict(os.environ))

    def set_profiles(*profiles, pause_s=0.0):
        (tmp_path / "pause").write_text(str(pause_s))
        for number, profile in enumerate(profiles, 1):
            (tmp_path / f"profile_{number}").write_bytes(profile)
        return tmp_path / "runs"

    return set_profiles


def measure(shared_memory=perf_analyzer.NO_SHARED_MEMORY):
    rows = {"x": np.zeros((2, 1), np.float32)}
    options = PerfAnalyzerOptions(shared_memory=shared_memory)
    return perf_analyzer.measure("127.0.0.1:1", "sums", rows, 1, 1, 2, options)


@pytest.mark.parametrize("incomplete", [[], [b""], [PROFILE[:60], b""]])
def test_repetition(program, incomplete):
    runs = program(*incomplete, PROFILE, PROFILE)
    timing = measure()
    assert (timing.requests, timing.errors, timing.mean_ms) == (2, 0, 1.5)
    assert timing.elapsed_s == pytest.approx(0.003)
    assert len(runs.read_text().split()) == len(incomplete) + 1


def test_incomplete_profiles(program):
    runs = program(b"", b"", b"", PROFILE)
    with pytest.raises(ValueError, match="profile of sums in 3 runs: .* output: latency 1500 usec"):
        measure()
    assert len(runs.read_text().split()) == 3


def test_failure(program):
    program()
    with pytest.raises(ValueError, match=r"could not measure sums: cp: .*profile_1"):
        measure()


def test_shared_memory(program):
    """One process at a time."""
    program(PROFILE, PROFILE, pause_s=0.2)
    with ThreadPoolExecutor(2) as pool:
        assert {timing.requests for timing in pool.map(measure, [SYSTEM] * 2)} == {2}
