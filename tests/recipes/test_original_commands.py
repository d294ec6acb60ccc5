"""Command lines of NVIDIA's DLRM, started by main.py, and what its users read from the log."""

import contextlib
import io
import re
from typing import NamedTuple

import pytest

import main as entry
from tests.recipes.test_entry_scripts import lines

SMALL = [
    *("--batch-size", "256", "--embedding_dim", "4", "--bottom_mlp_dims", "8,4"),
    *("--top_mlp_dims", "8,1", "--learning_rate", "0.1", "--warmup-steps", "1", "--seed", "1"),
    *("--preset", "terabyte", "--valid_batch_size", "64"),
]
# Flags of the releases of October 2022 and June 2023 that have no effect, or another name here.
ORIGINAL = [
    *("--dot_interaction", "tensorflow", "--use_merlin_de_embeddings=false", "--concat_embedding"),
    *("--data_parallel_input", "--save_input_signature", "--beta1", "0.9", "--loss_scale", "1024"),
    *("--num_cross_layers", "3", "--profiled_rank", "1", "--auc_thresholds", "8000"),
    *("--synthetic_dataset_num_numerical_features", "13", "--evals_per_epoch", "2"),
    *("--print_freq", "1"),
]


class Run(NamedTuple):
    output: str
    lines: list  # of the log
    summary: dict


