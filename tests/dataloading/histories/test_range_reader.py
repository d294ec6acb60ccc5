"""Samples as ranges of events: by hand, by ranks, and what is refused."""

import copy

import numpy as np
import pytest

from dataloading import describe
from dataloading.histories.catalogue import last_samples, read_catalogue
from dataloading.histories.dataset import SequenceDataset, blocks, count_samples, row_reader
from dataloading.keys.kept_columns import history_columns
from dataloading.spec.feature_spec import FeatureSpec
from tests.preproc.amazon_books.amazon_reference import negative

EVENTS = [3, 5, 3, 8, 9, 1]  # of user 1 the first four; item i is of category 10 + i
ROWS = [[1, 5, 15], [1, 8, 18], [2, 1, 11]]
RANGES = [[0, 1], [0, 3], [4, 5]]
CONTENT = {
    "feature_spec": {
        "label": {"dtype": "bool"},
        "user": {"dtype": "int32", "cardinality": 3},
        "item": {"dtype": "int32", "cardinality": 10},
        "cat": {"dtype": "int32", "cardinality": 20},
        **{
            f"{name}_{kind}": {"dtype": "int32", "cardinality": size, "dimensions": [2]}
            for kind in ("pos", "neg")
            for name, size in (("item", 10), ("cat", 20))
        },
    },
    "source_spec": {
        "train": [
            {"type": "split_binary", "features": ["user", "item", "cat"], "files": ["rows.bin"]},
            {
                "type": "ragged_binary",
                "features": ["item_pos", "cat_pos"],
                "files": ["ranges.bin", "item.bin", "cat.bin"],
            },
        ]
    },
    "channel_spec": {
        "label": ["label"],
        "user_features": ["user"],
        "target_item_features": ["item", "cat"],
        "positive_history": ["item_pos", "cat_pos"],
        "negative_history": ["item_neg", "cat_neg"],
    },
    "metadata": {"negatives": {"distribution": "uniform", "seed": 7}},
}


def write(folder, change=lambda content: None, **files):
    """Writes the data set above; files: name -> another content."""
    dtypes = {"ranges": np.int64, "label": np.uint8}
    arrays = {"item": EVENTS, "cat": [10 + i for i in EVENTS], "rows": ROWS, "ranges": RANGES}
    for name, values in (arrays | files).items():
        np.array(values, dtypes.get(name, np.int32)).tofile(folder / f"{name}.bin")
    content = copy.deepcopy(CONTENT)
    change(content)
    return FeatureSpec.from_dict(content, folder)


def batch_of(spec, **options):
    (batch,) = SequenceDataset(spec, "train", 100, **options).dataset()
    return batch


def drawn(user, before, label, step, positive, seed=7):
    """Negative item and its category, which is 0 if the item is in no event."""
    item = negative((seed, user, before, label, step), positive, 9)
    return item, 10 + item if item in EVENTS else 0


def test_by_hand(tmp_path, implementation):
    batch = batch_of(write(tmp_path))
    user, target, positive, negatives = batch.inputs
    assert batch.labels.numpy().ravel().tolist() == [1, 0] * 3
    assert user[0].numpy().ravel().tolist() == [1, 1, 1, 1, 2, 2]
    assert target[0].numpy().ravel()[::2].tolist() == [5, 8, 1]
    missed = [drawn(1, 1, 0, 0, 5), drawn(1, 3, 0, 0, 8), drawn(2, 1, 0, 0, 1)]
    assert np.concatenate(target, 1)[1::2].tolist() == [list(pair) for pair in missed]
    histories = [[[0, 3], [5, 3], [0, 9]], [[0, 13], [15, 13], [0, 19]]]
    for feature, expected in zip(positive, histories, strict=True):
        assert feature.numpy()[::2].tolist() == feature.numpy()[1::2].tolist() == expected
    expected = [
        [(0, 0) if not item else drawn(u, n, label, 2 - i, item) for i, item in enumerate(row)]
        for u, n, row in zip((1, 1, 2), (1, 3, 1), histories[0], strict=True)
        for label in (1, 0)
    ]
    assert np.stack(negatives, 2).tolist() == [[list(pair) for pair in row] for row in expected]


