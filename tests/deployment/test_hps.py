"""Tables, requests and vectors of Merlin's HPS."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from deployment import hps
from deployment.hps_dense import behind_hps
from deployment.options import Cache
from deployment.serving import hps_keys
from deployment.serving import interface as interfaces
from deployment.serving.interface import Feature, Interface, LookUp, Table, Tensor
from deployment.serving.onnx_session import open_session
from runtime.checkpoint import Damaged
from tests.deployment.hps_stand_in import HpsStandIn
from tests.deployment.saved_tables import save_tables, sizes
from tests.deployment.serving.test_triton_model import (  # noqa: F401
    asked,
    said,
    started,
    triton_model,
)

RNG = np.random.default_rng(11)
VALUES = {
    "user": RNG.normal(size=(5, 2)).astype(np.float32),
    "item": RNG.normal(size=(130, 3)).astype(np.float32),
    "tags": RNG.normal(size=(7, 2)).astype(np.float32),
}

# Two look-ups of one table that do not follow each other, sums, vectors side by side, and padding.
INTERFACE = Interface(
    recipe="sim",
    inputs=(
        Tensor("ids", "int32", (5,)),
        Tensor("history", "int64", (1, 4)),
        Tensor("age", "float32", (1,)),
    ),
    features=(
        Feature("user", "ids", 0, 1, 5, False),
        Feature("tags", "ids", 1, 3, 7, True),
        Feature("item", "ids", 4, 1, 130, False),
        Feature("history", "history", 0, 4, 130, False),
        Feature("age", "age", 0, 1, None, False),
    ),
    lookups=(
        LookUp("item", "ids", 4, 1, None),
        LookUp("tags", "ids", 1, 3, "sum"),
        LookUp("item", "history", 0, 4, None),
        LookUp("user", "ids", 0, 1, "sum"),
    ),
    tables=tuple(
        Table(name, *values.shape, "float32", "", None) for name, values in VALUES.items()
    ),
    dense_inputs=("age",),
    width=3 + 2 + 4 * 3 + 2,
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


def test_keys_are_grouped_by_table_and_then_by_look_up():
    keys, counts = hps_keys.keys_of(INTERFACE, ARRAYS)
    assert (keys.dtype, counts.dtype) == (np.int64, np.int32)
    # 7 is behind the last row of the tags: "no id here".
    assert keys.tolist() == [
        [*(4, 0), *(129, 0), *(0, 1, 2, 128), *(5, 5, 5, 5), *(6, 7, 7), *(0, 1, 1)]
    ]
    assert counts.tolist() == [[2, 10, 6]]
    assert hps_keys.keys_of_a_row(INTERFACE) == {"user": 1, "item": 5, "tags": 3}
    assert hps_keys.values_of_a_row(INTERFACE) == 1 * 2 + 5 * 3 + 3 * 2


@pytest.fixture
def stand_in(tmp_path):
    """HPS with the tables as they were written."""
    trained = save_tables(tmp_path / "checkpoints", VALUES)
    hps.write_tables(trained, sizes(VALUES), tmp_path)
    cache = Cache((0, 1), 0.25, 3)
    content = hps.ps_json("m_sparse", INTERFACE, str(tmp_path), cache)
    hps.write_ps_json(content, tmp_path / "ps.json")
    return HpsStandIn(tmp_path / "ps.json", "m_sparse")


def test_files_are_as_documented(stand_in, tmp_path):
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


def test_ps_json(stand_in, tmp_path):
    assert stand_in.config == {
        "model": "m_sparse",
        "sparse_files": [f"{tmp_path}/table_{number}" for number in range(3)],
        "embedding_table_names": ["table_0", "table_1", "table_2"],
        "embedding_vecsize_per_table": [2, 3, 2],
        "maxnum_catfeature_query_per_table_per_sample": [1, 5, 3],
        "default_value_for_each_table": [0.0, 0.0, 0.0],
        "deployed_device_list": [0, 1],
        "max_batch_size": 8,
        "num_of_worker_buffer_in_pool": 6,
        "num_of_refresher_buffer_in_pool": 1,
        "cache_refresh_percentage_per_iteration": 0.0,
        "hit_rate_threshold": 1.0,
        "gpucache": True,
        "gpucacheper": 0.25,
    }
    assert hps.backend_parameters(INTERFACE) == {
        "slots": "4",
        "cat_feature_num": "9",
        "embedding_vector_size": "3",
    }


def dense_part(path, width: int):
    """scores = embeddings + age, so that each embedding shows."""
    tensors = [("embeddings", width), ("age", 1)]
    graph = helper.make_graph(
        [helper.make_node("Add", ["embeddings", "age"], ["scores"])],
        "dense",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", columns])
            for name, columns in tensors
        ],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", width])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))


@pytest.mark.parametrize("rows", [[0], [1], [0, 1], [1, 0, 0]])
def test_from_request_to_embeddings(stand_in, tmp_path, rows):
    """Keys, HPS, and the vectors put in order and pooled in front of the dense part."""
    dense_part(tmp_path / "dense.onnx", INTERFACE.width)
    behind_hps(tmp_path / "dense.onnx", INTERFACE, tmp_path / "behind.onnx")
    arrays = {name: values[rows] for name, values in ARRAYS.items()}
    vectors = stand_in.look_up(*hps_keys.keys_of(INTERFACE, arrays))
    session = open_session(tmp_path / "behind.onnx")
    assert [node.name for node in session.get_inputs()] == ["OUTPUT0", "age"]
    (found,) = session.run(["scores"], {"OUTPUT0": vectors, "age": arrays["age"]})
    wanted = np.array([expected(row) + ARRAYS["age"][row] for row in rows])
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_changed_byte_of_the_checkpoint_is_found(tmp_path):
    trained = save_tables(tmp_path / "checkpoints", VALUES)
    file = next(trained.path.rglob("item.npy"))
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    with pytest.raises(Damaged, match=r"item\.npy is missing or damaged: the checksum differs"):
        hps.write_tables(trained, sizes(VALUES), tmp_path)


def test_the_model_in_front(tmp_path, triton_model):  # noqa: F811
    """Of three requests the bad one gets an error, the others their keys, each by itself."""
    folder = tmp_path / "1"
    folder.mkdir()
    interfaces.write(INTERFACE._replace(role=hps_keys.ROLE), folder)
    model = started(triton_model, folder)
    bad = {**ARRAYS, "ids": ARRAYS["ids"] + 1}
    requests = [ARRAYS, bad, {name: of[1:] for name, of in ARRAYS.items()}]
    first, refused, last = model.execute([asked(arrays) for arrays in requests])
    assert "feature 'user', row 0 (counted from 0): 5" in refused.error.text
    assert refused.error.code == "INVALID_ARG"
    for response, rows in ((first, slice(None)), (last, slice(1, 2))):
        arrays = {name: of[rows] for name, of in ARRAYS.items()}
        keys, counts = hps_keys.keys_of(INTERFACE, arrays)
        assert response.error is None
        named = [tensor.name for tensor in hps_keys.answered(INTERFACE)]
        assert list(response.arrays) == named == ["KEYS", "NUMKEYS", "age"]
        np.testing.assert_array_equal(response.arrays["KEYS"], keys)
        np.testing.assert_array_equal(response.arrays["NUMKEYS"], counts)
        np.testing.assert_array_equal(response.arrays["age"], arrays["age"])
    model.finalize()
