"""`--interaction`: the same training by every implementation, and what a checkpoint remembers."""

import pytest

import dlrm
from nn.layers.interaction import custom_op
from recipes import ctr
from runtime import checkpoint
from tests.recipes.test_entry_scripts import TINY, in_process, lines, summary, tiny
from tests.training.test_golden_losses import FLAGS

__all__ = ["tiny"]

# Of a step's loss, between implementations that round in other places.
TOLERANCE = {"float32": 1e-5, "bfloat16": 5e-3}


def losses(folder):
    found = [line.get("data", {}).get("loss") for line in lines(folder / "log.json")]
    return [loss for loss in found if loss is not None]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("numericals", [5, 0])
def test_20_steps_with_the_op_and_without(precision, numericals, tmp_path, capsys):
    found = {}
    for interaction in ("dot_tensorflow", "dot_custom"):
        flags = [*FLAGS, "--learning_rate=2", f"--interaction={interaction}"]
        flags += [f"--synthetic_dataset_num_numerical_features={numericals}"]
        flags += ["--amp"] if precision == "bfloat16" else []
        run_dir = tmp_path / interaction
        assert dlrm.main(["prog", *flags, f"--run_dir={run_dir}"]) == 0
        found[interaction] = losses(run_dir)
        assert len(found[interaction]) == 20
        assert f"interaction {interaction}" in capsys.readouterr().out
    plain, custom = found.values()
    assert custom == pytest.approx(plain, rel=TOLERANCE[precision])


def test_xla_compiles_around_the_op(tmp_path, run_script):
    found = {}
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
        found["".join(flags)] = losses(run_dir)
    assert found["--xla"] == pytest.approx(found[""], rel=TOLERANCE["float32"])
    assert found["--xla--amp"] == pytest.approx(found[""], rel=2e-2)


def test_the_log_says_which_implementation_it_was(tiny, tmp_path, capsys):
    for wanted, chosen in (("dot", "dot_custom"), ("dot_tensorflow", "dot_tensorflow")):
        flags = (f"--dataset_path={tiny}", *TINY, f"--interaction={wanted}")
        assert in_process(tmp_path, *flags)[0] == 0
        said = capsys.readouterr().out
        assert f"interaction {chosen}" in said
        assert "note: --interaction" not in said


def test_a_missing_op_is_announced(tiny, tmp_path, capsys, monkeypatch):
    ops = custom_op()
    monkeypatch.setattr(ops, "LIBRARY", tmp_path / "nothing.so")
    ops.library.cache_clear()
    try:
        assert in_process(tmp_path, f"--dataset_path={tiny}", *TINY)[0] == 0
    finally:
        ops.library.cache_clear()
    said = capsys.readouterr().out
    assert "interaction dot_tensorflow" in said
    assert "note: --interaction dot is computed by dot_tensorflow, for the op's library" in said


def test_gpu_kernels_on_a_machine_without_gpu(tiny, tmp_path, capsys):
    flags = (f"--dataset_path={tiny}", *TINY, "--cpu", "--interaction=dot_custom_cuda")
    assert in_process(tmp_path, *flags)[0] == 2
    said = capsys.readouterr().err
    assert "dot_custom_cuda needs the op's GPU kernels, but there is no GPU" in said
    assert "--interaction dot" in said


def test_a_checkpoint_remembers_the_model_and_not_the_implementation(tiny, tmp_path, capsys):
    data, model = f"--dataset_path={tiny}", tmp_path / "model"
    save = f"--save_checkpoint_path={model}"
    train = (data, *TINY, save, "--interaction=dot_tensorflow", "--max_steps=2")
    assert in_process(tmp_path / "train", *train)[0] == 0
    assert checkpoint.describe(checkpoint.resolve(model)).description["model_flags"][
        "interaction"
    ] == ("dot")
    capsys.readouterr()

    restore = (data, f"--restore_checkpoint_path={model}", "--mode=eval")
    aucs = []
    for flag, chosen in (
        ([], "dot_custom"),
        (["--interaction=dot_custom"], "dot_custom"),
        (["--interaction=dot_tensorflow"], "dot_tensorflow"),
    ):
        code, result = in_process(tmp_path / "eval", *restore, *flag)
        assert code == 0
        assert f"interaction {chosen}" in capsys.readouterr().out
        aucs.append(result["auc"])
    assert aucs == pytest.approx([aucs[0]] * 3, abs=1e-6)
    assert in_process(tmp_path / "eval", *restore, "--interaction=cross")[0] == 2
    assert "--interaction cross differs from the checkpoint's dot" in capsys.readouterr().err

    # A training goes on with its own implementation, or with the one that is asked for.
    assert in_process(tmp_path / "on", data, save, "--resume=auto", "--max_steps=3")[0] == 0
    assert "interaction dot_tensorflow" in capsys.readouterr().out
    resumed = (data, save, "--resume=auto", "--max_steps=4", "--interaction=dot_custom")
    assert in_process(tmp_path / "on", *resumed)[0] == 0
    assert "interaction dot_custom" in capsys.readouterr().out
    assert summary(tmp_path / "on")["steps"] == 4


def test_an_old_checkpoint_that_names_an_implementation_takes_the_one_that_is_there(
    tiny, tmp_path, capsys, monkeypatch
):
    data, model = f"--dataset_path={tiny}", tmp_path / "model"
    # As it was before the op.
    monkeypatch.setattr(ctr, "canonical_value", lambda name, value: value)
    train = (data, *TINY, f"--save_checkpoint_path={model}", "--interaction=dot_tensorflow")
    assert in_process(tmp_path / "train", *train)[0] == 0
    flags = checkpoint.describe(checkpoint.resolve(model)).description["model_flags"]
    assert flags["interaction"] == "dot_tensorflow"
    capsys.readouterr()
    restore = (data, f"--restore_checkpoint_path={model}", "--mode=eval")
    assert in_process(tmp_path / "eval", *restore)[0] == 0
    assert "interaction dot_custom" in capsys.readouterr().out
