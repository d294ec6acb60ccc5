"""`--mlperf_log`: files that the compliance checker of MLPerf Training accepts."""

import json
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
from distributed_embeddings.collectives import World
from mlperf_logging.compliance_checker import mlp_compliance

import dcnv2
from config import presets
from config.command_line import parse
from recipes.recipe import Goal
from recipes.registry import DCNV2
from runtime.hardware.device import Device
from training import mlperf_hook
from training.state import Position

RULESET = "6.0.0"  # the last one with DLRM-DCNv2
TINY = [
    *("--preset=mlperf", "--dataset_type=synthetic", "--seed=1", "--batch_size=256"),
    *("--synthetic_dataset_train_batches=200", "--synthetic_dataset_valid_batches=8"),
    *("--synthetic_dataset_cardinalities=50,20,10,200", "--synthetic_dataset_hotness=3"),
    *("--embedding_dim=8", "--bottom_mlp_dims=16,8", "--top_mlp_dims=16,1"),
    "--cross_layer_projection_dim=8",
]


def is_compliant(path) -> bool:
    checker = mlp_compliance.make_checker("training", RULESET, quiet=False, werror=True)
    return checker.check_file(str(path), f"training_{RULESET}/common.yaml")


def events(path):
    """(key, value, metadata without the place in the source) of each line."""
    result = []
    for line in path.read_text().splitlines():
        content = json.loads(line.removeprefix(":::MLLOG "))
        assert content["metadata"].pop("file") == "training/mlperf_hook.py"
        del content["metadata"]["lineno"]
        result.append((content["key"], content["value"], content["metadata"]))
    return result


def values_of(path):
    return {key: value for key, value, _ in events(path)}


def test_training(tmp_path, new_process):
    """A complete training whose target the generated data reach."""
    log = tmp_path / "new" / "mlperf.log"
    flags = [*TINY, "--auc_threshold=0.6", f"--run_dir={tmp_path}", f"--mlperf_log={log}"]
    assert dcnv2.main(["prog", *flags, "--mlperf_organization=Example"]) == 0
    assert is_compliant(log)
    lines = events(log)
    keys = [key for key, _, _ in lines]
    step = ["block_start", "block_stop", "eval_start", "eval_accuracy", "eval_stop"]
    steps = keys[keys.index("run_start") + 1 : keys.index("run_stop")]
    assert keys[-1] == "run_stop" and steps == step * (len(steps) // 5)
    values = values_of(log)
    assert values["submission_org"] == "Example" and values["submission_division"] == "open"
    assert (values["train_samples"], values["eval_samples"]) == (51_200, 2_048)
    *early, reached = [value for key, value, _ in lines if key == "eval_accuracy"]
    assert all(auc < 0.6 for auc in early) and reached >= 0.6
    epochs = [metadata["epoch_num"] for key, _, metadata in lines if key == "eval_accuracy"]
    assert epochs == pytest.approx([0.05 * (i + 1) for i in range(len(epochs))])
    samples = round(51_200 * epochs[-1])
    stop = {"status": "success", "epoch_num": epochs[-1], "samples_count": samples}
    assert lines[-1][2] == stop


def test_missed_target(tmp_path, capsys):
    log = tmp_path / "mlperf.log"
    flags = [*TINY, "--evals_per_epoch=2", "--max_steps=150", f"--run_dir={tmp_path}"]
    assert dcnv2.main(["prog", *flags, f"--mlperf_log={log}"]) == 0
    assert "--auc_threshold 0.80275 was not reached" in capsys.readouterr().out
    assert events(log)[-1][2]["status"] == "aborted"
    assert [m["samples_count"] for k, _, m in events(log) if k == "eval_accuracy"] == [25600, 38400]


@pytest.fixture
def new_process(monkeypatch):
    """The checker limits the time from the start of the process; that of the tests may be old."""
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: time.time())


