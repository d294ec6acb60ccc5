"""Folders that several runs use, and passwords in flags."""

import os
import re
import resource
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import dlrm
from runtime.files.disk import FileLock
from runtime.logs import rank_logs
from runtime.logs.__main__ import main
from runtime.logs.compare import read_run
from runtime.logs.mlflow_tracking import MLflowRun
from tests.runtime.logs.test_mlflow import FLAGS

URI, PASSWORD = "postgresql://user:hunter2@127.0.0.1:9/runs", "hunter2"


@pytest.fixture
def run(tmp_path):
    """Runs DLRM in the folder `run`; returns the exit code."""
    return lambda *flags: dlrm.main(["x", *FLAGS, f"--run_dir={tmp_path / 'run'}", *flags])


def test_flags_that_are_too_large(run, capsys):
    """The note has the reason, which Python's buffers give without a path."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        assert run() == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    message = "note: the flags of this run are in no file: "
    assert re.search(rf"{message}.*run/flags.*: File too large", capsys.readouterr().out)


def test_evaluation_of_a_training(tmp_path, monkeypatch):
    """It is in the folder of the training, if that is still there. With --run_dir it is next to
    the files of the training, which are kept, and both are in the page of runs."""
    monkeypatch.chdir(tmp_path)
    assert dlrm.main(["x", *FLAGS, "--save_checkpoint_path=model"]) == 0
    evaluate = ["x", *FLAGS, "--mode=eval", "--restore_checkpoint_path=model"]
    assert dlrm.main(evaluate) == 0
    assert sorted(path.name for path in Path("runs").iterdir()) == ["dlrm-generated-1"]
    assert (tmp_path / "runs/dlrm-generated-1/eval-test/log.json").exists()
    (tmp_path / "runs").rename(tmp_path / "moved")
    assert dlrm.main(evaluate) == 0
    assert (tmp_path / "runs/dlrm-generated-1/log.json").exists()
    folder = tmp_path / "moved/dlrm-generated-1"
    log, flags = ((folder / name).read_text() for name in ("log.json", "flags"))
    assert dlrm.main([*evaluate, f"--run_dir={folder}"]) == 0
    assert [(folder / name).read_text() for name in ("log-1.json", "flags-1")] == [log, flags]
    assert read_run(folder).parameters["mode"] == "eval"
    assert main(["dashboard", "moved"]) == 0
    page = Path("moved/dashboard.html").read_text()
    assert page.count('<td><a href="#dlrm') == 2, "eval-test is in the row of its training"
    assert page.count("<details open") == 3
    assert "<summary>dlrm-generated-1/log-1.json" in page


def test_folder_in_use(run, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    with FileLock(tmp_path / "run/.run.lock"):
        assert run() == 2
    assert f"--run_dir {tmp_path / 'run'}: another run" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".run.lock"]


def test_planted_links(run, tmp_path, capsys):
    """A link is not followed: the file of another folder stays as it is."""
    notes, folder = tmp_path / "notes.txt", tmp_path / "run"
    notes.write_text("private")
    for name in (".run.lock", "log.json"):
        folder.mkdir()
        (folder / name).symlink_to(notes)
        assert run() == 2
        assert f"{folder}" in capsys.readouterr().err and notes.read_text() == "private"
        (folder / name).unlink()
        folder.rmdir()


def test_full_disk(run, tmp_path, capsys):
    """One warning names the log; the training goes to its end and saves."""
    assert run("--log_path=/dev/full", f"--save_checkpoint_path={tmp_path / 'model'}") == 0
    assert capsys.readouterr().err.count("/dev/full could not be written: No space") == 1
    assert [path.name for path in (tmp_path / "model").glob("0*")] == ["00001-step-12"]


def test_masked_passwords(run, tmp_path, monkeypatch, capfd):
    """No file, no output and no tracking server receives the password of `--mlflow_uri`."""
    received = []
    client = SimpleNamespace(
        get_experiment_by_name=lambda name: SimpleNamespace(experiment_id="1"),
        create_experiment=None,
        create_run=lambda *_, **__: SimpleNamespace(info=SimpleNamespace(run_id="1")),
        log_batch=lambda run, **values: received.append(repr(values)),
        set_terminated=lambda *_: None,
    )
    entities, tracking = ModuleType("mlflow.entities"), ModuleType("mlflow.tracking")
    entities.Metric = entities.Param = lambda *values: values
    tracking.MlflowClient = lambda tracking_uri: client
    for module in (ModuleType("mlflow"), entities, tracking):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    assert run(f"--mlflow_uri={URI}", f"--save_checkpoint_path={tmp_path / 'model'}") == 0
    assert main(["dashboard", str(tmp_path)]) == 0
    assert run(f"--mlflow_uri={URI}", "--mlflow_url=" + URI) == 2

    monkeypatch.setattr(sys, "argv", ["dlrm.py", f"--mlflow_uri={URI}"])
    received.append(rank_logs._header("rank 0"))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"flags", "log.json", "checkpoint.json", "dashboard.html"} <= {p.name for p in files}
    texts = [*(p.read_bytes().decode(errors="replace") for p in files), *capfd.readouterr()]
    assert [text for text in (*texts, *received) if PASSWORD in text] == []
    assert any("postgresql://***@127.0.0.1:9/runs" in text for text in received)
    assert "\n# --mlflow_uri=" in (tmp_path / "run/flags").read_text()

    tracking.MlflowClient = lambda tracking_uri: os.listdir(tracking_uri)
    with pytest.raises(ValueError, match=r"--mlflow_uri postgresql://\*\*\*@127") as error:
        MLflowRun(URI, "dlrm", "a", {})
    assert PASSWORD not in str(error.value)
