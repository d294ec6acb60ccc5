"""Checkpoints of a real training, resumed and used."""

import json
import math
import re
import shutil
import signal
import time

import numpy as np
import pyarrow.parquet
import pytest
from sklearn.metrics import roc_auc_score

import main as entry
from nn.train.trainer import Trainer
from runtime import checkpoint
from runtime.checkpoint import part_writer, policy
from tests.recipes.test_entry_scripts import TINY, in_process, lines
from tests.recipes.test_validation import messages
from tests.tables import arrays_of, check_same_arrays
from training import errors

EVALS = ("--evals_per_epoch=2", "--epochs=3", "--optimizer=adam")


def flags_of(tiny, *more):
    return (f"--dataset_path={tiny}", *TINY, *EVALS, *more)


def state_of(folder):
    state = checkpoint.describe(checkpoint.resolve(folder)).state
    return {k: v for k, v in state.items() if k != "elapsed_s"}


@pytest.fixture(scope="module")
def undisturbed(tiny, tmp_path_factory):
    """12 steps of 4 an epoch, saved at 5, 10 and the end."""
    folder = tmp_path_factory.mktemp("undisturbed")
    flags = flags_of(tiny, f"--save_checkpoint_path={folder / 'model'}", "--checkpoint_every=5")
    code, _ = in_process(folder / "run", *flags, "--keep_checkpoints=9")
    assert code == 0
    assert [s.step for s in checkpoint.Folder(folder / "model").list()] == [5, 10, 12]
    return folder


@pytest.fixture
def model(undisturbed, tmp_path):
    """A copy of the checkpoints."""
    return shutil.copytree(undisturbed / "model", tmp_path / "model")


@pytest.mark.quick("1", "6")
@pytest.mark.parametrize("step", [1, 2, 4, 6, 12])
def test_resumed_training(tiny, undisturbed, tmp_path, step):
    """Cut before, at and after evaluations, at the end of an epoch and of all."""
    save = f"--save_checkpoint_path={tmp_path / 'model'}"
    flags = flags_of(tiny, save, "--resume=auto")
    assert in_process(tmp_path / "run", *flags, f"--max_steps={step}")[0] == 0
    code, summary = in_process(tmp_path / "run", *flags, "--max_steps=-1")
    assert code == 0 and summary["steps"] == 12
    check_same_arrays(undisturbed / "model", tmp_path / "model")
    expected, actual = state_of(undisturbed / "model"), state_of(tmp_path / "model")
    extra = {step} - {2, 4, 6, 12}  # the end of the first part was evaluated, too
    for history in actual["history"].values():
        history[:] = [point for point in history if point[0] not in extra]
    if not extra:
        assert actual == expected
    assert [line["step"] for line in lines(tmp_path / "run/log.json") if "step" in line][-1] == []


@pytest.mark.parametrize(("wait_s", "shown"), [(math.inf, [3, 12]), (0, [3, 6, 9, 12])])
def test_saves_on_the_terminal(wait_s, shown, tiny, tmp_path, monkeypatch, capsys):
    """The first one, those that the training waits for, and the last one; the log has all."""
    monkeypatch.setattr(policy, "_LONG_WAIT_S", wait_s)
    flags = flags_of(tiny, f"--save_checkpoint_path={tmp_path / 'model'}", "--checkpoint_every=3")
    assert in_process(tmp_path / "run", *flags)[0] == 0
    pattern = re.compile(r"^saved \S+-step-(\d+): ", re.MULTILINE)
    assert [*map(int, pattern.findall(capsys.readouterr().out))] == shown
    logged = pattern.findall("\n".join(messages(tmp_path / "run")))
    assert [*map(int, logged)] == [3, 6, 9, 12]


def test_resume_without_flags(undisturbed, model, tmp_path, capsys):
    shutil.rmtree(checkpoint.resolve(model))
    code, summary = in_process(tmp_path / "run", f"--resume={model}")
    assert code == 0 and summary["steps"] == 12
    assert "at step 10 of 12" in capsys.readouterr().out
    check_same_arrays(undisturbed / "model", model)
    new = ("--resume=auto", f"--save_checkpoint_path={tmp_path / 'new'}")
    assert in_process(tmp_path / "run", *new)[0] == entry.USER_ERROR
    assert "--dataset_path is missing" in capsys.readouterr().err


