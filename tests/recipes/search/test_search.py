"""`python -m recipes.search`: refused command lines, workers, a kill and its resume."""

import dataclasses
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import Pipe

import pytest

import dlrm
from dataloading.synthetic.dataset import write_dataset
from dataloading.synthetic.rows import synthetic_spec
from recipes.recipe import Goal
from recipes.registry import DLRM
from recipes.search import __main__ as command
from recipes.search import trial_worker
from recipes.search.search import Search, check
from recipes.search.space import parse_parameters
from recipes.search.study import Study
from tests.recipes.test_entry_scripts import in_process

REASON = "needs the package optuna, which is optional (pip install optuna)"
TINY = ("--embedding_dim=8", "--bottom_mlp_dims=8", "--top_mlp_dims=8,1", "--batch_size=128")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search") / "rows"
    write_dataset(
        folder, synthetic_spec([50, 9], num_numerical=2), {"train": 2000, "validation": 500}
    )
    return folder


def arguments(folder, *flags, rate="log:1e-3..1e-1"):
    own = ("dlrm", "--study=clicks", f"--storage={folder / 'search/clicks.db'}")
    return [*own, f"--param=learning_rate={rate}", *flags]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("-- --mode=eval --restore_checkpoint_path=x", "--mode eval"),
        ("-- --evals_per_epoch=0", "--evals_per_epoch 0"),
        ("-- --run_dir=x", "--run_dir is of a single run.*--flagfile .*clicks.flags"),
        ("-- --learning_rate=1", "--param learning_rate: "),
        ("-- --eval_mapping=train", "expected a split 'validation' .* got 'train'"),
        ("--metric=auc", "unrecognized arguments: --metric=auc .*trainings follow after --"),
        ("-- --no_such_flag=1", "Unknown command line flag 'no_such_flag'"),
        ("--param=weight_decay=float:-1..1", "--weight_decay: expected"),
        ("--param=mode=choice:train,eval", "--param mode: "),
        ("--param=eval_mapping=choice:test,train", "--param eval_mapping: "),
        ("--param=dataset_path=choice:a,b", "--param dataset_path: "),
        ("--param=flagfile=choice:a,b", "--param flagfile: "),
        ("--param=run_dir=choice:a,b", "--param run_dir: "),
        ("--param=evals_per_epoch=choice:1,0", "--evals_per_epoch=0: "),
        ("--param=embedding_dim=choice:16,xx", "--embedding_dim=xx: "),
        ("--param=embedding_dim=float:1..4", "--embedding_dim=1.0: "),
        ("--param=top_mlp_dims=choice:8,1|8,2", "--top_mlp_dims=8,2: "),
    ],
)
def test_refused_flags(data, tmp_path, capsys, flags, message):
    own, _, shared = flags.partition("-- ")
    line = [*arguments(tmp_path, *own.split()), "--", f"--dataset_path={data}", *shared.split()]
    assert command.main(line) == 2
    error = capsys.readouterr().err
    assert re.search(message, error) and error.count("\n") == 1, error


def test_what_a_search_needs(data, tmp_path, capsys, monkeypatch):
    """A split of validation samples, and the package."""
    folder = tmp_path / "rows"
    write_dataset(folder, synthetic_spec([50]), {"train": 2000, "test": 500})
    assert command.main([*arguments(tmp_path), "--", f"--dataset_path={folder}"]) == 2
    assert "expected a split 'validation' " in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert command.main([*arguments(tmp_path), "--", f"--dataset_path={data}"]) == 2
    assert "install it (pip install optuna)" in capsys.readouterr().err


def test_values_of_two_parameters(data, tmp_path):
    """Values that only fit each other are in the space: the preset has other sizes."""
    space = ("embedding_dim=choice:4", "bottom_mlp_dims=choice:8,4|16,4")
    search = Search(
        definition=DLRM,
        arguments=(f"--dataset_path={data}", "--preset=terabyte"),
        parameters=parse_parameters(space, DLRM),
        study="clicks",
        storage=tmp_path / "study.db",
        num_trials=1,
        num_workers=1,
    )
    assert check(search)[0].model.embedding_dim == "128"


