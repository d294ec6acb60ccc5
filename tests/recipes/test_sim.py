"""`sim.py` from TFRecords to a trained, evaluated and used model, on tiny data."""

import csv
import json
import os
import re
import signal

import numpy as np
import pytest
import yaml
from sklearn.metrics import roc_auc_score

import main as entry
import sim
from nn.train.trainer import Trainer
from tests import sequence_data
from tests.recipes.test_entry_scripts import in_process, lines, runner
from tests.tables import check_same_arrays
from training import errors

TINY = (
    "--preset=terabyte",
    *("--global_batch_size=64", "--embedding_dim=4", "--stage_two_mlp_dims=8,4", "--lr=0.02"),
    *("--epochs=2", "--print_freq=2", "--seed=1", "--affinity=disabled"),
)
SIM = ("--long_seq_length=8", "--gsu_top_k=3", "--stage_one_mlp_dims=8", "--aux_mlp_dims=8")
MODELS = {
    "sim": SIM,
    "sim_hard": ("--gsu=hard", "--long_seq_length=8", "--gsu_top_k=3", "--aux_mlp_dims=8"),
    "dien": ("--model_type=dien", "--aux_mlp_dims=8"),
    "din": ("--model_type=din",),
    "din_unit": ("--model_type=din", "--din_attention=unit"),
    "no_history": ("--model_type=no_history",),
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """300 rows of each of train and test: the last batches are short."""
    folder = tmp_path_factory.mktemp("sequences") / "rows"
    sequence_data.write(folder, 300)
    return folder


run = runner(sim, "--dataset_dir", *TINY)


def data_lines(run_dir):
    """(step, data) of what was logged."""
    return [(x["step"], x["data"]) for x in lines(run_dir / "log.json") if x["type"] == "LOG"]


@pytest.fixture(scope="module")
def trained(rows, tmp_path_factory):
    """(folder of the checkpoint, summary, folder of the run) of SIM."""
    folder = tmp_path_factory.mktemp("trained")
    save = folder / "model"
    return save, run(rows, folder / "run", *SIM, f"--save_checkpoint_path={save}"), folder / "run"


@pytest.mark.quick("din", "no_history")
@pytest.mark.parametrize("model", [name for name in MODELS if name != "sim"])
def test_train_and_evaluate(model, rows, tmp_path):
    save = tmp_path / "model"
    summary = run(rows, tmp_path / "train", *MODELS[model], f"--save_checkpoint_path={save}")
    assert summary["steps"] == 10
    if model != "no_history":  # to which a user's taste is an id that it has seen a few times
        assert summary["test_auc"] > 0.6
    evaluated = run(rows, tmp_path / "eval", f"--load_checkpoint_path={save}", "--mode=eval")
    assert evaluated["test_auc"] == pytest.approx(summary["test_auc"], abs=1e-6)


def test_eval_predict_and_inference(rows, trained, tmp_path):
    save, summary, _ = trained
    load = f"--load_checkpoint_path={save}"
    flags = ("--mode=eval", "--eval_mapping=train", "--group_column=user_id")
    on_train = run(rows, tmp_path / "b", load, *flags)
    assert 0.4 < on_train["gauc"] < 1 and 0 < on_train["ndcg@5"] <= on_train["hr@10"] <= 1
    assert on_train["train_auc"] == pytest.approx(summary["train_auc"], abs=1e-6)
    measured = run(rows, tmp_path / "inference", load, "--mode=inference", "--max_steps=3")
    assert measured["test_auc"] == pytest.approx(summary["test_auc"], abs=1e-6)
    assert measured["latency_p90"] > 0 and measured["throughput"] > 0
    scores = tmp_path / "scores.npy"
    run(rows, tmp_path / "predict", load, "--mode=predict", f"--predictions_path={scores}")
    rng = np.random.default_rng(0)
    sequence_data.draw(rng, 300)  # the training rows
    labels = sequence_data.draw(rng, 300)[0]
    auc = roc_auc_score(labels[:, 0], np.load(scores))
    assert auc == pytest.approx(summary["test_auc"], abs=1e-6)


def test_kept_columns(rows, trained, tmp_path):
    path = tmp_path / "scores.csv"
    keep = "--predictions_keep=user_id,item_id_pos,label"
    flags = (f"--load_checkpoint_path={trained[0]}", "--mode=predict", keep)
    run(rows, tmp_path / "predict", *flags, f"--predictions_path={path}")
    rng = np.random.default_rng(0)
    sequence_data.draw(rng, 300)  # the training rows
    label, user, _, _, history, *_ = sequence_data.draw(rng, 300)
    table = list(csv.DictReader(path.open()))
    assert list(table[0]) == ["row", "user_id", "item_id_pos", "label", "score"]
    assert [int(line["user_id"]) for line in table] == user[:, 0].tolist()
    assert [int(line["label"]) for line in table] == label[:, 0].tolist()
    histories = [";".join(str(item) for item in row if item) for row in history]
    assert [line["item_id_pos"] for line in table] == histories


def test_original_log_lines(trained):
    run_dir = trained[2]
    entries = data_lines(run_dir)
    steps = [(step, data) for step, data in entries if isinstance(step, list) and len(step) == 2]
    assert [step for step, _ in steps] == [[0, 2], [0, 4], [0, 5], [1, 6], [1, 8], [1, 10]]
    for _, data in steps:
        parts = ("classification_loss", "dien_aux_loss", "gsu_loss")
        assert data["total_loss"] == pytest.approx(sum(data[part] for part in parts), rel=1e-5)
    assert steps[-1][1]["samples/s"] > 0
    epochs = [(step, data) for step, data in entries if isinstance(step, list) and len(step) == 1]
    assert [step for step, _ in epochs] == [[0], [1]]
    for name in ("throughput", "time", "train_auc", "test_auc", "train_loss", "test_loss"):
        assert epochs[1][1][name] > 0
    for name in ("mean", "p90", "p95", "p99"):
        assert epochs[1][1][f"latency_{name}"] > 0
    step, summary = entries[-1]
    assert step == []
    for name in ("train_auc", "test_auc", "train_loss", "test_loss"):
        assert summary[name] == epochs[1][1][name]
    assert summary["time_to_train"] > 0
    units = {x["metric"]: x["metadata"] for x in lines(run_dir / "log.json") if "metric" in x}
    assert units["latency_p90"] == {"unit": "ms"} and units["samples/s"]["unit"] == "samples/s"


def test_no_test_samples_in_training(tmp_path):
    folder = tmp_path / "rows"
    sequence_data.write(folder, 64, splits=("train", "validation", "test"))
    (folder / "test.tfrecord").write_bytes(b"not to be read")
    model = tmp_path / "model"
    flags = (*MODELS["no_history"], f"--save_checkpoint_path={model}")
    summary = run(folder, tmp_path / "run", *flags)
    assert "validation_auc" in summary and "test_auc" not in summary
    flags = ("--mode=eval", f"--load_checkpoint_path={model}")
    run(folder, tmp_path / "t", *flags, code=entry.USER_ERROR)


def test_resumed_training(rows, tmp_path):
    """With dropout, shuffled, cut in the middle of an epoch."""
    flags = (*MODELS["din"], "--dropout_rate=0.3", "--weight_decay=0.01")
    run(rows, tmp_path / "whole", *flags, f"--save_checkpoint_path={tmp_path / 'a'}")
    resume = (*flags, f"--save_checkpoint_path={tmp_path / 'b'}", "--resume=auto")
    run(rows, tmp_path / "parts", *resume, "--max_steps=3")
    summary = run(rows, tmp_path / "parts", *resume, "--max_steps=-1")
    assert summary["steps"] == 10
    check_same_arrays(tmp_path / "a", tmp_path / "b")


def test_prebatches(rows, tmp_path):
    prebatched = tmp_path / "prebatched"
    sequence_data.write(prebatched, 300, prebatch=7)
    flags = (*MODELS["din"], "--noshuffle", "--epochs=1")
    one = run(rows, tmp_path / "a", *flags)
    sizes = ("--prebatch_train_size=7", "--prebatch_test_size=7")
    other = run(prebatched, tmp_path / "b", *flags, *sizes, "--disable_cache")
    assert other["test_loss"] == pytest.approx(one["test_loss"], rel=1e-6)


@pytest.mark.quick("flags1-20")
@pytest.mark.parametrize(
    ("flags", "steps"),
    [
        (("--drop_remainder",), 8),
        (("--repeat_count=2",), 20),
        (("--benchmark", "--benchmark_steps=9", "--benchmark_warmup_steps=4"), 13),
    ],
)
def test_num_steps(flags, steps, rows, tmp_path, capsys):
    flags = (*MODELS["din"], *flags, "--prefetch_test_size=1", "--num_parallel_calls=1")
    summary = run(rows, tmp_path, *flags)
    assert summary["steps"] == steps
    if "--benchmark" in flags:
        assert "test_auc" not in summary
        assert summary["throughput"] > 0 and summary["latency_p99"] > 0
        # A schedule that ends before or after the measured steps is not reported.
        assert "learning rate" not in capsys.readouterr().out


def test_speed_without_a_checkpoint(rows, tmp_path, capsys):
    flags = ("--mode=inference", "--benchmark", "--benchmark_steps=6", "--warmup_batches=1")
    summary = run(rows, tmp_path, *SIM, *flags)
    assert summary["num_measurements"] == 6 and summary["time"] > 0
    assert "test_auc" not in summary
    assert "the model is untrained" in capsys.readouterr().out
    steps = [data for step, data in data_lines(tmp_path) if step in ([0, 2], [0, 4], [0, 6])]
    assert len(steps) == 3 and all(data["samples/s"] > 0 for data in steps)


def test_dynamic_loss_scale(float16_on_a_cpu, rows, tmp_path):
    run(rows, tmp_path, *MODELS["din"], "--amp", "--print_freq=1")
    data = [values for _, values in data_lines(tmp_path) if "skipped_steps" in values]
    assert data[-1]["skipped_steps"] > 0
    assert data[0]["loss_scale"] == 2**26 and data[-1]["loss_scale"] < 2**27


def test_plan(rows, capsys):
    flags = ("--plan_only", "--plan_world_size=2", "--plan_ranks_per_machine=1")
    assert sim.main(["sim.py", f"--dataset_dir={rows}", *TINY, *SIM, *flags]) == 0
    output = capsys.readouterr().out
    for table in ("user_id", "item_id_trgt", "cat_id_trgt"):
        assert table in output
    assert "between machines of 1 rank " in output
    ranks = [line for line in output.splitlines() if line.strip().startswith(("0 ", "1 "))]
    assert [line.split()[-3:-1] for line in ranks] == [["7.59", "KiB"]] * 2
    assert "all-reduce (gradients of copied tables and of the dense layers)" in output


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--long_seq_length=12",), "--long_seq_length 12 leaves nothing"),
        (("--embedding_dim=4,4",), "--embedding_dim of a sequential model"),
        ((*SIM, "--prebatch_train_size=4"), "--prebatch_train_size is 4"),
        ((*SIM, "--drop_remainder", "--batch_size=512"), "are aliases"),
        ((*SIM, "--eval_mapping=validation"), "requested the split 'validation'|needs the split"),
    ],
)
def test_user_errors(flags, message, rows, tmp_path, capsys):
    run(rows, tmp_path, *flags, code=entry.USER_ERROR)
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1
    assert re.search(message, error), error


