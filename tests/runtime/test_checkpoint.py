import io
import json

import numpy as np
import pytest
import tensorflow as tf

from nn.embedding import weights as table_weights
from nn.embedding.weights import TableWeight
from runtime import checkpoint
from runtime.checkpoint import VariableWeight
from tests.tables import whole_table


def some_weights(fill=0.0, rows=5):
    table = tf.Variable(tf.fill([rows + 2, 3], fill))
    kernel = tf.Variable(tf.fill([2, 2], fill))
    return [
        VariableWeight("dense/mlp/kernel", kernel),
        whole_table("sparse/cat", rows, table, offset=2),
    ]


def test_weights_and_description_come_back(tmp_path, monkeypatch):
    monkeypatch.setattr(table_weights, "PIECE_BYTES", 24)  # two rows a piece
    old, new = some_weights(), some_weights(9.0)
    old[0].write(0, np.arange(4, dtype="f").reshape(2, 2))
    old[1].write(0, np.arange(15, dtype="f").reshape(5, 3))
    size = checkpoint.save(tmp_path / "a/model", old, {"recipe": "x"})
    assert size == 4 * 4 + 15 * 4
    assert checkpoint.describe(tmp_path / "a/model") == {"recipe": "x"}
    checkpoint.restore(tmp_path / "a/model", new)
    np.testing.assert_array_equal(new[0].read(0, 2), [[0, 1], [2, 3]])
    np.testing.assert_array_equal(new[1].read(0, 5), np.arange(15).reshape(5, 3))
    np.testing.assert_array_equal(new[1].local[0].variable.numpy()[:2], np.full([2, 3], 9.0))
    # Whole tables as plain .npy files, for whoever wants them.
    table = np.load(tmp_path / "a/model/sparse/cat.npy")
    np.testing.assert_array_equal(table, np.arange(15).reshape(5, 3))


def test_a_new_checkpoint_replaces_the_old_one(tmp_path):
    path = tmp_path / "model"
    checkpoint.save(path, some_weights(1.0), {"n": 1})
    checkpoint.save(path, some_weights(2.0), {"n": 2})
    assert checkpoint.describe(path) == {"n": 2}
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("name", ["sparse/../../escape", "sparse/a/b", "sparse/..", "sparse/ü %"])
def test_any_feature_name_is_one_file_in_the_folder(tmp_path, name):
    weight = VariableWeight(name, tf.Variable([1.0, 2.0]))
    checkpoint.save(tmp_path / "x/model", [weight], {})
    assert len(list((tmp_path / "x/model/sparse").iterdir())) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    weight.write(0, np.zeros(2, "f"))
    checkpoint.restore(tmp_path / "x/model", [weight])
    np.testing.assert_array_equal(weight.read(0, 2), [1, 2])


