"""Restarts after kills and errors: equal files, and no finished stage is repeated."""

import errno
import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from preproc.criteo import prepare as prepare_module
from preproc.criteo.generate_logs import generate_day
from preproc.criteo.options import CriteoOptions
from preproc.criteo.prepare import prepare
from tests.conftest import run_forked
from tests.preproc.criteo import criteo_reference as reference

ROOT = Path(__file__).parents[3]
NUM_STAGES = 3 + 1 + 2 * 26  # three days, the numerical features, two per column
# Runs the tool and kills it before or after the Nth call of one function.
KILLED_RUN = """
import os, signal, sys
from preproc.criteo import __main__
from preproc.criteo.engines import single_machine
from preproc.criteo.output import binary_files
from runtime.files import outputs, staging
place, name, when, calls = eval(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
function = getattr(place, name)
def killing(*args, **kwargs):
    global calls
    calls -= 1
    if when == "before" and calls == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    result = function(*args, **kwargs)
    if when == "after" and calls == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(place, name, killing)
__main__.main(sys.argv[5:])
"""


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    for day in range(3):
        generate_day(folder / f"day_{day}", 300, [3, day])
    return folder


@pytest.fixture(scope="module")
def killed(forked_python):
    """Runs KILLED_RUN with arguments, which ends by its kill."""

    def run(*arguments):
        words = ["-c", KILLED_RUN, *map(str, arguments)]
        done = run_forked(forked_python, words, str(ROOT), dict(os.environ), 60)
        assert done.returncode == -signal.SIGKILL, done.stderr

    return run


@pytest.fixture(scope="module")
def expected(raw):
    return reference.prepare(sorted(raw.glob("day_*")), 2)


def options(raw, output, **changes):
    changes = {"frequency_threshold": 2, "memory_limit_bytes": 1 << 30, "threads": 2} | changes
    return CriteoOptions(input=raw, output=output, **changes)


def finished_before(stderr):
    return len(re.findall(r"finished before", stderr))


@pytest.mark.quick(
    "outputs.os-rename-*",
    "binary_files.ColumnFiles-create-*",
    "single_machine.CriteoDuckDBEngine-parse_day-*",
)
@pytest.mark.parametrize(
    ("place", "name", "when", "calls", "num_finished"),
    [
        ("single_machine.CriteoDuckDBEngine", "parse_day", "before", 1, 0),
        ("staging.Staging", "_write_state", "before", 1, 0),
        ("binary_files.ColumnFiles", "write_at", "after", 2, 3),
        ("single_machine.CriteoDuckDBEngine", "_count_values", "after", 1, 4),
        ("binary_files.ColumnFiles", "create", "after", 9, 4 + 26 + 6),
        ("staging.Staging", "publish", "before", 1, NUM_STAGES),
        ("outputs.os", "rename", "before", 1, NUM_STAGES),
        ("staging.Staging", "_write_state", "after", 1, 1),
        ("staging.Staging", "_write_state", "after", 30, 30),
        ("single_machine.CriteoDuckDBEngine", "_keep_rows", "before", 3, 2),
    ],
)
def test_restart_after_kill(
    killed, raw, expected, tmp_path, capfd, place, name, when, calls, num_finished
):
    output = tmp_path / "out"
    flags = ["--input", raw, "--output", output, "--frequency_threshold", "2", "--threads", "2"]
    killed(place, name, when, calls, *flags)
    assert not output.exists()
    capfd.readouterr()
    prepare(options(raw, output))
    stderr = capfd.readouterr().err
    assert finished_before(stderr) == num_finished
    assert ("resuming in" in stderr) == (num_finished > 0)
    assert reference.files_of(output) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.quick("after")
@pytest.mark.parametrize("when", ["before", "after"])
def test_kill_during_replacement(killed, raw, expected, tmp_path, when):
    """The name has the old data set before the exchange, and the new one after it."""
    output = tmp_path / "out"
    prepare(options(raw, output, frequency_threshold=5))
    old = reference.files_of(output)
    flags = ["--input", raw, "--output", output, "--frequency_threshold", "2", "--overwrite"]
    killed("outputs", "exchange", when, 1, *flags)
    assert reference.files_of(output) == (old if when == "before" else expected)
    prepare(options(raw, output, overwrite=True))
    assert reference.files_of(output) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def interrupted(raw, output, monkeypatch, calls, **changes):
    """Stops a run by an error in the numerical features (calls=1) or in a later column."""
    create = prepare_module.data_set.ColumnFiles.create

    def failing(self):
        nonlocal calls
        calls -= 1
        if calls == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        create(self)

    with monkeypatch.context() as patch:
        patch.setattr(prepare_module.data_set.ColumnFiles, "create", failing)
        with pytest.raises(OSError, match="No space left on device"):
            prepare(options(raw, output, **changes))


