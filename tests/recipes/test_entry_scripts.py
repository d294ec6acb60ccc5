"""The whole path through the real entry scripts, on tiny data."""

import json
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from distributed_embeddings.collectives import World

import dcnv2
import dlrm
import main as entry
from config.checkpoint_flags import adopt_flags, adopt_original, resume_flags
from config.command_line import parse
from config.help import usage
from dataloading.formats import torch_tensor
from dataloading.formats.stored_dataset import StoredDataset
from dataloading.spec.feature_spec import FeatureSpec
from nn.metrics.group_metrics import Grouping, GroupMetrics
from recipes.registry import DLRM, NCF
from runtime.cli import USER_ERROR
from runtime.logs.run_folder import evaluation_names, make_run_dir, training_names
from training import errors, schedule

TINY = [
    "--preset=terabyte",
    "--batch_size=256",
    "--embedding_dim=4",
    "--bottom_mlp_dims=8,4",
    "--top_mlp_dims=8,1",
    "--learning_rate=0.1",
    "--warmup_steps=1",
    "--print_freq=2",
    "--seed=1",
]


def lines(path):
    """The DLLL lines of a log file."""
    return [json.loads(line.removeprefix("DLLL ")) for line in path.read_text().splitlines()]


def summary(run_dir):
    last = lines(run_dir / "log.json")[-1]
    assert last["step"] == []
    return last["data"]


def in_process(run_dir, *flags, recipe=dlrm):
    """Runs a recipe in this process; returns its exit code and summary (None after an error)."""
    code = recipe.main(["prog", f"--run_dir={run_dir}", *map(str, flags)])
    return code, summary(run_dir) if code == 0 else None


def runner(recipe, data_flag, *common):
    """A function that runs a recipe on a data set, and returns the summary of what should end with
    an exit code (None where it fails)."""

    def run(rows, run_dir, *flags, code=0):
        where = f"{data_flag}={rows}"
        exit_code, result = in_process(run_dir, where, *common, *flags, recipe=recipe)
        assert exit_code == code
        return result

    return run


def test_train_eval_and_inference(tiny, tmp_path, run_script):
    """The script in a new process, with a profile and pictures; what it saved in this one."""
    data, model = f"--dataset_path={tiny}", tmp_path / "model"
    train = run_script(
        *("dlrm.py", data, *TINY, f"--save_checkpoint_path={model}"),
        *(f"--run_dir={tmp_path / 'train'}", f"--tensorboard_dir={tmp_path / 'tb'}"),
        *("--inter_op_parallelism=1", "--intra_op_parallelism=1", "--prefetch_batches=0"),
        *("--profiler_start_step=1", "--profiler_steps=2"),
        env={},
    )
    assert train.returncode == 0, train.stderr
    assert list((tmp_path / "train/profile").rglob("*.xplane.pb"))
    assert list((tmp_path / "tb").rglob("events.out.tfevents.*"))
    assert "\r" not in train.stderr, "no progress bar in a pipe"
    log = lines(tmp_path / "train/log.json")
    assert log[0]["step"] == "PARAMETER"
    assert log[0]["data"]["recipe"] == "dlrm" and log[0]["data"]["interaction"] == "dot"
    assert log[0]["data"]["ranks"] == 1 and "predictions_path" not in log[0]["data"]
    trained = summary(tmp_path / "train")
    assert trained["steps"] == 4
    assert 0 < trained["auc"] < 1
    assert trained["best_reachable_auc"] > 0.6
    for picture in ("learning_curve.png", "roc.png"):
        assert (tmp_path / "train" / picture).read_bytes().startswith(b"\x89PNG")

    restore = f"--restore_checkpoint_path={model}"
    flags = (data, restore, "--mode=eval", "--eval_mapping=validation")
    code, on_validation = in_process(tmp_path / "eval", *flags)
    assert code == 0
    assert on_validation["auc"] == pytest.approx(trained["auc"], abs=1e-6)

    flags = (data, restore, "--mode=inference", "--valid_batch_size=64", "--max_steps=5")
    code, result = in_process(tmp_path / "inference", *flags, "--warmup_batches=2")
    assert code == 0
    assert result["num_measurements"] == 5
    assert result["latency_p50"] <= result["latency_p90"] <= result["latency_p95"]
    assert result["latency_p99"] > 0 and result["throughput"] > 0


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory):
    """Returns (flags that name the data and the checkpoint, summary) of a training."""
    folder = tmp_path_factory.mktemp("trained")
    data, model = f"--dataset_path={tiny}", folder / "model"
    _, result = in_process(folder / "run", data, *TINY, f"--save_checkpoint_path={model}")
    return (data, f"--restore_checkpoint_path={model}"), result