def run_of(log, *flags, step=0, is_chief=True):
    """The parts of a run of MLPerf's size that the hook reads."""
    config = parse(
        ["x", "--dataset_path=d", "--preset=mlperf", "--seed=1", f"--mlperf_log={log}", *flags],
        DCNV2,
    )
    config = presets.apply(config, lambda: None, config.explicit)
    batch_size = config.run.batch_size
    train = SimpleNamespace(num_samples=mlperf_hook.TRAINING_SAMPLES, batch_size=batch_size)
    valid = SimpleNamespace(num_samples=mlperf_hook.EVALUATION_SAMPLES)
    return SimpleNamespace(
        config=config,
        recipe=SimpleNamespace(train=train, valid=valid, num_parts=1, goal=Goal()),
        position=Position(step=step, row=step * batch_size),
        world=SimpleNamespace(is_chief=is_chief, agree=World().agree, size=2),
        device=Device("CPU", "float32", 1.0),
    )


def evaluate(run, hook, auc):
    run.position.step += 3201
    run.position.row += 3201 * run.recipe.train.batch_size
    hook.start_evaluation()
    hook.end_evaluation(auc)


def test_closed_division(tmp_path, new_process):
    """The preset on MLPerf's data has what the rules of the closed division fix."""
    log = tmp_path / "mlperf.log"
    run = run_of(log)
    hook = mlperf_hook.open_hook(run)
    hook.start()
    evaluate(run, hook, 0.8)
    hook.start_block()
    evaluate(run, hook, 0.803)
    hook.stop(True)
    assert is_compliant(log)
    values = values_of(log)
    assert values["submission_division"] == "closed"
    assert values["submission_platform"].startswith("2 x CPU (")
    assert values["opt_base_learning_rate"] == 0.004 and values["global_batch_size"] == 65536
    log.write_text(log.read_text().replace("0.803", "0.802"))
    assert not is_compliant(log), "the checker requires the target"


@pytest.mark.parametrize(
    ("flags", "division"),
    [
        ("--epsilon=1e-7", "open"),
        ("--auc_threshold=0.8", "open"),
        ("--embedding_learning_rate=0.1", "open"),
        ("--learning_rate=0.005 --batch_size=32768", "closed"),
    ],
)
def test_divisions(flags, division, tmp_path, new_process):
    mlperf_hook.open_hook(run_of(tmp_path / "mlperf.log", *flags.split()))
    assert values_of(tmp_path / "mlperf.log")["submission_division"] == division


def test_resumed_training(tmp_path, new_process):
    """The file is that of one training, also after a line that a lost machine has cut; a run
    without anything left to do changes nothing, and another training leaves the file."""
    log = tmp_path / "mlperf.log"
    run = run_of(log)
    hook = mlperf_hook.open_hook(run)
    hook.start()
    evaluate(run, hook, 0.8)
    hook.start_block()
    log.write_text(log.read_text() + log.read_text().splitlines()[-1][:40])
    resumed = run_of(log, step=3500)
    hook = mlperf_hook.open_hook(resumed)
    hook.start()
    evaluate(resumed, hook, 0.803)
    hook.stop(True)
    assert is_compliant(log)
    complete = log.read_text()
    mlperf_hook.open_hook(run_of(log, step=6701)).stop(True)
    assert log.read_text() == complete
    mlperf_hook.open_hook(run_of(log))
    assert (tmp_path / "mlperf-1.log").read_text() == complete


def test_other_ranks(tmp_path):
    run = run_of(tmp_path / "mlperf.log", is_chief=False)
    hook = mlperf_hook.open_hook(run)
    hook.start()
    evaluate(run, hook, 0.803)
    hook.stop(True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--interaction=dot", "--mlperf_log is only read with --interaction cross"),
        ("--evals_per_epoch=0", "--evals_per_epoch is 0"),
        ("--mlperf_organization=", "--mlperf_organization must not be empty"),
    ],
)
def test_flags(flag, message):
    with pytest.raises(ValueError, match=message):
        parse(["x", "--dataset_path=d", "--mlperf_log=l", flag], DCNV2)


def test_errors(tmp_path, monkeypatch):
    """A folder that cannot be made, and a package that is not installed."""
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=f"'{tmp_path / 'file'}"):
        mlperf_hook.open_hook(run_of(tmp_path / "file/mlperf.log"))
    monkeypatch.setitem(sys.modules, "mlperf_logging.mllog.mllog", None)
    with pytest.raises(ValueError, match="mlperf-logging, which is not installed"):
        mlperf_hook.open_hook(run_of(tmp_path / "mlperf.log"))
