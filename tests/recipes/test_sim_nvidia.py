"""`sim.py --variant nvidia` on data that is written as the original's documents describe it."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
import yaml

import main as entry
import sim
from preproc.amazon_books import parquet_to_tfrecord
from runtime.checkpoint import describe, resolve
from tests.recipes.test_entry_scripts import runner
from tests.recipes.test_sim import data_lines

USERS, ITEMS, CATEGORIES, LENGTH = 30, 40, 4, 12
ROWS = {"train": 200, "test": 100}
TINY = (
    *("--preset=terabyte", "--global_batch_size=64", "--embedding_dim=4", "--lr=0.01"),
    *("--stage_one_mlp_dims=8", "--stage_two_mlp_dims=8,4", "--aux_mlp_dims=8"),
    *("--long_seq_length=8", "--seed=1", "--affinity=single", "--noshuffle"),
    *("--print_freq=1", "--variant=nvidia"),
)
DIN = "--model_type=din"
COLUMNS = ("label", "user_id", "item_id_trgt", "cat_id_trgt")
HISTORIES = ("item_id_pos", "cat_id_pos", "item_id_neg", "cat_id_neg")


def samples(rows, seed):
    """Samples as lists of ids 1 to N, N included; histories have no padding."""
    rng = np.random.default_rng(seed)
    for row in range(rows):
        length = int(rng.integers(0, LENGTH + 1))
        target, *history = rng.integers(1, ITEMS + 1, 1 + 2 * length).tolist()
        if row == 0:
            target = ITEMS
        category = [1 + item % CATEGORIES for item in [target, *history]]
        user = USERS if row == 0 else int(rng.integers(1, USERS + 1))
        sides = (history[:length], category[1 : length + 1])
        sides += (history[length:], category[length + 1 :])
        yield (int(category[0] % 2), user, target, category[0], *sides)


def example(names, sample):
    """Returns a sample as a record."""
    lists = [value if isinstance(value, list) else [value] for value in sample]
    feature = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        for name, values in zip(names, lists, strict=True)
    }
    message = tf.train.Example(features=tf.train.Features(feature=feature))
    return message.SerializeToString()


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """TFRecords and the feature spec of the document: cardinality N, metadata empty."""
    folder = tmp_path_factory.mktemp("nvidia") / "records"
    folder.mkdir()
    sizes = {"user_id": USERS}
    for side in ("trgt", "pos", "neg"):
        sizes |= {f"item_id_{side}": ITEMS, f"cat_id_{side}": CATEGORIES}
    features = {
        name: {"cardinality": size, "dtype": "int64"}
        | ({"dimensions": [LENGTH]} if name in HISTORIES else {})
        for name, size in sizes.items()
    } | {"label": {"dtype": "bool"}}
    names = [*COLUMNS, *HISTORIES]
    sources = {}
    for seed, (split, rows) in enumerate(ROWS.items()):
        chunk = {"features": names, "files": [f"{split}.tfrecord"], "type": "tfrecord"}
        sources[split] = [chunk]
        with tf.io.TFRecordWriter(str(folder / f"{split}.tfrecord")) as writer:
            for sample in samples(rows, seed):
                writer.write(example(names, sample))
    spec = {
        "channel_spec": {
            "label": ["label"],
            "negative_history": list(HISTORIES[2:]),
            "positive_history": list(HISTORIES[:2]),
            "target_item_features": list(COLUMNS[2:]),
            "user_features": ["user_id"],
        },
        "feature_spec": features,
        "metadata": {},
        "source_spec": sources,
    }
    (folder / "feature_spec.yaml").write_text(yaml.safe_dump(spec))
    return folder


run = runner(sim, "--dataset_dir", *TINY)


@pytest.fixture(scope="module")
def trained(records, tmp_path_factory):
    """(folder of checkpoints, summary, folder of the run) of one epoch of SIM."""
    folder = tmp_path_factory.mktemp("trained")
    save = f"--save_checkpoint_path={folder / 'model'}"
    return folder / "model", run(records, folder / "run", "--epochs=1", save), folder / "run"


def test_parquet_as_documented(records, trained, tmp_path):
    """Equal losses of the rows as Parquet with metadata.json, converted."""
    source = tmp_path / "parquet"
    for seed, (split, rows) in enumerate(ROWS.items()):
        (source / split).mkdir(parents=True)
        columns = zip(*samples(rows, seed), strict=True)
        table = pa.table(dict(zip((*COLUMNS, *HISTORIES), map(list, columns), strict=True)))
        pq.write_table(table, source / split / "part.0.parquet")
    sizes = {"uid": USERS, "item": ITEMS, "cat": CATEGORIES}
    pairs = [{"name": name, "value": size} for name, size in sizes.items()]
    (source / "metadata.json").write_text(json.dumps({"cardinalities": pairs}))
    data = tmp_path / "records"
    flags = ["--amazon_dataset_path", str(source), "--tfrecord_output_dir", str(data)]
    assert parquet_to_tfrecord.main([*flags, "--max_seq_len", str(LENGTH)]) == 0
    summary = run(data, tmp_path / "run", "--epochs=1")
    for name in ("test_loss", "train_loss"):
        assert summary[name] == trained[1][name]


def test_step_keys(trained):
    """classification_loss is 0.5 (gsu + esu); total_loss is the sum of the two terms."""
    steps = [
        data for step, data in data_lines(trained[2]) if isinstance(step, list) and len(step) == 2
    ]
    assert len(steps) >= 4
    for data in steps:
        assert "gsu_loss" not in data
        total = data["classification_loss"] + data["dien_aux_loss"]
        assert data["total_loss"] == pytest.approx(total, rel=1e-5)


def test_step_keys_of_din(records, tmp_path, capsys):
    """Only total_loss; flags of other models are accepted with a note.

    --benchmark_steps is ignored without --benchmark, as in the original.
    """
    run(records, tmp_path, DIN, "--epochs=1", "--benchmark_steps=7")
    steps = [
        data for step, data in data_lines(tmp_path) if isinstance(step, list) and len(step) == 2
    ]
    assert all({"total_loss"} == {n for n in data if n.endswith("_loss")} for data in steps)
    flags = "--aux_mlp_dims, --benchmark_steps, --long_seq_length, --stage_one_mlp_dims"
    assert f"not used in this run (--mode train): {flags}" in capsys.readouterr().out


def test_variant_of_a_checkpoint(records, trained, tmp_path, capsys):
    """An evaluation has the checkpoint's variant, and refuses another one."""
    assert describe(resolve(trained[0])).description["model_flags"]["variant"] == "nvidia"
    load = (f"--load_checkpoint_path={trained[0]}", "--mode=eval")
    summary = run(records, tmp_path / "eval", *load)
    assert summary["test_auc"] == pytest.approx(trained[1]["test_auc"], abs=1e-6)
    run(records, tmp_path / "paper", *load, "--variant=paper", code=entry.USER_ERROR)
    assert "--variant paper differs from the checkpoint's nvidia" in capsys.readouterr().err