def test_checkpoint_of_another_recipe(trained, tmp_path, capsys):
    """DCNv2 does not evaluate a DLRM; a training from it states what it starts from."""
    restored, _ = trained
    code, _ = in_process(tmp_path / "a", *restored, "--mode=eval", recipe=dcnv2)
    assert code == entry.USER_ERROR
    assert "is of the recipe dlrm, not dcnv2" in capsys.readouterr().err
    assert in_process(tmp_path / "b", *restored, *TINY[:2], recipe=dcnv2)[0] == 0
    assert ", a model of dlrm\n" in capsys.readouterr().out


def test_evaluation_of_a_checkpoint(tiny, trained, tmp_path, capsys):
    """By default of the test split; flags of the training are named in a note."""
    restored, result = trained
    _, tested = in_process(tmp_path / "b", *restored, *TINY, "--mode=eval")
    assert "note: not used in this run (--mode eval): --batch_size, " in capsys.readouterr().out
    metadata = FeatureSpec.from_yaml(tiny / "feature_spec.yaml").metadata
    assert result["best_reachable_auc"] == metadata["validation"]["best_auc"]
    assert tested["best_reachable_auc"] == metadata["test"]["best_auc"]
    assert tested["auc"] != result["auc"]
    code, _ = in_process(tmp_path, *restored, "--mode=eval", "--top_mlp_dims=9,1")
    assert code == entry.USER_ERROR
    assert "--top_mlp_dims (9, 1) differs from the checkpoint's (8, 1)" in capsys.readouterr().err


def test_plan_without_tensorflow(tiny, run_script):
    done = run_script(
        *("-c", "import sys, dlrm; code = dlrm.main(); assert 'tensorflow' not in sys.modules"),
        *(f"--dataset_path={tiny}", "--embedding_dim=512", "--plan_only", "--plan_world_size=3"),
        "--bottom_mlp_dims=512,256,512",
    )
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in ("cat_0", "cat_1", "cat_2")), done.stdout


def test_plan_flags(capsys):
    tables = "--synthetic_dataset_cardinalities=1000000,100000,2000,10"
    base = ("prog", "--dataset_type=synthetic", tables, "--embedding_dim=16", "--plan_only")

    def printed(*flags):
        assert dlrm.main([*base, "--bottom_mlp_dims=16", "--plan_world_size=2", *flags]) == 0
        return capsys.readouterr().out

    plain = printed("--dist_strategy=basic")
    assert "strategy basic" in plain
    for flags in (
        ["--plan_ranks_per_machine=1"],
        ["--row_slice_threshold=10000000"],
        ["--column_slice_threshold=1000000"],
        ["--data_parallel_threshold=200"],
        ["--cpu_offloading_threshold_gb=0.05"],
        ["--optimizer=adam"],
        ["--embedding_optimizer=rowwise_adagrad"],
    ):
        assert printed("--dist_strategy=basic", *flags) != plain, flags
    small = ("--plan_device_memory_gb=0.02",)
    assert dlrm.main([*base, "--bottom_mlp_dims=16", "--plan_world_size=2", *small]) != 0
    error = capsys.readouterr().err
    assert "do not fit" in error and "--plan_host_memory_gb" in error
    assert "on host" in printed(*small, "--plan_host_memory_gb=1")


def test_measured_memory(tiny, tmp_path, monkeypatch, capsys):
    flags = (f"--dataset_path={tiny}", *TINY, "--cpu", "--max_steps=1")
    monkeypatch.setattr("runtime.hardware.memory.available_bytes", lambda: 10**9)
    assert in_process(tmp_path / "roomy", *flags)[0] == 0
    assert "device memory per rank" not in capsys.readouterr().out, "a tenth of it is enough"
    monkeypatch.setattr("runtime.hardware.memory.available_bytes", lambda: 1000)
    assert in_process(tmp_path / "tight", *flags)[0] == entry.USER_ERROR
    message = capsys.readouterr().err
    assert "The tables do not fit" in message and "--plan_device_memory_gb" in message
    assert in_process(tmp_path / "stated", *flags, "--plan_device_memory_gb=1")[0] == 0
    assert "(--plan_device_memory_gb)" in capsys.readouterr().out