def test_negatives_of_each_pass(tmp_path):
    """A pass after the first one has a seed of its own; the rest of its samples stays."""
    spec = write(tmp_path)
    options = {"redraws_negatives": True, "shuffle": True}

    def samples(epoch, **options):
        """Label, user, target and its category, history, and negative history, sorted."""
        batches = [*SequenceDataset(spec, "train", 100, **options).dataset(epoch)]
        rows = [
            (label, user, *target, *item, *negatives)
            for batch in batches
            for label, user, *target, item, negatives in zip(
                *(batch.labels.numpy().ravel().tolist(), batch.inputs.user[0].numpy()[:, 0]),
                *(feature.numpy()[:, 0] for feature in batch.inputs.target),
                *(batch.inputs.positive[0].numpy(), batch.inputs.negative[0].numpy()),
                strict=True,
            )
        ]
        return sorted(tuple(map(int, row)) for row in rows)

    first, second = (samples(epoch, **options) for epoch in (0, 1))
    assert first == samples(0) == samples(1, shuffle=True)
    seed = (7 + 0xD1342543DE82EF95) % 2**64
    targets = sorted(
        (u, *drawn(u, n, 0, 0, t, seed)) for u, n, t in ((1, 1, 5), (1, 3, 8), (2, 1, 1))
    )
    assert [row[1:4] for row in second[:3]] == targets
    assert [row[:6] for row in first[3:]] == [row[:6] for row in second[3:]]  # of label 1
    assert second[3][6:] == (0, drawn(1, 1, 1, 1, 3, seed)[0]) != first[3][6:]
    assert samples(0, repeat_count=2, **options) == sorted(first + second)


def test_stored_labels(tmp_path):
    """Rows with labels of their own: no target is drawn, negative histories are."""

    def change(content):
        chunk = {"type": "split_binary", "features": ["label"], "files": ["label.bin"]}
        content["source_spec"]["train"].append(chunk)

    spec = write(tmp_path, change, label=[1, 0, 1])
    batch = batch_of(spec)
    assert batch.labels.numpy().ravel().tolist() == [1, 0, 1]
    assert batch.inputs.target[0].numpy().ravel().tolist() == [5, 8, 1]
    assert batch.inputs.negative[0].numpy()[1, 1] == drawn(1, 3, 0, 1, 3)[0]
    assert count_samples(spec, "train") == 3
    assert read_catalogue(spec).keys().tolist() == [13, 15, 21, 29]  # without 18


def test_rows_to_predict(tmp_path):
    """Stored rows, without negatives or anything that these need."""

    def change(content):
        del content["channel_spec"]["label"], content["channel_spec"]["negative_history"]
        del content["metadata"]
        for name in ("label", "item_neg", "cat_neg"):
            del content["feature_spec"][name]

    for spec in (write(tmp_path), write(tmp_path, change)):
        batch = batch_of(spec, with_labels=False, with_negatives=False)
        assert batch.labels is None and batch.inputs.negative == ()
        assert batch.inputs.target[0].numpy().ravel().tolist() == [5, 8, 1]
        assert batch.inputs.positive[1].numpy().tolist() == [[0, 13], [15, 13], [0, 19]]


def test_kept_columns_and_catalogue(tmp_path):
    spec = write(tmp_path)
    columns = history_columns(spec, "train", ["user", "item_pos"], ["item_pos"], {})
    user, history = columns.read(0, 3)
    assert user.to_pylist() == [1, 1, 2] and history.to_pylist() == [[3], [5, 3], [9]]
    with pytest.raises(ValueError, match="item_neg"):
        history_columns(spec, "train", ["item_neg"], [], {})
    assert last_samples(spec, "train").tolist() == [-1, 1, 2]
    catalogue = read_catalogue(spec)
    assert catalogue.ids.tolist() == [1, 3, 5, 8, 9]
    assert catalogue.features[1].tolist() == [11, 13, 15, 18, 19]
    assert catalogue.keys().tolist() == [13, 15, 18, 21, 29]