def test_continued_training(records, tmp_path, capsys):
    """--load_checkpoint_path continues weights, optimizer and epoch, from another folder."""
    saves = [f"--save_checkpoint_path={tmp_path / name}" for name in ("a", "b", "whole")]
    load = (DIN, f"--load_checkpoint_path={tmp_path / 'a'}")
    assert run(records, tmp_path / "first", *load, "--epochs=1", saves[0])["steps"] == 4
    text = f"{tmp_path / 'a'} has no checkpoint: a new training starts"
    assert text in capsys.readouterr().out
    parts = run(records, tmp_path / "parts", *load, "--epochs=2", saves[1])
    assert "resumed" in capsys.readouterr().out
    whole = run(records, tmp_path / "whole", DIN, "--epochs=2", saves[2])
    assert (parts["steps"], parts["test_loss"]) == (whole["steps"], whole["test_loss"])
    # A checkpoint after every epoch, here of the steps 4 and 8; none where nothing is to be saved.
    run(records, tmp_path / "unsaved", *load, "--epochs=2")
    for name, count in (("a", 1), ("b", 1), ("whole", 2)):
        assert len(list((tmp_path / name).glob("0*-step-*"))) == count
    assert run(records, tmp_path / "again", *load, "--epochs=2", saves[0])["steps"] == 8


def test_two_starts(records, tmp_path, capsys):
    flags = ("--load_checkpoint_path=a", "--resume=b")
    run(records, tmp_path, *flags, code=entry.USER_ERROR)
    assert "--load_checkpoint_path and --resume both name the start" in capsys.readouterr().err


def test_benchmark_of_all_steps(records, tmp_path):
    flags = ("--benchmark", "--benchmark_steps=0", "--benchmark_warmup_steps=1", "--epochs=2")
    assert run(records, tmp_path / "train", *flags, DIN)["steps"] == 8
    flags = ("--mode=inference", *flags[:3], DIN)
    assert run(records, tmp_path / "inference", *flags)["num_measurements"] == 1


def test_lazy_adam(records, tmp_path):
    """Optimizers of dense weights and tables: adam moves all rows, and the decay is independent."""
    from distributed_embeddings.collectives import World

    from config.command_line import parse
    from dataloading.spec.feature_spec import FeatureSpec
    from recipes.registry import SIM
    from training import device_setup

    spec = FeatureSpec.from_yaml(records / "feature_spec.yaml")
    kinds = {}
    for name in ("adam", "lazy_adam", "sgd"):
        flags = ["sim.py", f"--dataset_dir={records}", *TINY, f"--optimizer={name}"]
        config = parse(flags, SIM).replace(weight_decay=0.1)
        recipe = SIM.family.build(config, spec, World(), device_setup.set_up(config.device))
        kinds[name] = [type(optimizer).__name__ for optimizer in recipe.optimizers]
        assert all(optimizer.independent_decay for optimizer in recipe.optimizers)
    assert kinds == {
        "adam": ["Adam", "Adam"],
        "lazy_adam": ["LazyAdam", "LazyAdam"],
        "sgd": ["SGD", "SGD"],
    }