def test_changed_flags(tiny, model, tmp_path, capsys):
    flags = flags_of(tiny, f"--resume={model}")
    changes = ("--epochs=4", "--learning_rate=0.2")
    code, summary = in_process(tmp_path / "run", *flags[:-2], flags[-1], *changes)
    assert code == 0 and summary["steps"] == 16
    assert "other than before: --epochs 4, --learning_rate 0.2" in capsys.readouterr().out
    for flag in ("--batch_size=128", "--seed=2", "--noshuffle", "--optimizer=sgd"):
        name = flag.split("=")[0].replace("--no", "--")
        assert in_process(tmp_path / "run", *flags, flag)[0] == entry.USER_ERROR
        assert f"{name} " in (error := capsys.readouterr().err) and "differs from" in error, flag
    rows = shutil.copytree(tiny, tmp_path / "rows")
    for file in (rows / "train").iterdir():
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 10 * 9])
    flags = (f"--resume={model}", f"--dataset_path={rows}")
    assert in_process(tmp_path / "run", *flags)[0] == entry.USER_ERROR
    assert "is of a training on other data: training_rows was 1000" in capsys.readouterr().err


def test_flags_from_checkpoint(tiny, tmp_path, capsys):
    """Also those that devices are set up with, before there is a checkpoint to agree on."""
    model = tmp_path / "model"
    flags = ("--amp", "--exchange_dtype=float16", "--beta1=0.8", "--cpu", "--max_steps=2")
    flags = flags_of(tiny, f"--save_checkpoint_path={model}", *flags)
    assert in_process(tmp_path / "a", *flags)[0] == 0
    again = (f"--resume={model}", "--max_steps=4", "--beta2=0.99")
    capsys.readouterr()
    assert in_process(tmp_path / "b", *again)[0] == 0
    printed = capsys.readouterr().out
    assert "train on CPU in bfloat16" in printed
    assert "other than before: --beta2 0.99, --max_steps 4" in printed
    used = lines(tmp_path / "b/log.json")[0]["data"]
    assert used["exchange_dtype"] == "float16" and used["beta1"] == 0.8


def test_ended_training(model, tmp_path, capsys):
    """Nothing is left to do; with more epochs it continues, also from a link to a checkpoint."""
    before = sorted(p.name for p in model.iterdir())
    for flags, steps in (((), 12), (("--max_steps=4",), 4)):
        code, summary = in_process(tmp_path / "run", f"--resume={model}", *flags)
        assert code == 0 and summary["steps"] == 12 and summary["auc"] == summary["auc"]
        output = capsys.readouterr().out
        assert f"at step 12 of {steps}: nothing is left to do" in output
        assert "throughput" not in summary and "nan" not in output.lower()
        assert sorted(p.name for p in model.iterdir()) == before
    (tmp_path / "links").mkdir()
    (tmp_path / "links/latest").symlink_to(checkpoint.resolve(model))
    flags = (f"--resume={tmp_path / 'links/latest'}", "--epochs=4")
    assert in_process(tmp_path / "run", *flags)[0] == 0
    assert [p.name for p in (tmp_path / "links").iterdir()] == ["latest"]
    assert checkpoint.resolve(model).name == "00005-step-16"


def test_divergence_during_save(tiny, tmp_path, monkeypatch, capsys):
    """The loss diverges while the files of an earlier step are on their way to the disk."""
    original = part_writer.sync_file
    monkeypatch.setattr(part_writer, "sync_file", lambda file: (time.sleep(0.02), original(file)))
    flags = (f"--dataset_path={tiny}", *TINY, "--learning_rate=1e25", "--warmup_steps=0")
    flags += (f"--save_checkpoint_path={tmp_path / 'model'}", "--checkpoint_every=1")
    assert in_process(tmp_path / "run", *flags, "--epochs=9")[0] == errors.DIVERGED
    (kept,) = checkpoint.Folder(tmp_path / "model").list()
    assert kept.step == 1
    assert f"the last checkpoint is {kept.path}" in capsys.readouterr().err