def test_help_for_a_data_set(tiny, capsys):
    """It has the values that the preset computes from the samples."""
    assert dlrm.main(["prog", "--help", f"--dataset_path={tiny}", "--seed=3"]) == 0
    output = capsys.readouterr().out
    assert "1,000 training samples" in output and "(here: 60)" in output and "here: 3" in output
    assert "task (train, eval, importance, predict, inference, deploy; default: train)" in output
    assert "task (train, eval, predict, recommend, inference; default: train)" in usage(NCF)


def test_tensor_files(tiny, trained, tmp_path, monkeypatch):
    """A training on `torch_tensor` chunks equals that on split binaries; without PyTorch."""
    spec = FeatureSpec.from_yaml(tiny / "feature_spec.yaml")
    content = spec.to_dict()
    dtypes = {}
    for chunk in (chunk for chunks in content["source_spec"].values() for chunk in chunks):
        chunk["type"] = "torch_tensor"
        dtypes |= {tmp_path / file: spec.dtype(chunk["features"][0]) for file in chunk["files"]}
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    FeatureSpec.from_dict(content, tmp_path).to_yaml(tmp_path / "feature_spec.yaml")

    def read(path, num_columns):
        return np.fromfile(path, dtypes[path]).reshape(-1, num_columns)

    monkeypatch.setattr(torch_tensor, "read_matrix", read)
    _, result = in_process(tmp_path / "run", f"--dataset_path={tmp_path}", *TINY)
    for name in ("auc", "log_loss"):
        assert result[name] == trained[1][name]


@pytest.mark.parametrize(
    ("flags", "expected"), [("--max_steps=5 --epochs=2", 5), ("--batch_size=100000", 1)]
)
def test_max_steps(tiny, tmp_path, flags, expected):
    code, result = in_process(tmp_path, f"--dataset_path={tiny}", *TINY, *flags.split())
    assert code == 0
    assert result["steps"] == expected
    assert 0 < result["auc"] < 1, "the model is evaluated where training ends"


@pytest.mark.parametrize(
    ("batches", "evals", "points"),
    [
        (4, 1, {4}),
        (4, 2, {2, 4}),
        (4, 4, {1, 2, 3, 4}),
        (4, 9, {1, 2, 3, 4}),
        (7, 2, {4, 7}),
        (5, 0, set()),
    ],
)
def test_evaluation_batches(batches, evals, points):
    assert schedule.evaluation_batches(batches, evals) == points


@pytest.mark.parametrize(
    ("print_freq", "steps"),
    [
        (1000, [10, 20, 50, 100, 200, 500, 1000, 2000, 3000]),
        (1500, [10, 20, 50, 100, 200, 500, 1000, 1500, 3000]),
        (40, [10, 20, *range(40, 3001, 40)]),
        (10, [*range(10, 3001, 10)]),
        (1, [*range(1, 3001)]),
    ],
)
def test_early_reports(print_freq, steps):
    assert [step for step in range(1, 3001) if schedule.loss_is_due(step, print_freq)] == steps


def test_early_divergence(tiny, tmp_path, capsys):
    flags = (f"--dataset_path={tiny}", *TINY, "--print_freq=1000", "--evals_per_epoch=0")
    flags += ("--epochs=6", "--noshuffle")
    in_process(tmp_path, *flags)
    logged = [x["step"] for x in lines(tmp_path / "log.json") if "loss" in x.get("data", {})]
    assert logged == [[2, 10], [4, 20], [5, 24]]
    capsys.readouterr()
    flags += ("--learning_rate=1e30", f"--save_checkpoint_path={tmp_path / 'model'}")
    assert in_process(tmp_path, *flags)[0] == errors.DIVERGED
    out, error = capsys.readouterr()
    assert "diverged" not in out, "a terminal shows it once"
    assert "between step 0, the last one reported, and 10)" in error
    assert "no checkpoint was saved" in error and not list(tmp_path.glob("model/*-step-*"))