def test_blocks(tmp_path):
    spec = write(tmp_path, rows=ROWS * 20, ranges=RANGES * 20)
    assert count_samples(spec, "train") == 120
    (read,) = blocks(spec, "train", ["label", "item"])
    assert read[0].ravel().tolist() == [1, 0] * 60
    assert read[1].ravel()[::2].tolist() == [5, 8, 1] * 20


def test_wide_ids(tmp_path):
    """int64 events are read as they are."""

    def change(content):
        for name in ("item_pos", "item_neg"):
            content["feature_spec"][name]["dtype"] = "int64"

    spec = write(tmp_path)
    expected = batch_of(spec).inputs
    spec = write(tmp_path, change)
    np.array(EVENTS, np.int64).tofile(tmp_path / "item.bin")
    result = batch_of(spec).inputs
    assert result.positive[0].dtype == result.negative[0].dtype == "int64"
    for one, other in zip(expected.negative, result.negative, strict=True):
        assert one.numpy().tolist() == other.numpy().tolist()


def without_users(content):
    content["channel_spec"]["user_features"] = []


def half_a_history(content):
    chunks = content["source_spec"]["train"]
    chunks[0]["features"].append("cat_pos")
    chunks[1].update(features=["item_pos"], files=["ranges.bin", "item.bin"])


@pytest.mark.parametrize(
    ("change", "files", "message"),
    [
        (None, {"item": [3, 0, 3, 8, 9, 1]}, "'item.bin': feature 'item_pos': found 0 in event 1"),
        (None, {"cat": [20, 15, 13, 18, 19, 11]}, "found 20 in event 0 .*1, 20"),
        (None, {"cat": [13, 15, 14, 18, 19, 11]}, "item 3 has two values of 'cat_pos': 13 and 14"),
        (None, {"cat": [13]}, "have 6, 1 values; expected equally many"),
        (None, {"ranges": RANGES[:2]}, "chunk 0 .* has 3 rows and chunk 1 .* has 2"),
        (without_users, {}, "expected a feature of the user"),
        (half_a_history, {}, "ragged_binary store item_pos; a sequence model reads one, of"),
        (lambda c: c["metadata"].clear(), {}, "negatives is None"),
        (lambda c: c["source_spec"]["train"][1]["files"].pop(), {}, "2 files of 2 features"),
    ],
)
def test_refused(tmp_path, change, files, message):
    with pytest.raises(ValueError, match=message):
        SequenceDataset(write(tmp_path, change or (lambda content: None), **files), "train", 2)


@pytest.mark.parametrize("bad", [[-1, 1], [2, 1], [0, 7]])
def test_invalid_range(tmp_path, bad):
    loader = SequenceDataset(write(tmp_path, ranges=[[0, 1], bad, [4, 5]]), "train", 100)
    with pytest.raises(Exception, match="range"):
        next(iter(loader.dataset()))
    assert f"found the range {bad[0]} to {bad[1]} in row 1" in loader.failure


def test_prebatches(tmp_path):
    with pytest.raises(ValueError, match="--prebatch_train_size is 8"):
        SequenceDataset(write(tmp_path), "train", 2, prebatch_size=8)
    assert row_reader(write(tmp_path), "train", ["item"]).num_samples == 3


def test_described(tmp_path, capsys):
    write(tmp_path).to_yaml(tmp_path / "feature_spec.yaml")
    assert describe.main([str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "train: 3 rows" in output and "item_pos, cat_pos: ranges of 6 events" in output
    np.array([[0, 1], [0, 9], [4, 5]]).tofile(tmp_path / "ranges.bin")
    assert describe.main([str(tmp_path)]) == describe.BROKEN
    assert "found the range 0 to 9 in row 1" in capsys.readouterr().out