def test_changed_options(raw, expected, tmp_path, monkeypatch, capfd):
    """Another threshold keeps days and numerical features, another split only the days."""
    output = tmp_path / "out"
    interrupted(raw, output, monkeypatch, calls=8, frequency_threshold=7)
    capfd.readouterr()
    interrupted(raw, output, monkeypatch, calls=3)
    assert finished_before(capfd.readouterr().err) == 4
    split = {"holdout_fraction": 0.5, "validation_fraction": 0.1}
    interrupted(raw, output, monkeypatch, calls=3, **split)
    assert finished_before(capfd.readouterr().err) == 3 + 26  # counts of threshold 2, too
    prepare(options(raw, output))
    assert reference.files_of(output) == expected


@pytest.mark.quick("vocabulary_only")
@pytest.mark.parametrize("other", ["encode_only", "vocabulary_only"])
def test_vocabulary_of_another_run(raw, expected, tmp_path, monkeypatch, other):
    """Stages of other names that wrote files of finished stages."""
    output = tmp_path / "out"
    interrupted(raw, output, monkeypatch, calls=8)
    changes = {"vocabulary_only": True, "frequency_threshold": 3}
    if other == "encode_only":
        generate_day(tmp_path / "other_raw", 600, [4, 0])
        known = {"holdout_fraction": 0.2, "frequency_threshold": 1}
        prepare(options(tmp_path / "other_raw", tmp_path / "known", **known))
        changes = {"encode_only": True, "vocabulary": tmp_path / "known"}

    def failing(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(prepare_module, "complete", failing)
        with pytest.raises(OSError, match="No space left on device"):
            prepare(options(raw, output, **changes))
    prepare(options(raw, output))
    assert reference.files_of(output) == expected


def test_changed_bins(raw, expected, tmp_path, monkeypatch, capfd):
    """Bins not requested after a run with them."""
    # Labels, numerical features, bins; then cat_1 fails.
    interrupted(raw, tmp_path / "out", monkeypatch, calls=2 + 13 + 2, bin_numericals=True)
    capfd.readouterr()
    prepare(options(raw, tmp_path / "out"))
    assert finished_before(capfd.readouterr().err) == 3 + 26 + 1  # days, counts, cat_0
    assert reference.files_of(tmp_path / "out") == expected


def test_changed_input(raw, tmp_path, monkeypatch, capfd):
    output, changed = tmp_path / "out", tmp_path / "raw"
    shutil.copytree(raw, changed)
    interrupted(changed, output, monkeypatch, calls=6)
    with open(changed / "day_1", "a") as file:
        file.write(reference.line(1, {0: 3}, {0: "new"}) + "\n")
    capfd.readouterr()
    prepare(options(changed, output))
    assert finished_before(capfd.readouterr().err) == 2
    assert reference.files_of(output) == reference.prepare(sorted(changed.glob("day_*")), 2)


def test_unreadable_state(raw, expected, tmp_path, monkeypatch, capfd):
    output = tmp_path / "out"
    interrupted(raw, output, monkeypatch, calls=1)
    (state,) = tmp_path.glob(".out.*/state.json")
    assert len(json.loads(state.read_text())) == 3
    state.write_text("{")
    capfd.readouterr()
    prepare(options(raw, output))
    assert finished_before(capfd.readouterr().err) == 0
    assert reference.files_of(output) == expected


def test_engine_start_failure(raw, tmp_path, monkeypatch):
    def not_there(*args):
        raise ValueError("no engine")

    monkeypatch.setattr(prepare_module, "open_engine", not_there)
    with pytest.raises(ValueError, match="no engine"):
        prepare(options(raw, tmp_path / "out"))
    assert not list(tmp_path.iterdir())