def test_measured_batches(trained, tmp_path, monkeypatch):
    """3 full batches of test rows are taken in turn; they are read once, and for the metrics."""
    passes, dataset = [], StoredDataset.dataset
    monkeypatch.setattr(
        StoredDataset, "dataset", lambda self, *args: passes.append(1) or dataset(self, *args)
    )
    flags = ("--mode=inference", "--valid_batch_size=64", "--max_steps=5", "--warmup_batches=3")
    code, _ = in_process(tmp_path, *trained[0], *flags, "--print_freq=2")
    assert code == 0 and len(passes) == 2
    logged = [line.get("step") for line in lines(tmp_path / "log.json")]
    assert [step for step in logged if isinstance(step, list) and step] == [[0, 2], [0, 4]]


def test_progress_bars(tiny, tmp_path, capsys, monkeypatch):
    """The loss and the AUC are in the bar of the training, and lines on stdout stay whole."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    model = tmp_path / "model"
    flags = (f"--dataset_path={tiny}", *TINY, "--evals_per_epoch=4")
    code, _ = in_process(tmp_path / "a", *flags, f"--save_checkpoint_path={model}")
    captured = capsys.readouterr()
    assert code == 0 and "evaluation:" in captured.err
    last = [line["data"] for line in lines(tmp_path / "a/log.json") if "data" in line]
    loss = [data["loss"] for data in last if "loss" in data][-1]
    assert f"loss={loss:.5f}" in captured.err and "auc=0." in captured.err
    last_line = captured.out.splitlines()[-1]
    assert "\r" not in captured.out and last_line.startswith("steps 4  ")
    restore = (f"--dataset_path={tiny}", f"--restore_checkpoint_path={model}")
    for mode, label in (("eval", "evaluation:"), ("inference", "inference:"), ("predict", "pred")):
        scores = [f"--predictions_path={tmp_path / 'x.npy'}"] * (mode == "predict")
        assert in_process(tmp_path / "b", *restore, f"--mode={mode}", *scores)[0] == 0
        captured = capsys.readouterr()
        assert label in captured.err and "\r" not in captured.out, mode


def test_evals_per_epoch(tiny, tmp_path):
    in_process(tmp_path, f"--dataset_path={tiny}", *TINY, "--evals_per_epoch=2", "--epochs=2")
    evaluated = [
        line["step"] for line in lines(tmp_path / "log.json") if "auc" in line.get("data", {})
    ]
    assert evaluated == [[0, 2], [0, 4], [1, 6], [1, 8], []]


def test_synthetic_data_of_checkpoint(tmp_path):
    """Without --seed the teacher is drawn: another one's rows could not be predicted."""
    model = tmp_path / "model"
    flags = [f for f in (*SYNTHETIC, *TINY) if "--seed" not in f and "batches" not in f]
    features = ["--synthetic_dataset_cardinalities=30,20", "--synthetic_dataset_train_batches=300"]
    # With 8 units per layer and some seed, the AUC was .5 once in more than 40 runs.
    layers = ["--bottom_mlp_dims=32,4", "--top_mlp_dims=32,1"]
    learn = ["--optimizer=adam", "--learning_rate=0.01", "--synthetic_dataset_valid_batches=8"]
    code, trained = in_process(
        tmp_path / "a", *flags, *layers, *features, *learn, f"--save_checkpoint_path={model}"
    )
    assert code == 0 and trained["auc"] > 0.6
    code, tested = in_process(
        *(tmp_path / "b", "--dataset_type=synthetic", "--mode=eval", "--valid_batch_size=256"),
        *(f"--restore_checkpoint_path={model}", "--synthetic_dataset_valid_batches=8"),
    )
    assert code == 0
    assert tested["auc"] == pytest.approx(trained["auc"], abs=0.06)
    assert tested["auc"] != trained["auc"], "other rows of the same teacher"