def test_a_failed_save_leaves_the_old_checkpoint(tmp_path):
    path = tmp_path / "model"
    checkpoint.save(path, some_weights(1.0), {"n": 1})

    class Full(TableWeight):
        def read(self, first, last, all_ranks=False):
            (staging,) = tmp_path.glob(".model.*")
            raise OSError(28, f"No space left in {staging}")

    broken = [whole_table("sparse/cat", 5, tf.Variable(tf.zeros([7, 3])), kind=Full)]
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(path, broken, {"n": 2})
    assert checkpoint.describe(path) == {"n": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["model"], "nothing half-written stays"
    checkpoint.restore(path, some_weights())


def test_a_full_disk_is_said_and_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "model"
    checkpoint.save(path, some_weights(1.0), {"n": 1})

    class FullDisk(io.FileIO):
        def write(self, data):
            raise OSError(28, "No space left on device")

    def opened(file, mode="r", **more):
        return FullDisk(file, mode) if str(file).endswith("cat.npy") else open(file, mode, **more)

    monkeypatch.setattr(checkpoint, "open", opened, raising=False)
    message = "--save_checkpoint_path .*model: No space left on device; the model was not saved"
    with pytest.raises(ValueError, match=message):
        checkpoint.save(path, some_weights(2.0), {"n": 2})
    monkeypatch.undo()
    assert checkpoint.describe(path) == {"n": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["model"], "nothing half-written stays"


def test_folders_beside_the_checkpoint_are_nobodys_business(tmp_path):
    for name in ("model.old", "model.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "keep").touch()
    for n in range(2):
        checkpoint.save(tmp_path / "model", some_weights(float(n)), {"n": n})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "model.old", "model.partial"]
    assert (tmp_path / "model.old/keep").exists() and (tmp_path / "model.partial/keep").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_not_saved(tmp_path, value):
    path = tmp_path / "model"
    checkpoint.save(path, some_weights(1.0), {"n": 1})
    with pytest.raises(checkpoint.NonFiniteWeight, match="dense/mlp/kernel"):
        checkpoint.save(path, some_weights(value), {"n": 2})
    assert checkpoint.describe(path) == {"n": 1}


def test_writability_is_known_before_training(tmp_path):
    checkpoint.check_writable(tmp_path / "new/model")
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="--save_checkpoint_path .* cannot be written"):
        checkpoint.check_writable(tmp_path / "file/model")
    with pytest.raises(ValueError, match="exists and is no checkpoint"):
        checkpoint.check_writable(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "new"]


def test_exchange_without_the_systems_help(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint.ctypes, "CDLL", lambda *a, **k: object())
    for n in range(2):
        checkpoint.save(tmp_path / "model", some_weights(float(n)), {"n": n})
    assert checkpoint.describe(tmp_path / "model") == {"n": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_is_no_checkpoint_is_not_overwritten(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/final.txt").write_text("years of work")
    with pytest.raises(ValueError, match="exists and is no checkpoint: it is left as it is"):
        checkpoint.save(tmp_path / "thesis", some_weights(), {})
    assert (tmp_path / "thesis/final.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: None, None),
        (lambda p: (p / "checkpoint.json").unlink(), "is no checkpoint: it has no checkpoint.json"),
        (lambda p: (p / "checkpoint.json").write_text("{"), "is damaged"),
        (lambda p: (p / "checkpoint.json").write_text("[]"), "has format None"),
        (lambda p: (p / "checkpoint.json").write_text('{"format": 1}'), "description is missing"),
        (lambda p: (p / "sparse/cat.npy").unlink(), "sparse/cat.npy is missing or damaged"),
        (lambda p: (p / "sparse/cat.npy").write_bytes(b"\x93NUMPY"), "missing or damaged"),
        (
            lambda p: np.save(p / "sparse/cat.npy", np.zeros([4, 3], "f")),
            r"is float32 \[4, 3\], the model needs float32 \[5, 3\]",
        ),
    ],
)
def test_damage_is_named(tmp_path, damage, message):
    path = tmp_path / "model"
    checkpoint.save(path, some_weights(1.0), {})
    damage(path)
    new = some_weights(7.0)
    if message is None:
        checkpoint.restore(path, new)
        return
    with pytest.raises(ValueError, match=message):
        checkpoint.restore(path, new)
    assert (new[0].read(0, 2) == 7).all(), "nothing may change before all is checked"


def test_truncated_file(tmp_path):
    path = tmp_path / "model"
    checkpoint.save(path, some_weights(1.0), {})
    file = path / "sparse/cat.npy"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(ValueError, match=r"sparse/cat.npy is missing or damaged"):
        checkpoint.restore(path, some_weights())


def test_another_model(tmp_path):
    path = tmp_path / "model"
    checkpoint.save(path, some_weights()[:1], {})
    with pytest.raises(ValueError, match=r"another model: it lacks \['sparse/cat'\]"):
        checkpoint.restore(path, some_weights())


def test_no_such_folder(tmp_path):
    with pytest.raises(ValueError, match="there is no such folder"):
        checkpoint.describe(tmp_path / "nowhere")


def test_other_format(tmp_path):
    path = tmp_path / "model"
    checkpoint.save(path, some_weights(), {})
    index = json.loads((path / "checkpoint.json").read_text())
    (path / "checkpoint.json").write_text(json.dumps({**index, "format": 99}))
    with pytest.raises(ValueError, match="has format 99, this version reads 1"):
        checkpoint.describe(path)
