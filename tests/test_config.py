import ast
import dataclasses
import json
import re

import pytest

import config as configuration
from config import Config, parse, parse_embedding_dims, usage
from dcnv2 import DEFAULTS as DCNV2_DEFAULTS

PATH = "--dataset_path=data"


def read(*flags, **kwargs):
    return parse(["dlrm.py", PATH, *flags], "dlrm", **kwargs)


def test_defaults_are_those_of_the_published_recipe():
    flat = read().flat()
    published = {
        "mode": "train",
        "amp": False,
        "xla": False,
        "batch_size": 65536,
        "valid_batch_size": 65536,
        "epochs": 1,
        "optimizer": "sgd",
        "evals_per_epoch": 1,
        "max_steps": -1,
        "restore_checkpoint_path": None,
        "save_checkpoint_path": None,
        "run_eagerly": False,
        "print_freq": 1000,
        "embedding_dim": "128",
        "bottom_mlp_dims": (512, 256, 128),
        "top_mlp_dims": (1024, 1024, 512, 256, 1),
        "learning_rate": 24.0,
    }
    assert {name: flat[name] for name in published} == published


def test_values_are_read_and_remembered_as_given():
    config = read("--batch_size", "128", "--top_mlp_dims=8,1", "--shuffle", "--amp=true")
    assert config.run.batch_size == 128
    assert config.model.top_mlp_dims == (8, 1)
    assert config.data.shuffle and config.run.amp
    assert {"batch_size", "top_mlp_dims", "shuffle", "amp", "dataset_path"} == config.given


def test_a_recipe_changes_defaults_and_the_command_line_wins():
    config = read("--learning_rate=3", defaults=DCNV2_DEFAULTS)
    assert config.optimizer.optimizer == "adam"
    assert config.model.interaction == "cross"
    assert config.optimizer.learning_rate == 3


def test_defaults_of_flags_that_do_not_exist():
    with pytest.raises(ValueError, match="flags that do not exist: learningrate"):
        read(defaults={"learningrate": 1})


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--batchsize=3"], "batchsize.*see --help"),
        (["--batch_size=many"], "batch_size.*many.*see --help"),
        (["--mode=fly"], "mode.*fly.*see --help"),
        (["--batch_size=0"], "--batch_size must be at least 1, got 0"),
        (["--learning_rate=-1"], "--learning_rate must be at least 0, got -1"),
        (["--learning_rate=nan"], "--learning_rate must be at least 0, got nan"),
        (["--top_mlp_dims=8,x,1"], "--top_mlp_dims takes integers separated by commas.*8,x,1"),
        (["--bottom_mlp_dims=8,0"], "--bottom_mlp_dims must be at least 1, got 0"),
        (["--top_mlp_dims=8,2"], "--top_mlp_dims must end with 1.*got 8,2"),
        (["--top_mlp_dims="], "--top_mlp_dims must end with 1.*got nothing"),
        (["--top_mlp_dims", "8,", "1"], "'1' is no flag.*without spaces"),
        (["--dataset_path="], "--dataset_path is missing.*--dataset_type synthetic"),
        (["--mode=eval"], "--mode eval needs a trained model.*--restore_checkpoint_path"),
        (
            ["--mode=eval", "--restore_checkpoint_path=a", "--save_checkpoint_path=b"],
            "--save_checkpoint_path is for --mode train, got --mode eval",
        ),
        (["--max_steps=0"], "--max_steps must be -1 .no limit. or at least 1, got 0"),
        (["--auc_threshold=1.5"], "--auc_threshold is an AUC in .0, 1., got 1.5"),
        (["--auc_threshold=0.8", "--evals_per_epoch=0"], "with it, set --evals_per_epoch"),
        (["--num_cross_layers=2"], "--num_cross_layers is only read with --interaction cross: add"),
        (["--loss_scale=8"], "--loss_scale is only read with --amp"),
        (["--synthetic_dataset_alpha=1"], "only read with --dataset_type synthetic"),
        (["--shuffle", "--dataset_type=synthetic"], "--shuffle is only read with .*tf_raw"),
        (
            ["--mode=eval", "--restore_checkpoint_path=a", "--max_steps=3"],
            "--max_steps is only read with --mode train or inference",
        ),
        (["--beta2=1"], "--beta2 must be below 1, got 1"),
    ],
)
def test_bad_flags(flags, message):
    with pytest.raises(ValueError, match=message):
        read(*flags)


def test_synthetic_rows_need_no_path_unless_they_imitate_a_data_set():
    assert parse(["x", "--dataset_type=synthetic"], "dlrm").data.dataset_path is None
    with pytest.raises(ValueError, match="--dataset_path is missing"):
        parse(["x", "--dataset_type=synthetic", "--synthetic_dataset_use_feature_spec"], "dlrm")


def test_flags_that_need_another_exist():
    names = set(read().flat())
    for name, needed, _ in configuration._NEEDS:
        assert name in names
        assert needed.split()[0].removeprefix("--") in names


def test_replace_checks_again():
    with pytest.raises(ValueError, match="must end with 1"):
        read().replace(top_mlp_dims=(3,))
    assert read().replace(seed=5, epochs=2).run.seed == 5


def test_help_names_every_flag_with_the_recipes_default():
    text = usage(DCNV2_DEFAULTS)
    for name in read().flat():
        assert f"--{name}" in text
    assert "--optimizer sgd|adagrad|adam" in text
    assert re.search(r"optimizer of the dense weights \(default: adam\)", text)


def test_every_flag_is_read_by_something(root):
    """A flag that nothing reads is a bug: somewhere an attribute of its name is taken."""
    read_names = set()
    for path in [*root.glob("*.py"), *(root / "runtime").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                read_names.add(node.attr)
    flags = {
        field.name
        for section in configuration.SECTIONS.values()
        for field in dataclasses.fields(section)
    }
    assert flags - read_names == set()


@pytest.mark.parametrize(
    ("text", "dims"), [("16", (16, 16, 16)), ("4,8,16", (4, 8, 16)), ("4, 8, 16", (4, 8, 16))]
)
def test_embedding_dims(text, dims):
    assert parse_embedding_dims(text, 3) == dims


def test_embedding_dims_from_a_file(tmp_path):
    file = tmp_path / "dims.json"
    file.write_text(json.dumps([1, 2, 3]))
    assert read(f"--embedding_dim={file}").model.embedding_dim == "1,2,3"
    file.write_text("[1, 2")
    with pytest.raises(ValueError, match="not a JSON file"):
        read(f"--embedding_dim={file}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wide", "must be an integer, a list like 16,32 or a JSON file.*'wide'"),
        ("1,2", "lists 2 sizes, the data set has 3 categorical features"),
        ("0", "--embedding_dim must be at least 1, got 0"),
    ],
)
def test_bad_embedding_dims(text, message):
    with pytest.raises(ValueError, match=message):
        parse_embedding_dims(text, 3)


def test_config_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config("dlrm").run.epochs = 3