def test_split_in_log(tiny, tmp_path, capsys):
    """In the log and on stdout; a note reports that training evaluates test samples."""
    flags = (*TINY, f"--dataset_path={tiny}")
    assert in_process(tmp_path / "a", *flags)[0] == 0
    out = capsys.readouterr().out
    assert "evaluation_rows 300 (validation)" in out and "no validation split" not in out
    assert re.search(r"\nepoch 0 step 4/4  validation auc [\d.]+  log_loss ", out)
    content = FeatureSpec.from_yaml(tiny / "feature_spec.yaml").to_dict()
    del content["source_spec"]["validation"]
    for folder in ("train", "test"):
        (tmp_path / folder).symlink_to(tiny / folder)
    FeatureSpec.from_dict(content, tmp_path).to_yaml(tmp_path / "feature_spec.yaml")
    assert in_process(tmp_path / "b", *TINY, f"--dataset_path={tmp_path}")[0] == 0
    out = capsys.readouterr().out
    assert "evaluation_rows 200 (test)" in out
    assert out.count("note: the data set has no validation split: training evaluates the test") == 1
    assert re.search(r"\nepoch 0 step 4/4  test auc [\d.]+  log_loss ", out)
    described = {
        line["metric"]: line["metadata"]
        for line in lines(tmp_path / "b/log.json")
        if "metadata" in line
    }
    assert described["auc"]["split"] == described["log_loss"]["split"] == "test"
    assert "split" not in described["loss"]


def test_divergence_in_last_step(tiny, tmp_path, capsys):
    """The loss is that before the update: the damage is in the weights alone."""
    model = tmp_path / "model"
    save = f"--save_checkpoint_path={model}"
    for flags in ([save, "--evals_per_epoch=0"], [save], ["--evals_per_epoch=0"]):
        code, _ = in_process(
            *(tmp_path / "run", f"--dataset_path={tiny}", *TINY, "--learning_rate=1e300"),
            *("--max_steps=1", *flags),
        )
        assert code == errors.DIVERGED
        assert "no checkpoint was saved" in capsys.readouterr().err
        assert not list(model.glob("*-step-*"))
        assert any("diverged" in str(line) for line in lines(tmp_path / "run/log.json"))


def test_link_as_save_path(tiny, tmp_path, capsys):
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept/model")
    flags = (f"--dataset_path={tiny}", *TINY, f"--save_checkpoint_path={tmp_path / 'link'}")
    assert in_process(tmp_path / "run", *flags)[0] == 0
    assert (tmp_path / "link").is_symlink()
    assert [p.name for p in (tmp_path / "kept/model").glob("*-step-*")] == ["00001-step-4"]
    assert in_process(tmp_path / "run", *flags)[0] == 0
    assert f"were moved to {tmp_path / 'kept/model/earlier-1'}" in capsys.readouterr().out


def test_second_training(tiny, tmp_path, capsys):
    """Follows in the same folder if the first one has ended, also from its weights."""
    model = tmp_path / "model"
    flags = (f"--dataset_path={tiny}", *TINY, f"--save_checkpoint_path={model}")
    assert in_process(tmp_path / "run", *flags)[0] == 0
    assert in_process(tmp_path / "run", *flags, f"--restore_checkpoint_path={model}")[0] == 0
    output = capsys.readouterr().out
    assert f"checkpoints of an earlier training were moved to {model}/earlier-1" in output
    assert f"weights of {model}/earlier-1/00001-step-4" in output
    for folder in (model, model / "earlier-1"):
        assert [path.name for path in folder.glob("*-step-*")] == ["00001-step-4"]
    assert in_process(tmp_path / "run", *flags, "--resume=auto")[0] == 0
    assert "nothing is left to do" in capsys.readouterr().out
    (index,) = model.glob("*-step-*/checkpoint.json")
    index.write_text(index.read_text().replace('"finished": true', '"finished": false'))
    assert in_process(tmp_path / "run", *flags)[0] == entry.USER_ERROR
    message = "holds checkpoints of a training that has not ended (00001-step-4)"
    assert message in capsys.readouterr().err


def test_run_dirs(tmp_path, monkeypatch):
    """Several begin at once; a disk may be absent."""
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor() as pool:
        names = (training_names("dlrm", "data/my shop/") for _ in range(3))
        folders = {*pool.map(lambda own: str(make_run_dir(None, own)), names)}
    assert folders == {f"runs/dlrm-my-shop-{number}" for number in (1, 2, 3)}
    training = Path("runs/dlrm-my-shop-1")
    names = [make_run_dir(None, evaluation_names(training, "eval", "test")).name for _ in "12"]
    assert names == ["eval-test", "eval-test-2"]
    shutil.rmtree(tmp_path / "runs")
    (tmp_path / "runs").symlink_to("/nonexistent/disk")
    with pytest.raises(OSError, match="'runs'"):
        make_run_dir(None, training_names("dlrm", None))


