"""`sim.py --mode recommend` compared with a full sort of the scores of `--mode predict`."""

import csv
import re

import numpy as np
import pytest

import main as entry
import sim
from dataloading.formats.sequence_tfrecord.writer import sequence_spec, writes_data_set
from tests import sequence_data
from tests.recipes.test_entry_scripts import runner
from tests.recipes.test_recommend import check_lines
from tests.vocabularies import write_encoder

TINY = (
    "--preset=terabyte",
    *("--global_batch_size=64", "--embedding_dim=4", "--stage_two_mlp_dims=8,4", "--lr=0.02"),
    *("--epochs=1", "--seed=1", "--affinity=disabled", "--model_type=din"),
)
ROWS, USERS, ITEMS = 150, sequence_data.USERS, sequence_data.ITEMS


run = runner(sim, "--dataset_dir", *TINY)


def samples():
    """Arrays of train and test, as `sequence_data.write` draws them."""
    rng = np.random.default_rng(0)
    return [sequence_data.draw(rng, ROWS) for _ in range(2)]


def last_rows():
    """User -> number of the last test sample."""
    return {int(user): row for row, user in enumerate(samples()[1][1][:, 0])}


def write_pairs(folder, spec):
    """A data set whose test split has all items with each user's last history."""
    test, last = samples()[1], last_rows()
    rows = np.repeat([last[user] for user in sorted(last)], ITEMS)
    arrays = [array[rows] for array in test]
    arrays[2] = np.tile(np.arange(1, ITEMS + 1), len(last))[:, None]
    arrays[3] = sequence_data.category_of(arrays[2])
    write_samples(folder, spec, arrays)


