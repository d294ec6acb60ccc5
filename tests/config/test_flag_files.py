"""Files of flags: `--flagfile`, the files of recipes/presets, and the `flags` that a run writes."""

import dataclasses

import pytest

import dcnv2
import dlrm
import ncf
import sim
from config import flag_file, presets
from config.command_line import parse
from config.recipe_choice import recipe_of
from recipes.registry import BY_NAME, NCF
from tests import sequence_data, tastes
from tests.recipes.test_validation import messages
from tests.training.test_golden_losses import losses_of


def parsed(recipe, *flags):
    return parse(["x", *map(str, flags)], BY_NAME[recipe])


@pytest.fixture
def file(tmp_path):
    def write(text, name="some.flags"):
        (tmp_path / name).write_text(text)
        return f"--flagfile={tmp_path / name}"

    return write


def test_values_in_a_file(file):
    text = (
        "# a comment\n\n--batch_size=64\n  --top-mlp-dims 8,1  \n--noshuffle\n--dataset_path=a b\n"
    )
    config = parsed("dlrm", file(text))
    assert (config.run.batch_size, config.family_flags.top_mlp_dims) == (64, (8, 1))
    assert (config.data.shuffle, config.data.dataset_path) == (False, "a b")
    assert config.explicit == {"batch_size", "top_mlp_dims", "shuffle", "dataset_path"}


@pytest.mark.parametrize("order", [1, -1])
def test_precedence_of_the_command_line(file, order):
    """Wherever `--flagfile` is, and whatever a flag is called on the command line."""
    flags = [file("--learning_rate=1\n--epochs=3\n--dataset_path=e\n")]
    flags += ["--lr=2", "--dataset_dir=d"]
    config = parsed("sim", *flags[::order])
    assert (config.optimizer.learning_rate, config.run.epochs) == (2, 3)
    assert config.data.dataset_path == "d"


def test_several_files(file):
    """A later file replaces values of an earlier one; an included path is relative to its file."""
    first = file("--epochs=3\n--batch_size=8\n", "first.flags")
    second = file("--flagfile=first.flags\n--epochs=4\n--dataset_path=d\n", "second.flags")
    assert parsed("dlrm", second).run.epochs == 4
    assert parsed("dlrm", second).run.batch_size == 8
    assert parsed("dlrm", *second.split("="), first).run.epochs == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch_size=8\n", "some.flags, line 1: .*'batch_size=8'"),
        ("\n--batch_sise=8\n", "some.flags, line 2: Unknown command line flag 'batch_sise'"),
        ("--batch_size=x\n", "some.flags, line 1: flag --batch_size=x"),
        ("--batch_size=8 --epochs=3\n", "some.flags, line 1: flag --batch_size=8 --epochs=3"),
        ("--flagfile=some.flags\n", "some.flags: includes itself"),
        ("--flagfile=other.flags\n", "other.flags: cannot be read: No such file"),
        ("--flagfile=.\n", "cannot be read: Is a directory"),
        ("--flagfile=binary\n", "binary.* expected lines of text"),
        ("--flagfile=first.flags\n", "first.flags, line 2: Unknown command line flag"),
        ("--lr=1\n--learning_rate=1\n", "--flagfile: --lr and --learning_rate are aliases"),
        (flag_file.text(parsed("dlrm", "--dataset_path=d")), "a run of dlrm, and this is sim$"),
    ],
)
def test_errors(file, tmp_path, text, message):
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    file("--epochs=3\n--no_such_flag\n", "first.flags")
    with pytest.raises(ValueError, match=message):
        parsed("sim", "--dataset_path=d", file(text))
    with pytest.raises(ValueError, match="expected the path of a file"):
        parsed("sim", "--flagfile")


def test_recipe_of_a_file(file):
    argv = ["main.py", file("--factors=8\n--dataset_path=d\n")]
    assert recipe_of(argv, BY_NAME) == ("ncf", argv)


def recipes_of(path):
    """Recipes whose scripts the comment of a file names."""
    return [recipe for recipe in BY_NAME if f"{recipe}.py" in path.read_text().partition("\n--")[0]]


def test_files_of_presets(root):
    paths = sorted((root / "recipes/presets").glob("*.flags"))
    assert len(paths) >= 13
    for path in paths:
        assert recipes_of(path), f"{path.name} names no script"
        for recipe in recipes_of(path):
            config = parsed(recipe, "--dataset_path=d", f"--flagfile={path}")
            assert config.run.preset == "terabyte"
            assert config.unused() == []
            assert presets.apply(config, lambda: 10, config.explicit).flat() == config.flat()


def test_preset_as_a_file(root):
    """`--preset mlperf` and its file set the same values."""
    by_name = parsed("dcnv2", "--dataset_path=d", "--preset=mlperf")
    by_name = presets.apply(by_name, lambda: 10, by_name.explicit).flat()
    by_file = parsed("dcnv2", "--dataset_path=d", f"--flagfile={root}/recipes/presets/mlperf.flags")
    assert {**by_file.flat(), "preset": "mlperf"} == by_name


