"""Tables, requests and vectors of Merlin's HPS."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from deployment.artifacts.onnx_model import dense_to_onnx
from deployment.serving import interface as interfaces
from deployment.serving.dense import open_session
from deployment.serving.hps_keys import answer_tensors, fused, keys_of
from deployment.serving.interface import (
    Interface,
    ServedFeature,
    ServedLookup,
    ServedTable,
    ServedTensor,
)
from deployment.triton.config_pbtxt import GPU, Instances
from deployment.triton.hps import hps_files
from deployment.triton.hps.dense_part import DenseAfterHps
from tests.deployment.artifacts.saved_tables import save_tables, sizes
from tests.deployment.serving.test_triton_model import asked, said, started, triton_model  # noqa: F401
from tests.deployment.triton.hps_stand_in import HpsStandIn

RNG = np.random.default_rng(11)
VALUES = {
    "user": RNG.normal(size=(5, 2)).astype(np.float32),
    "item": RNG.normal(size=(130, 3)).astype(np.float32),
    "tags": RNG.normal(size=(7, 2)).astype(np.float32),
}

# Two lookups of one table that do not follow each other, sums, vectors side by side, and padding.
INTERFACE = Interface(
    recipe="sim",
    inputs=(
        ServedTensor("ids", "int32", (5,)),
        ServedTensor("history", "int64", (1, 4)),
        ServedTensor("age", "float32", (1,)),
    ),
    features=(
        ServedFeature("user", "ids", 0, 1, 5, False),
        ServedFeature("tags", "ids", 1, 3, 7, True),
        ServedFeature("item", "ids", 4, 1, 130, False),
        ServedFeature("history", "history", 0, 4, 130, False),
        ServedFeature("age", "age", 0, 1, None, False),
    ),
    lookups=(
        ServedLookup("item", "ids", 4, 1, None),
        ServedLookup("tags", "ids", 1, 3, "sum"),
        ServedLookup("item", "history", 0, 4, None),
        ServedLookup("user", "ids", 0, 1, "sum"),
    ),
    tables=tuple(
        ServedTable(name, *values.shape, "float32", "", None) for name, values in VALUES.items()
    ),
    dense_inputs=("age",),
    max_batch_size=8,
)
ARRAYS = {
    "ids": np.array([[4, 6, -1, -1, 129], [0, 0, 1, 1, 0]], np.int32),
    "history": np.array([[[0, 1, 2, 128]], [[5, 5, 5, 5]]], np.int64),
    "age": np.array([[1], [2]], np.float32),
}


def expected(row: int) -> np.ndarray:
    """The embeddings of a row of ARRAYS, id by id."""
    user, *tags, item = ARRAYS["ids"][row]
    tags = sum((VALUES["tags"][tag] for tag in tags if tag >= 0), np.zeros(2, np.float32))
    history = [VALUES["item"][i] for i in ARRAYS["history"][row].ravel()]
    return np.concatenate([VALUES["item"][item], tags, *history, VALUES["user"][user]])


def write_entry(repository, model: str, tables_folder: str, cache_share: float = 0.25) -> None:
    """Writes the entry of a model for HPS into the folder of the model."""
    (repository / model).mkdir(exist_ok=True)
    instances = Instances(GPU, 3, (0, 1))
    entry = hps_files.ps_entry(model, INTERFACE, tables_folder, instances, cache_share)
    hps_files.write_json(entry, repository / model / hps_files.ENTRY_FILE)


@pytest.fixture
def stand_in(tmp_path):
    """HPS with the tables as they were written."""
    trained = save_tables(tmp_path / "checkpoints", VALUES)
    hps_files.write_tables(trained, sizes(VALUES), tmp_path)
    write_entry(tmp_path, "m_sparse", str(tmp_path))
    hps_files.update_ps_json(tmp_path)
    return HpsStandIn(tmp_path / "ps.json", "m_sparse")


def test_file_format(stand_in, tmp_path):
    """int64 keys, float32 vectors, no header; small tables are filled up with zeros."""
    keys = np.fromfile(tmp_path / "table_1" / "key", "<i8")
    vectors = np.fromfile(tmp_path / "table_1" / "emb_vector", "<f4").reshape(-1, 3)
    np.testing.assert_array_equal(keys, np.arange(131))
    np.testing.assert_array_equal(vectors[:130], VALUES["item"])
    assert not vectors[130:].any()
    assert (tmp_path / "table_0" / "key").stat().st_size == 100 * 8
    small = np.fromfile(tmp_path / "table_0" / "emb_vector", "<f4").reshape(-1, 2)
    assert small.shape == (100, 2) and not small[5:].any()
    np.testing.assert_array_equal(small[:5], VALUES["user"])


def entries(repository) -> dict:
    """Entries of a repository's `ps.json` by model."""
    models = json.loads((repository / "ps.json").read_text())["models"]
    result = {entry["model"]: entry for entry in models}
    assert len(result) == len(models)
    return result