def write_samples(folder, spec, arrays):
    """Writes samples as a split 'test'."""
    features = spec.feature_spec
    user, target = spec.channel("user_features"), spec.channel("target_item_features")
    pairs = sequence_spec(
        label="label",
        user={name: features[name]["cardinality"] for name in user},
        target={name: features[name]["cardinality"] for name in target},
        positive=spec.channel("positive_history"),
        negative=spec.channel("negative_history"),
        history_length=sequence_data.LENGTH,
        prebatch_sizes={"test": 0},
    )
    with writes_data_set(folder, pairs) as writers:
        writers["test"].add(arrays)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns data set, checkpoints, and the score of each user (ascending) and item from 1."""
    folder = tmp_path_factory.mktemp("sequences")
    spec = sequence_data.write(folder / "rows", ROWS)
    items = [f"sku-{item}" for item in range(1, ITEMS + 1)]
    write_encoder(folder / "rows", 1, item_id_trgt=items)
    save = folder / "model"
    run(folder / "rows", folder / "run", f"--save_checkpoint_path={save}")
    write_pairs(folder / "pairs", spec)
    path, load = folder / "scores.npy", f"--load_checkpoint_path={save}"
    flags = (load, "--mode=predict", f"--predictions_path={path}")
    run(folder / "pairs", folder / "predict", *flags)
    return folder / "rows", save, np.load(path).reshape(-1, ITEMS)


def recommended(trained, folder, *flags):
    rows, save, _ = trained
    path = folder / "top.csv"
    common = (f"--load_checkpoint_path={save}", "--mode=recommend", f"--predictions_path={path}")
    run(rows, folder / "run", *common, *flags)
    return list(csv.DictReader(path.open()))


def seen_pairs():
    """Targets with label 1 and histories of both splits."""
    pairs = set()
    for label, user, target, _, history, *_ in samples():
        took = np.concatenate([history, target * label], axis=1)
        pairs |= {(int(u), int(i)) for u, row in zip(user[:, 0], took, strict=True) for i in row}
    return {(user, item) for user, item in pairs if item}


@pytest.mark.quick("flags1")
@pytest.mark.parametrize("flags", [("--top=5",), ("--top=60", "--exclude_seen")])
def test_full_sort(trained, tmp_path, flags, capsys):
    scores, users = trained[2], sorted(last_rows())
    seen = seen_pairs() if len(flags) > 1 else set()
    capsys.readouterr()
    lines = recommended(trained, tmp_path, *flags)
    assert ("fewer than 60 items left" in capsys.readouterr().out) == bool(seen)
    for user, row in zip(users, scores, strict=True):
        left = [item for item in range(ITEMS) if (user, item + 1) not in seen]
        item_of = {f"sku-{item + 1}": item for item in range(ITEMS)}
        lines = check_lines(lines, str(user), row, left, int(flags[0][6:]), item_of)
    assert lines == []


def test_rankings_of_held_out_items(trained, tmp_path):
    """Against the scores of each test sample of label 1 with all items."""
    rows, checkpoints, _ = trained
    flags = (f"--load_checkpoint_path={checkpoints}", "--topk=5")
    summary = run(
        *(rows, tmp_path / "eval", *flags, "--mode=eval", "--full_ranking", "--valid_negative=20")
    )
    (_, *train), test = samples()
    positive = np.flatnonzero(test[0][:, 0] == 1)
    scores = scores_of(trained, tmp_path, positive)
    took = np.concatenate([train[3], train[1] * samples()[0][0]], axis=1)
    seen = {(int(u), int(i)) for u, row in zip(train[0][:, 0], took, strict=True) for i in row}
    values = []
    for row, own in zip(positive, scores, strict=True):
        user, item = int(test[1][row, 0]), int(test[2][row, 0])
        others = [i for i in range(1, ITEMS + 1) if (user, i) not in seen and i != item]
        place = int((own[np.array(others) - 1] > own[item - 1]).sum())
        values.append([place < 5, (place < 5) / np.log2(place + 2), place < 5])
    for name, value in zip(("hr", "ndcg", "recall"), np.mean(values, axis=0), strict=True):
        assert summary[f"full_{name}@5"] == pytest.approx(value, abs=0.5 / len(positive)), name
        assert summary[f"{name}@5"] >= summary[f"full_{name}@5"] - 0.1
        assert 0 <= summary[f"{name}@5_popularity"] <= 1


def scores_of(trained, tmp_path, positive):
    """Returns the scores of all items for test samples, [samples, items]."""
    spec = sequence_data.write(tmp_path / "some", 3, splits=("train",))
    arrays = [np.repeat(array[positive], ITEMS, axis=0) for array in samples()[1]]
    arrays[2] = np.tile(np.arange(1, ITEMS + 1), len(positive))[:, None]
    arrays[3] = sequence_data.category_of(arrays[2])
    write_samples(tmp_path / "candidates", spec, arrays)
    path, load = tmp_path / "scores.npy", f"--load_checkpoint_path={trained[1]}"
    flags = (load, "--mode=predict", f"--predictions_path={path}")
    run(tmp_path / "candidates", tmp_path / "predict", *flags)
    return np.load(path).reshape(-1, ITEMS)


def test_users_of_a_file(trained, tmp_path, capsys):
    user = sorted(last_rows())[3]
    path = tmp_path / "users.csv"
    path.write_text(f"user_id\n{user}\n")
    lines = recommended(trained, tmp_path, f"--users={path}", "--top=1")
    best = int(trained[2][3].argmax()) + 1
    assert [(line["user"], line["item"]) for line in lines] == [(str(user), f"sku-{best}")]
    path.write_text(f"rank,user\n1,{user}\n")  # the columns that recommendations have
    assert recommended(trained, tmp_path, f"--users={path}", "--top=1") == lines
    path.write_text(f"user_id\n{user}\n0\n")
    flags = (f"--load_checkpoint_path={trained[1]}", "--mode=recommend", f"--users={path}")
    flags = (*flags, f"--predictions_path={tmp_path / 'b.csv'}")
    run(trained[0], tmp_path / "run", *flags, code=entry.USER_ERROR)
    message = r"--users .*: row 2: expected users with a sample in the split 'test', got 0; leave"
    assert re.search(message, capsys.readouterr().err)


def test_item_with_two_categories(trained, tmp_path):
    from dataloading.histories.catalogue import read_catalogue

    spec = sequence_data.write(tmp_path / "rows", 3, splits=("train",))
    arrays = [np.repeat(array[:1], 2, axis=0) for array in samples()[1]]
    arrays[3] = arrays[3] % sequence_data.CATEGORIES + np.array([[0], [1]])
    with writes_data_set(tmp_path / "other", spec) as writers:
        writers["train"].add(arrays)
    other = type(spec).from_yaml(tmp_path / "other/feature_spec.yaml")
    with pytest.raises(ValueError, match="has two values of 'cat_id_trgt': .*Prepare the data ag"):
        read_catalogue(other)
