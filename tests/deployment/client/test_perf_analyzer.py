"""Measurements by a stand-in of perf_analyzer."""

import json
import os

import numpy as np
import pytest

from deployment.client import perf_analyzer

# Requests of 2 and 1 ms. The text has its length of 255 in front, which is not UTF-8.
REQUESTS = [
    {"timestamp": 1_000_000, "request_inputs": {"x": "?"}, "response_timestamps": [3_000_000]},
    {"timestamp": 3_000_000, "request_inputs": {"x": "?"}, "response_timestamps": [4_000_000]},
]
PROFILE = json.dumps({"experiments": [{"requests": REQUESTS}]}).encode().replace(b"?", b"\xffab")

PROGRAM = """#!/bin/sh
while [ "$1" != --profile-export-file ]; do shift; done
cp "$(dirname "$0")/profile" "$2" || exit 1
echo "latency 1500 usec"
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Returns the profile that it writes."""
    path = tmp_path / "perf_analyzer"
    path.write_text(PROGRAM)
    path.chmod(0o700)
    monkeypatch.setattr(perf_analyzer, "PROGRAM", path)
    monkeypatch.setattr(perf_analyzer, "variables", lambda folder: dict(os.environ))
    return tmp_path / "profile"


def measure():
    rows = {"x": np.zeros((2, 1), np.float32)}
    return perf_analyzer.measure("127.0.0.1:1", "sums", rows, 1, 1, 2)


def test_times_of_requests(program):
    program.write_bytes(PROFILE)
    timing = measure()
    assert (timing.requests, timing.errors, timing.mean_ms) == (2, 0, 1.5)
    assert timing.elapsed_s == pytest.approx(0.003)


@pytest.mark.parametrize("profile", [b"", PROFILE[:60]])
def test_incomplete_profile(program, profile):
    program.write_bytes(profile)
    with pytest.raises(ValueError, match="profile of sums: .* output: latency 1500 usec"):
        measure()


def test_failure(program):
    with pytest.raises(ValueError, match=r"could not measure sums: cp: .*profile"):
        measure()