def test_shared_ps_json(tmp_path):
    """Updates replace an entry, drop that of a removed model, and keep foreign content."""
    hps_files.update_ps_json(tmp_path)
    assert list(tmp_path.iterdir()) == [], "no model of HPS, no file"
    for model in ("b", "a"):
        write_entry(tmp_path, model, f"/models/{model}/1")
        hps_files.update_ps_json(tmp_path)
    assert list(entries(tmp_path)) == ["a", "b"]
    content = json.loads((tmp_path / "ps.json").read_text())
    assert content["supportlonglong"] is True
    theirs = {"model": "c", "sparse_files": ["/elsewhere/c/1/wdl.model"]}
    content["models"].insert(0, theirs)
    content["volatile_db"] = {"type": "disabled"}
    (tmp_path / "ps.json").write_text(json.dumps(content))
    write_entry(tmp_path, "a", "/served/a/1", cache_share=0.75)
    shutil.rmtree(tmp_path / "b")
    hps_files.update_ps_json(tmp_path)
    result = entries(tmp_path)
    assert list(result) == ["c", "a"] and result["c"] == theirs
    assert result["a"]["gpucacheper"] == 0.75
    assert result["a"]["sparse_files"][0] == "/served/a/1/table_0"
    assert json.loads((tmp_path / "ps.json").read_text())["volatile_db"] == {"type": "disabled"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "ps.json"]


def test_concurrent_deployments(tmp_path):
    repository = tmp_path / "repository"
    repository.mkdir()

    def deployed(number: int) -> None:
        for model in (f"m{number}", f"n{number}"):
            write_entry(tmp_path, model, f"/models/{model}/1")
            (tmp_path / model).rename(repository / model)  # in one step, as for all models
            hps_files.update_ps_json(repository)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(deployed, range(8)))
    assert sorted(entries(repository)) == sorted(f"{name}{n}" for name in "mn" for n in range(8))


@pytest.mark.parametrize("text", ["", '{"model": 1}', '{"models": [{"model": 1}]}', "\x80"])
def test_invalid_ps_json(text, tmp_path):
    (tmp_path / "ps.json").write_bytes(text.encode("latin1"))
    with pytest.raises(ValueError, match=r"ps\.json is not a configuration of HPS, .* move it aw"):
        hps_files.read_ps_json(tmp_path)


def test_fused_tables_of_different_widths():
    with pytest.raises(ValueError, match="expected tables of one width, got the widths 2, 3"):
        fused(INTERFACE)


def dense_part() -> SimpleNamespace:
    """A model with scores = embeddings + age, so that each embedding shows."""
    sizes = {"embeddings": INTERFACE.width, "age": 1}
    signature = [tf.TensorSpec([None, size], tf.float32, name) for name, size in sizes.items()]
    score = tf.function(lambda embeddings, age: embeddings + age, input_signature=signature)
    return SimpleNamespace(score=score, output="scores")


@pytest.mark.parametrize(("rows", "is_flat"), [([0, 1], False), ([1, 0, 0], True)])
def test_embeddings_of_requests(stand_in, tmp_path, rows, is_flat):
    """Runs keys and HPS, then orders and pools the vectors before the dense part."""
    dense_to_onnx(DenseAfterHps(dense_part(), INTERFACE, is_flat), tmp_path / "behind.onnx")
    arrays = {name: values[rows] for name, values in ARRAYS.items()}
    vectors = stand_in.lookup(*keys_of(INTERFACE, arrays))
    session = open_session(tmp_path / "behind.onnx")
    assert [node.name for node in session.get_inputs()] == ["OUTPUT0", "age"]
    age = arrays["age"].ravel() if is_flat else arrays["age"]
    (result,) = session.run(["scores"], {"OUTPUT0": vectors, "age": age})
    wanted = np.array([expected(row) + ARRAYS["age"][row] for row in rows])
    np.testing.assert_allclose(result, wanted, rtol=1e-6)


def test_keys_model(tmp_path, triton_model):  # noqa: F811
    """The bad request among three gets an error, each of the others its own keys."""
    folder = tmp_path / "1"
    folder.mkdir()
    interfaces.write(INTERFACE._replace(role="keys"), folder)
    model = started(triton_model, folder)
    bad = {**ARRAYS, "ids": ARRAYS["ids"] + 1}
    requests = [ARRAYS, bad, {name: values[1:] for name, values in ARRAYS.items()}]
    first, refused, last = model.execute([asked(arrays) for arrays in requests])
    assert "feature 'user', row 0 (counted from 0): 5" in refused.error.text
    assert refused.error.code == "INVALID_ARG"
    for response, rows in ((first, slice(None)), (last, slice(1, 2))):
        arrays = {name: values[rows] for name, values in ARRAYS.items()}
        keys, counts = keys_of(INTERFACE, arrays)
        assert response.error is None
        named = [tensor.name for tensor in answer_tensors(INTERFACE)]
        assert list(response.arrays) == named == ["KEYS", "NUMKEYS", "age"]
        np.testing.assert_array_equal(response.arrays["KEYS"], keys)
        np.testing.assert_array_equal(response.arrays["NUMKEYS"], counts)
        np.testing.assert_array_equal(response.arrays["age"], arrays["age"])