PREDICT = "--dataset_path=d --mode=predict --restore_checkpoint_path=c"
COMMANDS = [
    ("dlrm", "--dataset_path=d"),
    ("dlrm", "--dataset_path=d --save_checkpoint_path=c --keep_best --early_stopping=3 --amp"),
    ("dlrm", "--dataset_path=d --nodata_parallel_input --dot_interaction=tensorflow --fp16"),
    ("dlrm", "--dataset_path=d --saved_model_output_path=m --keep_checkpoints=3"),
    ("dlrm", f"{PREDICT} --predictions_path=p.csv"),
    ("dlrm", "--dataset_path=d --rank_logs=l --log_path=x --tensorboard_dir=t --run_dir=r"),
    ("dcnv2", "--dataset_type=synthetic --preset=mlperf --mlperf_log=m --mlperf_organization=o"),
    ("dcnv2", "--dataset_type=synthetic --evals_per_epoch=0 --embedding_dim=8,16 --seed=3"),
    ("sim", "--dataset_path=d --benchmark --affinity=single"),
    ("sim", "--dataset_path=d --load_checkpoint_path=c --mode=eval"),
    ("sim", "--dataset_path=d --load_checkpoint_path=c --variant=nvidia"),
    ("ncf", "--data=d --checkpoint_dir=c --opt_level=O2 --layers 32 16"),
    ("ncf", "--data=d --checkpoint_dir=c --nokeep_best"),
    ("ncf", "--data=d --mode=test --checkpoint_dir=c --local_rank=0"),
    ("ncf", "--data=d --evals_per_epoch=0 --model_type=gmf"),
    ("ncf", "--mode=inference --batch_sizes=1,2 --n_users=3"),
]


@pytest.mark.parametrize(("recipe", "flags"), COMMANDS)
def test_complete_flags(recipe, flags, file):
    """The flags of a run as a file give all values again, but for the paths of logs."""
    config = parsed(recipe, *flags.split())
    config = presets.apply(config, lambda: 5000, config.explicit).replace(seed=7)
    text = flag_file.text(config)
    again = parsed(recipe, file(text))
    again = presets.apply(again, lambda: 5000, again.explicit)
    names = {"run_dir", "log_path", "rank_logs", "mlperf_log", "tensorboard_dir", "local_rank"}
    names |= {"mlperf_organization", "opt_level", "dot_interaction", "load_checkpoint_path"}
    assert {k: v for k, v in again.flat().items() if k not in names} == {
        k: v for k, v in config.flat().items() if k not in names
    }
    assert again.unused() == []
    for name, value in config.flat().items():  # complete: flags without effect are comments
        if value is not None:
            assert f"\n{flag_file.argument(name, value)}\n" in text.replace("\n# --", "\n--")


def test_flags_in_effect():
    """Neither those of another mode nor those of another model."""
    config = parsed("ncf", "--data=d", "--model_type=gmf")
    assert {"factors", "epochs", "seed"} <= set(config.in_effect())
    assert not {"n_users", "layers", "predictions_path", "users"} & set(config.in_effect())
    config = parsed("sim", "--dataset_path=d", "--mode=eval", "--restore_checkpoint_path=c")
    assert "eval_mapping" in config.in_effect() and "epochs" not in config.in_effect()


def test_flags_of_another_default(file):
    """NCF saves into /data/checkpoints where that exists, and a run need not."""
    defaults = {**NCF.defaults, "checkpoint_dir": "/data/checkpoints"}
    definition = dataclasses.replace(NCF, defaults=defaults)
    argv = ["x", "--data=d", "--save_checkpoint_path=c"]
    text = flag_file.text(parse(argv, definition))
    again = parse(["x", file(text)], definition)
    assert again.family_flags.checkpoint_dir is None
    assert again.checkpoint.save_checkpoint_path == "c"


SYNTHETIC = [
    *("--dataset_type=synthetic", "--synthetic_dataset_train_batches=12", "--batch_size=64"),
    *("--synthetic_dataset_valid_batches=1", "--synthetic_dataset_cardinalities=100,7"),
    *("--bottom_mlp_dims=16,8", "--embedding_dim=8", "--top_mlp_dims=8,1", "--print_freq=1"),
    "--epochs=1",
]


@pytest.mark.parametrize(
    "name",
    ["dlrm", *(pytest.param(name, marks=pytest.mark.long) for name in ("dcnv2", "sim", "ncf"))],
)
def test_repetition_of_a_run(name, tmp_path, capsys):
    """A run repeats the losses of another one from its `flags`, bit for bit, and its notes."""
    module = {"dlrm": dlrm, "dcnv2": dcnv2, "sim": sim, "ncf": ncf}[name]
    keys = ("loss", "log_loss")
    flags = SYNTHETIC
    if name == "dlrm":
        flags = [*flags, f"--save_checkpoint_path={tmp_path / 'c'}", "--keep_best"]
    elif name == "sim":
        sequence_data.write(tmp_path / "rows", 20 * 32)
        keys = ("total_loss", "test_loss")
        flags = [f"--dataset_dir={tmp_path / 'rows'}", "--epochs=1", "--affinity=disabled"]
        flags += ["--print_freq=1", "--long_seq_length=7", "--gsu_top_k=3"]
    elif name == "ncf":
        tastes.write(tmp_path / "rows")
        keys = ("loss", "test_loss")
        flags = [f"--data={tmp_path / 'rows'}", "-e=2", "--print_freq=1"]
        flags += [f"--checkpoint_dir={tmp_path / 'c'}", "--topk=3"]
    first, second = tmp_path / "first", tmp_path / "second"
    assert module.main(["x", *flags, f"--run_dir={first}"]) == 0
    assert module.main(["x", "--flagfile", str(first / "flags"), f"--run_dir={second}"]) == 0
    losses = losses_of(first, *keys)
    assert len(losses) > 10
    assert losses_of(second, *keys) == losses
    first_notes, second_notes = (
        [text for text in messages(folder) if text.startswith("note: ") and "moved" not in text]
        for folder in (first, second)
    )
    assert first_notes == second_notes and "DLL " not in capsys.readouterr().out
    assert (second / "flags").read_text().replace("second", "first") == (
        first / "flags"
    ).read_text()
