"""Validation samples of trainings that stop early: a split, or held-out training samples."""

import pytest

import dcnv2
import dlrm
from config.command_line import parse
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.synthetic.dataset import write_dataset
from dataloading.synthetic.rows import synthetic_spec
from recipes.ranking.data import held_out, held_out_samples, note_held_out
from recipes.registry import BY_NAME
from runtime import checkpoint
from tests.recipes.test_entry_scripts import in_process, lines
from tests.tables import check_same_arrays

SHAPE = ("--embedding_dim=4", "--bottom_mlp_dims=8,4", "--top_mlp_dims=8,1")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Data sets by the splits that they have; train has 1,005 samples."""
    folder = tmp_path_factory.mktemp("splits")
    rows = {"train": 1005, "validation": 300, "test": 200}
    for name in ("train", "train test", "train validation test"):
        spec = synthetic_spec([10, 20], num_numerical=2)
        write_dataset(folder / name, spec, {split: rows[split] for split in name.split()})
    return folder


def parsed(*flags, recipe="dlrm"):
    return parse(["x", "--dataset_path=d", *flags], BY_NAME[recipe])


def spec_of(folder):
    return FeatureSpec.from_yaml(folder / "feature_spec.yaml")


@pytest.mark.parametrize(
    ("splits", "flags", "expected"),
    [
        ("train", "", 100),
        ("train test", "", 100),
        ("train validation test", "", 0),
        ("train validation test", "--eval_mapping=validation", 0),
        ("train validation test", "--eval_mapping=test", None),
        ("train test", "--eval_mapping=test", None),
        ("train test", "--eval_mapping=train", None),
        ("train test", "--dataset_type=split_tfrecords", None),
    ],
)
def test_validation_samples(data, splits, flags, expected):
    config, spec = parsed(*flags.split()), spec_of(data / splits)
    count = held_out(config, spec)
    assert (None if count is None else count(1005)) == expected
    samples = held_out_samples(config, spec)
    assert samples is None and note_held_out(config, samples, "x") == ""
    stopping = parsed(*flags.split(), "--early_stopping=2")
    samples = held_out_samples(stopping, spec)
    assert samples == (range(905, 1005) if expected else None)


def test_histories_hold_out_nothing(data):
    config, family = parsed("--early_stopping=2", recipe="sim"), BY_NAME["sim"].family
    assert family.preset_facts(config, spec_of(data / "train test")).get("held_out") is None
    assert (
        family.preset_facts(config, spec_of(data / "train validation test"))["held_out"](1005) == 0
    )


def test_way_out():
    samples = range(905, 1005)
    note = note_held_out(parsed("--early_stopping=2"), samples, "split it")
    assert "the last 100 of 1,005 rows of train are held out" in note
    assert "without --early_stopping all are trained on. For a validation split split it" in note
    assert "with --nokeep_best all are" in note_held_out(parsed(), samples, "split it")


def messages(run_dir):
    return [x["data"]["message"] for x in lines(run_dir / "log.json") if x.get("step") == "MESSAGE"]


@pytest.mark.parametrize("recipe", [dlrm, pytest.param(dcnv2, marks=pytest.mark.long)])
def test_default_training(data, tmp_path, recipe):
    """Without a validation split the last samples of train are evaluated, and no test sample."""
    flags = (f"--dataset_path={data / 'train test'}", "--seed=1", *SHAPE, "--batch_size=128")
    code, summary = in_process(tmp_path / "a", *flags, "--max_steps=9", recipe=recipe)
    assert code == 0 and "best_log_loss" in summary
    text = "\n".join(messages(tmp_path / "a"))
    assert "training_rows 905  evaluation_rows 100 (validation)" in text
    assert text.count("held out to stop early") == 1
    assert ": no checkpoint without --save_checkpoint_path" in text
    code, summary = in_process(tmp_path / "b", *flags, "--max_steps=9", "--nokeep_best")
    assert code == 0 and "best_auc" in summary
    text = "\n".join(messages(tmp_path / "b"))
    assert "training_rows 1,005  evaluation_rows 200 (test)" in text and "held out" not in text


def test_default_training_with_a_split(data, tmp_path):
    flags = (f"--dataset_path={data / 'train validation test'}", "--seed=1", *SHAPE, "--epochs=9")
    saved = f"--save_checkpoint_path={tmp_path / 'm'}"
    code, summary = in_process(tmp_path / "run", *flags, saved)
    assert code == 0
    best = checkpoint.Folder(tmp_path / "m").best_of_step(summary["best_log_loss_step"])
    assert best is not None
    text = "\n".join(messages(tmp_path / "run"))
    assert "evaluation_rows 300" in text and "held" not in text
    assert f": checkpoint {best}" in text
    threshold = in_process(tmp_path / "auc", *flags, "--auc_threshold=0.1")
    assert threshold[1]["steps"] < summary["steps"] and "best_auc" in threshold[1]


def test_resumed_training(data, tmp_path):
    """It holds the same samples out, within an epoch and without evaluations."""
    flags = [f"--dataset_path={data / 'train'}", "--seed=1", *SHAPE, "--batch_size=64"]
    saved = [f"--save_checkpoint_path={tmp_path / name}" for name in ("one", "two")]
    code, one = in_process(tmp_path / "a", *flags, saved[0], "--epochs=3")
    assert code == 0
    assert (
        in_process(tmp_path / "b", *flags, saved[1], "--epochs=3", "--checkpoint_every=20")[0] == 0
    )
    (cut,) = (tmp_path / "two").glob("*-step-40")
    resumed = in_process(tmp_path / "c", f"--resume={cut}")[1]
    assert resumed["log_loss"] == one["log_loss"]
    check_same_arrays(tmp_path / "one", tmp_path / "two")
    more = in_process(
        tmp_path / "d", saved[1], "--resume=auto", "--epochs=4", "--evals_per_epoch=0"
    )
    assert more[0] == 0 and more[1]["steps"] > one["steps"]