def test_checkpoint_of_another_model(rows, trained, tmp_path, capsys):
    load = f"--load_checkpoint_path={trained[0]}"
    run(rows, tmp_path / "b", load, "--mode=eval", "--model_type=din", code=entry.USER_ERROR)
    assert "--model_type din differs from the checkpoint's sim" in capsys.readouterr().err
    flags = ("--dataset_type=synthetic", "--mode=eval", f"--restore_checkpoint_path={trained[0]}")
    assert in_process(tmp_path, *flags)[0] == entry.USER_ERROR
    assert "is of the recipe sim, not dlrm: pass main.py --model sim" in capsys.readouterr().err


def test_negative_histories(rows, tmp_path, capsys):
    spec = yaml.safe_load((rows / "feature_spec.yaml").read_text())
    for split in ("train", "test"):
        (tmp_path / f"{split}.tfrecord").symlink_to(rows / f"{split}.tfrecord")
    for feature in spec["channel_spec"].pop("negative_history"):
        del spec["feature_spec"][feature]
        for chunks in spec["source_spec"].values():
            chunks[0]["features"].remove(feature)
    (tmp_path / "feature_spec.yaml").write_text(yaml.safe_dump(spec))
    assert run(tmp_path, tmp_path / "run", *MODELS["din"], "--epochs=1")["steps"] == 5
    run(tmp_path, tmp_path / "sim", *SIM, code=entry.USER_ERROR)
    assert "needs the channel 'negative_history'" in capsys.readouterr().err
    spec["channel_spec"]["history"] = spec["channel_spec"].pop("positive_history")
    (tmp_path / "feature_spec.yaml").write_text(yaml.safe_dump(spec))
    run(tmp_path, tmp_path / "run", code=entry.USER_ERROR)
    assert "needs the channel 'positive_history'" in capsys.readouterr().err