OF_A_SPEC = {"dataset_type": "synthetic", "synthetic_dataset_use_feature_spec": True}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_flags": None}, "does not specify its model"),
        ({"flags": 3}, "does not specify its model"),
        ({"model_flags": {"gone": 1}}, "is of another version: unknown flag --gone"),
        ({"model_flags": {"top_mlp_dims": 7}}, "is damaged: --top_mlp_dims is 7"),
        ({"flags": OF_A_SPEC}, "follow a feature spec: give --dataset_path"),
    ],
)
def test_invalid_checkpoint_flags(change, message):
    config = parse(["x", "--dataset_type=synthetic", "--restore_checkpoint_path=ck"], DLRM)
    saved = {"model_flags": {}, "flags": {}, **change}
    with pytest.raises(ValueError, match=message):
        adopt_flags(config, saved)


@pytest.mark.parametrize(("dense", "trained"), [({}, "dlrm"), ({"interaction": "cross"}, "dcnv2")])
def test_nvidia_checkpoint_in_another_family(dense, trained):
    config = parse(["x", "--dataset_path=data", "--restore_checkpoint_path=ck"], NCF)
    with pytest.raises(ValueError, match=f"is of the recipe {trained}, not ncf: pass main.py"):
        adopt_original(config, {"original_layout": {"embedding_dim": 8, "dense": dense}})


def test_renamed_flag_of_a_checkpoint():
    config = parse(["x", "--dataset_path=data"], DLRM)
    saved = {"recipe": "dlrm", "model_flags": {}, "flags": {"gauc_column": "user"}}
    adopted, _ = resume_flags(config, saved, "ck")
    assert adopted["group_column"] == "user" and "gauc_column" not in adopted


def test_binned_auc(tiny, trained, tmp_path):
    _, binned = in_process(tmp_path, f"--dataset_path={tiny}", *TINY, "--auc_thresholds=8000")
    assert abs(trained[1]["auc"] - binned["auc"]) <= binned["auc_error_bound"] + 1e-9


def test_group_metrics(tiny, trained, tmp_path):
    restored = (*trained[0], "--eval_mapping=train")
    flags = ("--mode=eval", "--group_column=cat_1", "--group_cutoffs=1,20")
    _, metrics = in_process(tmp_path / "eval", *restored, *flags)
    scores = tmp_path / "scores.npy"
    flags = ("--mode=predict", f"--predictions_path={scores}")
    in_process(tmp_path / "predict", *restored, *flags)
    spec = FeatureSpec.from_yaml(tiny / "feature_spec.yaml")
    (batch,) = StoredDataset(spec, "train", 1000).dataset()
    groups, labels = batch.inputs.categorical[1], batch.labels
    expected = GroupMetrics(Grouping("cat_1", None, cutoffs=(1, 20)))
    expected.start(World())
    expected.add(groups, labels, np.load(scores), np.ones(1000))
    for name, value in expected.result().items():
        assert metrics[name] == pytest.approx(value, abs=1e-6)
    assert abs(metrics["gauc"] - metrics["auc"]) > 1e-4


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--group_column=num_0",), "expected a feature of .* one id per sample: cat_0, cat_1"),
        (("--group_column=cat_0", "--nodata_parallel_input"), "ids of each sample on its rank"),
    ],
)
def test_bad_group_column(tiny, tmp_path, capsys, flags, message):
    code, _ = in_process(tmp_path, f"--dataset_path={tiny}", *TINY, *flags)
    assert code == USER_ERROR
    assert re.search(message, " ".join(capsys.readouterr().err.split()))


@pytest.mark.parametrize(
    "flags",
    [
        "--amp --interaction=cross",  # with --xla: test_interaction_flag.py
        "--optimizer=adam --embedding_optimizer=adam --embedding_learning_rate=0.02",
        "--embedding_zeros_initializer --embedding_trainable=false",
        "--run_eagerly --tfdata_debug --shuffle_window_rows=8192",
    ],
)
def test_other_ways_to_train(tiny, tmp_path, flags, capsys):
    code, result = in_process(tmp_path, f"--dataset_path={tiny}", *TINY, *flags.split())
    assert code == 0
    assert result["steps"] == 4 and 0 < result["log_loss"] < 1.5
    assert ("bfloat16" in capsys.readouterr().out) == ("--amp" in flags)


