"""`--interaction`: equal training by every implementation, and the model in a checkpoint."""

import numpy as np
import pytest

import dlrm
from config.checkpoint_flags import model_flags
from nn.layers.fused_op import custom_op
from runtime import checkpoint
from tests.recipes.test_entry_scripts import TINY, in_process, lines, summary
from tests.training.test_golden_losses import FLAGS

# Relative difference of a step's loss between implementations, which round differently.
TOLERANCE = 1e-5


def losses(folder):
    values = [line.get("data", {}).get("loss") for line in lines(folder / "log.json")]
    return [loss for loss in values if loss is not None]


def train(folder, interaction, numericals, capsys, *flags):
    """Returns the losses of 20 steps."""
    flags = [*FLAGS, "--learning_rate=2", f"--interaction={interaction}", *flags]
    flags += [f"--synthetic_dataset_num_numerical_features={numericals}", f"--run_dir={folder}"]
    assert dlrm.main(["prog", *flags]) == 0
    assert f"interaction {interaction}" in capsys.readouterr().out
    values = np.array(losses(folder))
    assert len(values) == 20
    return values


@pytest.mark.quick("5")
@pytest.mark.parametrize("numericals", [5, 0])
def test_equal_losses(numericals, tmp_path, capsys):
    plain = train(tmp_path / "plain", "dot_tensorflow", numericals, capsys)
    custom = train(tmp_path / "custom", "dot_custom", numericals, capsys)
    np.testing.assert_allclose(custom, plain, rtol=TOLERANCE)


@pytest.mark.long
@pytest.mark.parametrize("numericals", [5, 0])
def test_bfloat16(numericals, tmp_path, capsys):
    """The fused operation errs at most twice as much as the plain one."""
    plain = train(tmp_path / "plain", "dot_tensorflow", numericals, capsys)
    errors = {
        interaction: np.abs(
            train(tmp_path / interaction, interaction, numericals, capsys, "--amp") - plain
        ).max()
        for interaction in ("dot_tensorflow", "dot_custom")
    }
    assert 0 < errors["dot_custom"] <= 2 * errors["dot_tensorflow"], errors


@pytest.mark.long
def test_xla(tmp_path, run_script):
    losses_by_run = {}
    for flags in ([], ["--xla"], ["--xla", "--amp"]):
        run_dir = tmp_path / "-".join(["run", *flags])
        done = run_script(
            *("dlrm.py", *FLAGS, "--learning_rate=2", "--interaction=dot_custom", *flags),
            f"--run_dir={run_dir}",
            env={"TF_CPP_MIN_LOG_LEVEL": "0"},
        )
        assert done.returncode == 0, done.stderr
        assert "interaction dot_custom" in done.stdout
        assert ("bfloat16" if "--amp" in flags else "float32") in done.stdout
        assert summary(run_dir)["log_loss"] < 0.75
        assert ("Compiled cluster using XLA" in done.stderr) == bool(flags)
        losses_by_run["".join(flags)] = losses(run_dir)
    assert losses_by_run["--xla"] == pytest.approx(losses_by_run[""], rel=TOLERANCE)
    assert losses_by_run["--xla--amp"] == pytest.approx(losses_by_run[""], rel=2e-2)


def test_missing_op(tiny, tmp_path, capsys, monkeypatch):
    ops = custom_op()
    monkeypatch.setattr(ops, "LIBRARY", tmp_path / "nothing.so")
    ops.library.cache_clear()
    try:
        assert in_process(tmp_path, f"--dataset_path={tiny}", *TINY)[0] == 0
    finally:
        ops.library.cache_clear()
    output = capsys.readouterr().out
    assert "interaction dot_tensorflow" in output
    assert "note: --interaction dot is computed by dot_tensorflow, for the op's library" in output


def test_checkpoint(tiny, tmp_path, capsys):
    data, model = f"--dataset_path={tiny}", tmp_path / "model"
    save = f"--save_checkpoint_path={model}"
    train = (data, *TINY, save, "--interaction=dot_tensorflow", "--max_steps=2")
    assert in_process(tmp_path / "train", *train)[0] == 0
    description = checkpoint.describe(checkpoint.resolve(model)).description
    assert description["model_flags"]["interaction"] == "dot"
    capsys.readouterr()

    restore = (data, f"--restore_checkpoint_path={model}", "--mode=eval")
    aucs = []
    for flag, chosen in (([], "dot_custom"), (["--interaction=dot_tensorflow"], "dot_tensorflow")):
        code, result = in_process(tmp_path / "eval", *restore, *flag)
        assert code == 0
        output = capsys.readouterr().out
        assert f"interaction {chosen}" in output and "note: --interaction" not in output
        aucs.append(result["auc"])
    assert aucs[1] == pytest.approx(aucs[0], abs=1e-6)
    assert in_process(tmp_path / "eval", *restore, "--interaction=cross")[0] == 2
    assert "--interaction cross differs from the checkpoint's dot" in capsys.readouterr().err

    # A resumed training keeps its implementation, or takes the requested one.
    assert in_process(tmp_path / "on", data, save, "--resume=auto", "--max_steps=3")[0] == 0
    assert "interaction dot_tensorflow" in capsys.readouterr().out
    resumed = (data, save, "--resume=auto", "--max_steps=4", "--interaction=dot_custom")
    assert in_process(tmp_path / "on", *resumed)[0] == 0
    assert "interaction dot_custom" in capsys.readouterr().out
    assert summary(tmp_path / "on")["steps"] == 4


def test_checkpoint_of_an_earlier_version():
    """It names the implementation."""
    assert model_flags({"model_flags": {"interaction": "dot_tensorflow"}})["interaction"] == "dot"