def run(run_dir, *flags):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = entry.main(["main.py", *map(str, flags), f"--run-dir={run_dir}"])
    assert code == 0
    log = lines(run_dir / "log.json")
    return Run(output.getvalue(), log, log[-1]["data"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("original")


@pytest.fixture(scope="module")
def trained(tiny, folder):
    saved = ("--save_checkpoint_path", folder / "model")
    flags = ("--dataset_path", tiny, *SMALL, *ORIGINAL, *saved)
    return run(folder / "train", *flags, "--saved_model_output_path", folder / "saved")


def test_notes(trained):
    (unused,) = re.findall(r"note: not used in this run .*: (--.*)", trained.output)
    assert re.sub(r" \([^)]*\)", "", unused).split(", ") == [
        *("--beta1", "--loss_scale", "--num_cross_layers", "--profiled_rank"),
        "--synthetic_dataset_num_numerical_features",
    ]
    notes = [line for line in trained.output.splitlines() if "has no effect" in line]
    assert [line.split()[1] for line in notes] == ["--nouse_mde_embeddings", "--concat_embedding"]
    assert "--loss_scale is not used" not in trained.output


def test_training_summary(trained):
    summary = trained.summary
    evaluations = [line["data"] for line in trained.lines if "log_loss" in line.get("data", {})]
    assert len(evaluations) == 3  # two, and the summary
    assert summary["validation_loss"] == min(values["log_loss"] for values in evaluations)
    assert summary["best_auc"] == max(values["auc"] for values in evaluations)
    losses = [line["data"]["loss"] for line in trained.lines if "loss" in line.get("data", {})]
    assert summary["train_loss"] == losses[-1]
    seconds = 256 / summary["throughput"]
    assert summary["mean_step_time_ms"] == pytest.approx(1000 * seconds)
    printed = [line for line in trained.output.splitlines() if "mean_step_time_ms" in line]
    assert len(printed) == 1 and printed[0].startswith("DLL ")


def test_log_and_stdout_of_dllogger(trained):
    """Units and formats of the METADATA lines are those with which dllogger prints a value."""
    first, last = trained.lines[0], trained.lines[-1]
    assert (first["step"], last["step"]) == ("PARAMETER", [])
    flags = first["data"]
    assert flags["concat_embedding"] and not flags["use_mde_embeddings"]
    assert flags["data_parallel_input"] and not flags["model_parallel_input"]
    metadata = {line["metric"]: line["metadata"] for line in trained.lines if "metric" in line}
    assert metadata["mean_step_time_ms"] == {"unit": "ms"}
    assert metadata["validation_loss"] == {"format": ":.5f"}
    words = []
    for name, value in last["data"].items():
        form = "{" + metadata.get(name, {}).get("format", "") + "}"
        words.append(f"{name} : {form.format(value)} {metadata.get(name, {}).get('unit', '')}")
    (printed,) = re.findall(r"^DLL .* - (\(\) .*)$", trained.output, re.MULTILINE)
    assert printed == " ".join(["()", *words])


def test_saved_model_of_a_training(trained, tiny, folder):
    """It has the metrics of the checkpoint, and replaces the one of an earlier training."""
    assert trained.output.endswith(f"deployed to: {folder / 'saved'}\n")
    flags = ("--dataset_path", tiny, "--valid_batch_size", 64, "--mode", "eval")
    restored = run(folder / "a", *flags, "--restore_checkpoint_path", folder / "model")
    assert restored.summary["test_loss"] == restored.summary["log_loss"]
    loaded = run(folder / "b", *flags, "--saved_model_input_path", folder / "saved")
    for name in ("auc", "test_loss"):
        assert loaded.summary[name] == pytest.approx(restored.summary[name], abs=1e-6)


def test_deploy_and_inference(trained, tiny, folder, capsys):
    output = folder / "deployed"
    flags = ("--dataset_path", str(tiny), "--restore_checkpoint_path", str(folder / "model"))
    for _ in range(2):  # as in the original, the second one replaces the first
        deploy = (*flags, "--mode=deploy", "--saved_model_output_path", str(output))
        assert entry.main(["main.py", *deploy, "--fp16"]) == 0
        assert capsys.readouterr().out == f"deployed to: {output}\n"
    (folder / "text").mkdir()
    (folder / "text/file").touch()
    other = (*flags, "--mode=deploy", "--saved_model_output_path", str(folder / "text"))
    assert entry.main(["main.py", *other]) == entry.USER_ERROR
    assert f"{folder / 'text'}: expected a SavedModel to replace" in capsys.readouterr().err
    wrong = ("--mode=eval", f"--dataset_path={tiny}", f"--saved_model_input_path={tiny}")
    assert entry.main(["main.py", *wrong, f"--run_dir={folder / 'd'}"]) == entry.USER_ERROR
    assert "expected the folder of a SavedModel" in capsys.readouterr().err
    measure = ("--mode=inference", "--max_steps=4", "--warmup_batches=1", "--valid_batch_size=64")
    result = run(
        folder / "c", "--dataset_path", tiny, *measure, "--saved_model_input_path", output
    ).summary
    assert result["mean_inference_throughput"] == result["throughput"]
    assert result["mean_inference_latency"] == pytest.approx(result["latency_mean"] / 1000)
    for percentile in ("p90", "p95", "p99"):
        seconds = result[f"latency_{percentile}"] / 1000
        assert result[f"{percentile}_inference_latency"] == pytest.approx(seconds)
    assert 0 < result["auc"] < 1 and result["test_loss"] > 0


def test_saved_model_without_checkpoints(tiny, folder):
    """The checkpoint from which it is made is removed, and no other one."""
    output, other = folder / "alone", folder / "alone.checkpoint"
    flags = ("--dataset_path", tiny, *SMALL, "--max_steps", 1, "--evals_per_epoch", 0)
    run(folder / "e", *flags, "--save_checkpoint_path", other)
    resumed = ("--resume", other, "--max_steps", 2, "--dataset_path", tiny)
    for number, saving in enumerate((flags, resumed)):
        run(folder / f"e{number}", *saving, "--saved_model_output_path", output)
        assert (output / "saved_model.pb").is_file()
        assert len(list(other.glob("*-step-*"))) == 1 + number
    assert {path.name for path in folder.glob("*alone*")} == {"alone", "alone.checkpoint"}


def test_synthetic_data_appended_to_a_command(tiny, folder):
    sizes = ("--synthetic_dataset_train_batches", 2, "--synthetic_dataset_valid_batches", 1)
    flags = ("--dataset_path", tiny, *SMALL, "--dataset_type", "synthetic", *sizes)
    result = run(folder / "g", *flags, "--dummy_model")
    assert "--dataset_path (read with --dataset_type tf_raw" in result.output
    assert "tables 0" in result.output and "parameters 16" in result.output
    assert result.summary["steps"] == 2