SYNTHETIC = [
    "--dataset_type=synthetic",
    "--synthetic_dataset_train_batches=4",
    "--synthetic_dataset_valid_batches=1",
    "--valid_batch_size=256",
]


def test_synthetic_data(tiny, tmp_path):
    sizes = "--synthetic_dataset_cardinalities=10,20"
    for flags in (
        [sizes, "--synthetic_dataset_alpha=0"],
        [f"{sizes},5", "--synthetic_dataset_num_numerical_features=0"],
        ["--synthetic_dataset_use_feature_spec", f"--dataset_path={tiny}"],
    ):
        code, result = in_process(tmp_path, *SYNTHETIC, *TINY, *flags)
        assert code == 0
        assert result["steps"] == 4
        assert 0.5 < result["best_reachable_auc"] < 1


def test_dcnv2_width_per_table(tiny, tmp_path):
    widths = tmp_path / "widths.json"
    widths.write_text("[2, 4, 8]")
    model = tmp_path / "model"
    flags = [f for f in TINY if "embedding_dim" not in f]
    code, trained = in_process(
        *(tmp_path / "a", f"--dataset_path={tiny}", *flags, f"--embedding_dim={widths}"),
        *(f"--save_checkpoint_path={model}", "--num_cross_layers=2"),
        "--cross_layer_projection_dim=3",
        recipe=dcnv2,
    )
    assert code == 0
    widths.unlink()  # a checkpoint knows its widths
    code, evaluated = in_process(
        *(tmp_path / "b", f"--dataset_path={tiny}", "--mode=eval", "--eval_mapping=validation"),
        f"--restore_checkpoint_path={model}",
        recipe=dcnv2,
    )
    assert code == 0
    assert evaluated["auc"] == pytest.approx(trained["auc"], abs=1e-6)


def test_training_from_restored_weights(trained, tmp_path):
    restored, first = trained
    code, second = in_process(tmp_path, *restored, *TINY, "--learning_rate=0")
    assert code == 0 and second["auc"] == pytest.approx(first["auc"], abs=1e-6)


def test_seeds(tiny, trained, tmp_path):
    for seed in (1, 2):
        flags = (f"--dataset_path={tiny}", *TINY, f"--seed={seed}")
        loss = in_process(tmp_path, *flags)[1]["log_loss"]
        assert (loss == pytest.approx(trained[1]["log_loss"], rel=1e-5)) == (seed == 1)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--embedding_dim=8"], "ends with 4, but --embedding_dim is 8"),
        (["--embedding_dim=4,4"], "lists 2 sizes"),
        (["--profiler_start_step=1", "--profiled_rank=1"], "--profiled_rank 1 does not exist"),
        (["--shuffle_window_rows=100"], "8192"),
        (["--feature_spec=other.yaml"], "other.yaml"),
        (["--profiler_start_step=4"], "--profiler_start_step 4 is never reached"),
        (["--run_dir=/proc/zz"], "'/proc/zz'"),
        (["--save_checkpoint_path=/proc/zz"], "--save_checkpoint_path /proc/zz cannot be written"),
    ],
)
def test_one_line_errors(tiny, tmp_path, capsys, flags, message):
    code, _ = in_process(tmp_path, f"--dataset_path={tiny}", *TINY, *flags)
    error = capsys.readouterr().err
    assert code == entry.USER_ERROR
    assert message in error
    assert error.startswith("dlrm: error: ") and error.count("\n") == 1


def test_id_out_of_range(tiny, tmp_path, capsys):
    broken = tmp_path / "rows"
    shutil.copytree(tiny, broken)
    file = broken / "train/cat_2.bin"
    ids = bytearray(file.read_bytes())
    ids[700] = 99
    file.write_bytes(ids)
    code, _ = in_process(tmp_path, f"--dataset_path={broken}", *TINY)
    assert code == entry.USER_ERROR
    error = capsys.readouterr().err
    assert "cat_2" in error and "99" in error and "700" in error