def test_all_combinations(tmp_path):
    """Trials that suffice for all combinations of choices try each once."""
    space = parse_parameters(("embedding_dim=choice:8,16", "wide=choice:true,false"), DLRM)
    search = Search(
        definition=DLRM, arguments=(), parameters=space, study="all",
        storage=tmp_path / "study.db", num_trials=50, num_workers=1,
    )  # fmt: skip
    assert search.num_combinations == 4
    study = Study("all", search.storage, space, {}, Goal(), {})
    study.start_from({"embedding_dim": "16", "wide": "true"})
    study.try_all()
    tried = []
    for _ in range(4):
        trial = study.start_trial()
        trial.evaluated(0.5)
        study.complete(trial, "")
        tried.append(tuple(trial.values.values()))
    assert tried[0] == ("16", "true") and len({*tried}) == 4
    ranged = parse_parameters(("embedding_dim=choice:8,16", "learning_rate=log:1e-4..1"), DLRM)
    assert dataclasses.replace(search, parameters=ranged).num_combinations == math.inf


def test_messages_of_a_worker(data, tmp_path):
    """A complete trial, one that the search stops, one that diverges and one with wrong flags."""
    ours, theirs = Pipe()
    thread = threading.Thread(target=trial_worker.work, args=(theirs, "dlrm"))
    thread.start()
    flags = [f"--dataset_path={data}", *TINY, "--epochs=2", "--seed=1"]

    def messages(name, answer, *more):
        ours.send(([*flags, *more], str(tmp_path / name)))
        received = [ours.recv()]
        while received[-1][0] == trial_worker.EVALUATION:
            ours.send(answer)
            received.append(ours.recv())
        return received

    *evaluations, end = messages("done", True)
    assert len(evaluations) == 2 and end == (trial_worker.DONE, None)
    assert all(0.5 < metric < 1 for _, metric in evaluations)
    assert messages("stopped", False) == [evaluations[0], (trial_worker.STOPPED, None)]
    assert messages("diverged", True, "--learning_rate=1e30")[-1][0] == trial_worker.DIVERGED
    (failure,) = messages("wrong", True, "--embedding_dim=9")
    assert failure[0] == trial_worker.FAILED and "bottom_mlp_dims" in failure[1]
    assert "last (validation)" in (tmp_path / "done" / trial_worker.OUTPUT).read_text()
    ours.close()
    thread.join()


@pytest.mark.long
def test_kill_and_resume(data, tmp_path, root):
    """A killed search leaves no process and resumes; the best flags repeat the best trial."""
    optuna = pytest.importorskip("optuna", reason=REASON)
    line = [
        sys.executable,
        "-m",
        "recipes.search",
        *arguments(tmp_path, "--workers=2", "--trials=3"),
    ]
    line += ["--", f"--dataset_path={data}", *TINY, "--epochs=2"]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    first = subprocess.Popen(line, cwd=root, env=environment, stdout=subprocess.PIPE, text=True)
    assert re.match(r"trial \d: log_loss", first.stdout.readline())
    first.send_signal(signal.SIGKILL)
    # Workers have the pipe, too: it ends when they do.
    start = time.monotonic()
    first.communicate()
    assert time.monotonic() - start < 20

    done = subprocess.run(
        line, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\d trials of earlier runs count", done.stdout, re.MULTILINE)
    name = f"sqlite:///{tmp_path / 'search/clicks.db'}"
    study = optuna.load_study(study_name="clicks", storage=name)
    states = [trial.state.name for trial in study.trials]
    assert states.count("COMPLETE") + states.count("PRUNED") == 3
    assert "RUNNING" not in states and f"best: trial {study.best_trial.number}," in done.stdout

    best = tmp_path / "search/clicks.flags"
    assert in_process(tmp_path / "repeated", f"--flagfile={best}", recipe=dlrm)[0] == 0
    summaries = [
        json.loads((folder / "log.json").read_text().splitlines()[-1].removeprefix("DLLL "))["data"]
        for folder in (
            tmp_path / "repeated",
            best.parent / f"clicks/trial-{study.best_trial.number:04d}",
        )
    ]
    assert summaries[0]["best_log_loss"] == summaries[1]["best_log_loss"] == study.best_value
    assert study.best_value == min(trial.value for trial in study.trials if trial.value)

    # Folders of complete trials are not needed again.
    best.unlink()
    shutil.rmtree(best.parent / "clicks")
    # Nothing is left to do; other flags are another search.
    assert command.main(line[3:]) == 0
    assert f"trial {study.best_trial.number} " in best.read_text().lower()
    assert command.main([*line[3:], "--seed=1"]) == 2


def test_folders_of_storages(tmp_path):
    """Searches of one name in two files of a folder share neither trials nor best flags."""
    options = {"definition": DLRM, "arguments": (), "parameters": ()}
    options |= {"study": "s", "num_trials": 1, "num_workers": 1}
    searches = [Search(storage=tmp_path / name, **options) for name in ("s.db", "a.db", "b.db")]
    for paths in ([s.folder for s in searches], [s.best_flags for s in searches]):
        assert len(set(paths)) == 3 and paths[0].parent == tmp_path
