"""The benchmark of checkpoints: arithmetic of its page, what it keeps, and a small run."""

import argparse
import json
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.checkpoint_cost import __main__ as checkpoint_cost
from benchmarks.harness import machine
from benchmarks.harness.worker import peak_memory_mib, reset_peak_memory

SIZES = {"steps": 100, "threads": 2, "batch_size": 1000, "table_mib": 2048}


PARTS = ("copy out of the tables", "finite check")


def made_up(saving_s: list[float]) -> dict:
    """Rounds in which 100 steps take 50 s without a save."""
    plain = {"turn_s": 50.0, "peak_mib": 3000.0, "cpu_s": 90.0, "foreign_cpu": 0.1}
    rounds = [
        {
            "plain": plain,
            "saving": {
                "turn_s": turn_s,
                "copy_s": 1.0,
                "disk_s": 8.0,
                "rest_s": 0.25,
                "peak_mib": 3100.0 + number,
                "cpu_s": 94.0,
                "foreign_cpu": 0.3,
                # All that a save adds, except the waits, is in the first 20 steps.
                "steps_s": [0.5 + (turn_s - 51.25) / 20] * 20 + [0.5] * 80,
            },
        }
        for number, turn_s in enumerate(saving_s)
    ]
    return {
        "commands": ["`python -m benchmarks.checkpoint_cost --rounds 3`"],
        "size_mib": 2048.0,
        "before_mib": 2900.0,
        "rounds": rounds,
        "parts": [{part: seconds for part in PARTS} for seconds in (1.0, 3.0)],
        "versions": {"tensorflow": "2.0", "numpy": "1.0", "xxhash": "3.0"},
    }


def rendered(measurements: dict[str, dict], tmp_path):
    return checkpoint_cost.page_of(measurements, argparse.Namespace(**SIZES, folder=tmp_path))


def test_page_of_made_up_measurements(tmp_path):
    page = rendered({"float32": made_up([52.0, 51.0, 54.0]), "adagrad": made_up([100.0])}, tmp_path)
    assert page.is_met  # the second one is for information
    for line in (
        "- `python -m benchmarks.checkpoint_cost --rounds 3`",
        "- TensorFlow 2.0, NumPy 1.0, xxhash 3.0",
        "- other processes kept 0.10 [0.10, 0.10] cores busy during turns without a save, and "
        "0.30 [0.30, 0.30], the system's own writers among them, during turns with one",
        "| float32, SGD | 3 | 2000 [2000, 2000] | 1923 [1887, 1942] | 0.962 [0.944, 0.971] | "
        "3.8 [2.9, 5.6] % |",
        "| float32, SGD | 50.0 [50.0, 50.0] | 2.00 [1.50, 3.00] | 1.00 [1.00, 1.00] | "
        "0.25 [0.25, 0.25] | 0.75 [0.25, 1.75] | 4.00 [4.00, 4.00] |",
        "| float32, SGD | 2,048 | 1.00 [1.00, 1.00] | 8.0 [8.0, 8.0] | 256 [256, 256] | 2,900 | "
        "3,000 | 3,102 | 202 |",
        "| float32, SGD | 2.00 (1,024) | 2.00 (1,024) |",
        "- float32, SGD: a save of 2,048 MiB every 100 steps costs 3.8% of the samples per second "
        "(turn against turn 3.8%); target at most 5%: met",
        "- float32, Adagrad for the tables: a save of 2,048 MiB every 100 steps costs 50.0% of the "
        "samples per second (turn against turn 50.0%); for information",
    ):
        assert line in str(page).splitlines(), str(page)


def test_missed_target(tmp_path):
    page = rendered({"bfloat16": made_up([60.0, 50.0, 56.0])}, tmp_path)
    assert not page.is_met
    cost = "costs 10.7% of the samples per second (turn against turn 10.7%); target at most 5%"
    assert f"{cost}: MISSED" in str(page)


def test_sizes_of_tables():
    assert checkpoint_cost.table_rows(2048) == [161_320] * 26
    assert 161_319 * 26 * 128 * 4 < 2 * 2**30 <= 161_320 * 26 * 128 * 4


def test_measurements_of_other_sizes(tmp_path):
    path = tmp_path / "cost.json"
    assert checkpoint_cost.read_measurements(path, SIZES) == {}
    measurements = {"float32": made_up([52.0])}
    path.write_text(json.dumps({"of": SIZES, "found": measurements}))
    assert checkpoint_cost.read_measurements(path, SIZES) == measurements
    with pytest.raises(ValueError, match=r"'steps': 100.* now it is .*'steps': 10,.*another file"):
        checkpoint_cost.read_measurements(path, {**SIZES, "steps": 10})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--settings", "float32,int8"], "--settings are float32,bfloat16,adagrad, got int8"),
        (["--rounds", "0"], "--rounds 0 makes the page of --measurements, which is empty"),
    ],
)
def test_invalid_arguments(options, message, capsys):
    with pytest.raises(SystemExit):
        checkpoint_cost.main(options)
    assert message in capsys.readouterr().err


def test_reset_peak_memory():
    big = np.ones(64 * 2**20, np.uint8)
    peak_mib = peak_memory_mib()
    del big
    reset_peak_memory()
    assert peak_memory_mib() < peak_mib - 32


def test_file_system():
    description = machine.describe_disk(Path("/"))
    assert re.match(
        r"\w+ on \S+(, mounted with discard)?; dirty_background_ratio \d", description
    ), description


@pytest.mark.long
def test_small_run(run_script, tmp_path):
    record, folder = tmp_path / "cost.json", tmp_path / "disk"
    sizes = ["--table_mib", 1, "--steps", 2, "--batch_size", 64]
    options = [*sizes, "--rounds", 2, "--parts", 1, "--settings", "adagrad", "--folder", folder]
    done = run_script("-m", "benchmarks.checkpoint_cost", *options, "--measurements", record)
    assert done.returncode == 0, done.stdout + done.stderr  # for information: nothing to miss
    assert list(folder.iterdir()) == []
    sizes_kept = {"steps": 2, "threads": 2, "batch_size": 64, "table_mib": 1}
    measurements = checkpoint_cost.read_measurements(record, sizes_kept)["adagrad"]
    (measured,) = measurements["rounds"]  # half of the rounds
    assert 0 < measured["saving"]["copy_s"] < measured["saving"]["disk_s"]
    assert measured["saving"]["disk_s"] <= measured["saving"]["turn_s"]
    assert len(measurements["parts"][0]) == 7 and set(PARTS) < set(measurements["parts"][0])

    options = [*sizes, "--rounds", 0, "--folder", folder, "--output", tmp_path / "page.md"]
    again = run_script("-m", "benchmarks.checkpoint_cost", *options, "--measurements", record)
    assert again.returncode == 0, again.stdout + again.stderr
    page = (tmp_path / "page.md").read_text()
    assert page in again.stdout
    assert "float32, Adagrad for the tables: " in done.stdout
    # Tables and accumulators, 79 rows of 128 in each of 26 tables; the MLPs are 9 MiB.
    (size,) = re.findall(r": a save of (\d+) MiB every 2 steps costs", page)
    assert int(size) == round((2 * 26 * 79 * 128 + 2_370_000) * 4 / 2**20)
    assert str(tmp_path) not in page