def test_damaged_checkpoint(tiny, undisturbed, tmp_path, capsys):
    shutil.copytree(undisturbed / "model", tmp_path / "model")
    newest = checkpoint.resolve(tmp_path / "model")
    file = newest / "sparse.second_moment/cat_1.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    flags = flags_of(tiny, f"--save_checkpoint_path={tmp_path / 'model'}")
    assert in_process(tmp_path / "run", *flags, "--resume=auto")[0] == entry.USER_ERROR
    error = capsys.readouterr().err
    assert str(file) in error
    previous = error.strip().rsplit("the one before it is --resume ", 1)[1]
    assert previous == str(tmp_path / "model/00002-step-10")
    resume = (f"--resume={previous}", "--keep_checkpoints=2")
    assert in_process(tmp_path / "run", *flags, *resume)[0] == 0
    kept = [p.path.name for p in checkpoint.Folder(tmp_path / "model").list()]
    assert kept == ["00002-step-10", "00004-step-12"], "the damaged one goes first"
    check_same_arrays(undisturbed / "model", tmp_path / "model")


@pytest.mark.quick("4-SIGINT")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("step", [3, 4])
def test_stop_signal(tiny, undisturbed, tmp_path, monkeypatch, capsys, number, step):
    """At step 4 an evaluation is due: it waits for the next run."""
    original = Trainer.train_step

    def train_step(self, iterator):
        original(self, iterator)
        if int(self.step) == step:
            signal.raise_signal(number)

    monkeypatch.setattr(Trainer, "train_step", train_step)
    flags = flags_of(tiny, f"--save_checkpoint_path={tmp_path / 'model'}", "--resume=auto")
    handlers = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
    assert in_process(tmp_path / "run", *flags)[0] == errors.STOPPED == 75
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == handlers
    message = (
        f"stopped by {number.name} at step {step} of 12; the last checkpoint is {tmp_path}/model"
    )
    captured = capsys.readouterr()
    assert f"{message}/00001-step-{step}. Resume with --resume auto" in captured.err
    assert "stopped by" not in captured.out, "a terminal shows it once"
    assert any(message in str(line) for line in lines(tmp_path / "run/log.json"))
    monkeypatch.undo()
    assert in_process(tmp_path / "run", *flags)[0] == 0
    check_same_arrays(undisturbed / "model", tmp_path / "model")
    assert state_of(tmp_path / "model") == state_of(undisturbed / "model")


def test_best_of_a_delayed_evaluation(tiny, tmp_path, monkeypatch):
    """The run that makes the evaluation keeps the weights; with a rate of 0 the first is best."""
    original = Trainer.train_step

    def train_step(self, iterator):
        original(self, iterator)
        if int(self.step) == 2:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Trainer, "train_step", train_step)
    model = tmp_path / "model"
    flags = flags_of(tiny, f"--save_checkpoint_path={model}", "--resume=auto", "--keep_best")
    assert in_process(tmp_path / "run", *flags, "--learning_rate=0")[0] == errors.STOPPED
    monkeypatch.undo()
    assert in_process(tmp_path / "run", *flags, "--learning_rate=0")[0] == 0
    assert (model / "best").resolve().name.endswith("-step-2")


@pytest.mark.quick("5-continue", "12-stop")
@pytest.mark.parametrize("policy", ["continue", "stop"])
@pytest.mark.parametrize("step", [5, 12])
def test_failed_save(tiny, tmp_path, monkeypatch, capsys, policy, step):
    """Once: the next one replaces it. At the end it is tried again, or the exit code reports it."""
    failed = []
    original = checkpoint.Folder.stage

    def stage(self, at):
        if at == step and (not failed or (step == 12 and policy == "stop")):
            failed.append(at)
            raise OSError(28, "No space left on device")
        return original(self, at)

    monkeypatch.setattr(checkpoint.Folder, "stage", stage)
    flags = flags_of(tiny, f"--save_checkpoint_path={tmp_path / 'model'}")
    flags = (*flags, "--checkpoint_every=5", f"--on_checkpoint_error={policy}")
    code, _ = in_process(tmp_path / "run", *flags)
    captured = capsys.readouterr()
    assert failed and code == (0 if policy == "continue" else entry.USER_ERROR)
    text = (
        f"the checkpoint of step {step} failed: --save_checkpoint_path {tmp_path}/model: No space"
    )
    assert text in (captured.out if policy == "continue" else captured.err)
    steps = [s.step for s in checkpoint.Folder(tmp_path / "model").list()]
    assert steps == {(5, "stop"): [], (12, "stop"): [5, 10]}.get((step, policy), [10, 12])