def test_resume_of_interrupted_evaluation(rows, tmp_path, monkeypatch):
    """A signal comes while the first epoch is evaluated; the resumed training writes its line."""
    flags = (*MODELS["din"], f"--save_checkpoint_path={tmp_path / 'model'}", "--resume=auto")

    def stopping(self, stopped):
        os.kill(os.getpid(), signal.SIGTERM)
        assert any(stopped() for _ in range(1000))
        return iter(())

    with monkeypatch.context() as patched:
        patched.setattr("nn.metrics.evaluator.HeldOutAndTrainEvaluator.evaluate", stopping)
        run(rows, tmp_path / "run", *flags, code=errors.STOPPED)
    run(rows, tmp_path / "run", *flags)
    ends = [data for step, data in data_lines(tmp_path / "run") if step in ([0], [1])]
    assert len(ends) == 2 and all("test_auc" in data for data in ends)


def test_checkpoint_without_loss_terms(rows):
    trainer = Trainer(None, None, [], loss_terms=["classification_loss"])
    state = {k: v for k, v in trainer.state().items() if k != "loss_sums"}
    trainer.set_state({**state, "loss_sum": 3.0, "step": 2})
    assert trainer.state()["loss_sums"] == [3.0, 0.0]


def test_log_filename(rows, tmp_path):
    """It is of a training that does not evaluate the training split."""
    flags = (*TINY, *MODELS["din"], "--noevaluate_training_rows", "--epochs=1")
    flags += (f"--results_dir={tmp_path}", "--log_filename=other.json")
    assert sim.main(["sim.py", f"--dataset_dir={rows}", *flags]) == 0
    texts = (tmp_path / "other.json").read_text().splitlines()
    first, last = (json.loads(texts[i].removeprefix("DLLL "))["data"] for i in (0, -1))
    assert first["recipe"] == "sim" and first["batch_size"] == 64
    assert "train_auc" not in last and "test_auc" in last