def test_minutes(tiny, tmp_path):
    flags = flags_of(tiny, f"--save_checkpoint_path={tmp_path / 'model'}", "--keep_checkpoints=20")
    assert in_process(tmp_path / "run", *flags, "--checkpoint_every_minutes=1e-9")[0] == 0
    assert [s.step for s in checkpoint.Folder(tmp_path / "model").list()] == list(range(1, 13))


def test_resume_after_threshold(tiny, tmp_path):
    """A training that reached its threshold does not continue when it is resumed."""
    flags = flags_of(tiny, f"--save_checkpoint_path={tmp_path / 'model'}", "--auc_threshold=0.01")
    _, first = in_process(tmp_path / "run", *flags)
    _, second = in_process(tmp_path / "run", *flags, "--resume=auto")
    assert first["steps"] == second["steps"] == 2
    assert 0 < first["time_to_auc_threshold_s"] <= first["elapsed_s"]
    assert first["time_to_auc_threshold_s"] == second["time_to_auc_threshold_s"]


def scores_of(path):
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".csv":
        return np.loadtxt(path, delimiter=",", skiprows=1)[:, 1]
    return pyarrow.parquet.read_table(path)["score"].to_numpy()


def test_predictions_without_labels(tiny, undisturbed, tmp_path):
    model = f"--restore_checkpoint_path={undisturbed / 'model'}"
    flags = ("--valid_batch_size=64", model)
    _, evaluated = in_process(tmp_path / "eval", "--mode=eval", f"--dataset_path={tiny}", *flags)
    rows = tmp_path / "rows"
    shutil.copytree(tiny, rows)
    (label_file,) = (rows / "test").glob("label*")
    labels = np.fromfile(label_file, np.uint8)
    label_file.unlink()
    scores = []
    for ending in ("npy", "csv", "parquet"):
        path = tmp_path / f"deep/er/scores.{ending}"
        code, summary = in_process(
            *(tmp_path / "predict", "--mode=predict", f"--dataset_path={rows}", *flags),
            f"--predictions_path={path}",
        )
        assert code == 0 and summary["rows"] == 200 and summary["throughput"] > 0
        scores.append(scores_of(path).astype(np.float32))
    assert scores[0].shape == (200,)
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[0], scores[2])
    assert roc_auc_score(labels, scores[0]) == pytest.approx(evaluated["auc"], abs=1e-6)


def test_start_from_original_tables(tiny, tmp_path, capsys):
    folder = tmp_path / "original/sparse"
    folder.mkdir(parents=True)
    shapes = [(10, 4), (20, 4), (5, 4)]
    config = {"categorical_cardinalities": [10, 20, 5], "embedding_dim": [4, 4, 4]}
    (folder / "config.json").write_text(json.dumps(config))
    tables = [np.random.default_rng(i).normal(size=shape) for i, shape in enumerate(shapes)]
    for i, table in enumerate(tables):
        np.save(folder / f"feature_{i}.npy", table.astype("f"))
    without_dim = [flag for flag in TINY if "embedding_dim" not in flag]
    flags = (f"--dataset_path={tiny}", *without_dim, f"--restore_checkpoint_path={folder.parent}")
    save = f"--save_checkpoint_path={tmp_path / 'model'}"
    code, _ = in_process(tmp_path / "run", *flags, save, "--noembedding_trainable")
    assert code == 0
    assert "the MLPs and the interaction are initialized" in capsys.readouterr().out
    arrays = arrays_of(tmp_path / "model")
    for i, table in enumerate(tables):
        np.testing.assert_array_equal(arrays[f"sparse/cat_{i}"], table.astype("f"))
    assert in_process(tmp_path / "run", *flags, "--mode=eval")[0] == entry.USER_ERROR
    assert "has tables and no MLPs (dense/config.json)" in capsys.readouterr().err


@pytest.mark.long
def test_deterministic_training(tiny, tmp_path, run_script):
    """In processes of its own: what it sets cannot be taken back."""
    arrays = []
    for name in ("a", "b"):
        flags = flags_of(tiny, "--deterministic", f"--run_dir={tmp_path / name}")
        done = run_script("dlrm.py", *flags, f"--save_checkpoint_path={tmp_path / name / 'model'}")
        assert (done.returncode, done.stderr) == (0, "")
        arrays.append(tmp_path / name / "model")
    check_same_arrays(*arrays)
