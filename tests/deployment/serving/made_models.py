"""Small served models made by hand: tables of NumPy arrays, a dense part of a few ONNX nodes."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from deployment.serving import interface as interfaces
from deployment.serving.interface import (
    DENSE_FILE,
    TABLES_FOLDER,
    Interface,
    ServedFeature,
    ServedLookup,
    ServedTable,
    ServedTensor,
)

NUMERICAL, CATEGORICAL = "numerical_features", "categorical_features"

# Two numerical features; a city, two tags per sample, and up to three words.
CLICKS = Interface(
    recipe="dlrm",
    inputs=(ServedTensor(NUMERICAL, "float32", (2,)), ServedTensor(CATEGORICAL, "int32", (6,))),
    features=(
        ServedFeature("price", NUMERICAL, 0, 1, None),
        ServedFeature("age", NUMERICAL, 1, 1, None),
        ServedFeature("city", CATEGORICAL, 0, 1, 4),
        ServedFeature("tags", CATEGORICAL, 1, 2, 5),
        ServedFeature("words", CATEGORICAL, 3, 3, 6, padded=True),
    ),
    lookups=(
        ServedLookup("city", CATEGORICAL, 0, 1, "sum"),
        ServedLookup("tags", CATEGORICAL, 1, 2, "sum"),
        ServedLookup("words", CATEGORICAL, 3, 3, "sum"),
    ),
    tables=(
        ServedTable("city", 4, 2, "float32", "two.npy"),
        ServedTable("tags", 5, 2, "float32", "two.npy", first_row=4),
        ServedTable("words", 6, 3, "float32", "words.npy"),
    ),
    dense_inputs=(NUMERICAL,),
    max_batch_size=8,
)

# Rows of the table two.npy: of city 0 to 3, then of tags 0 to 4. Sums of them are exact.
TWO = np.array([[i, -i / 4] for i in range(9)], np.float32)
WORDS = np.array([[i, i + 0.5, -i] for i in range(1, 7)], np.float32)

# Weights of the dense part for numerical features and embeddings.
NUMERICAL_WEIGHTS = np.array([[0.5], [-0.25]], np.float32)
EMBEDDING_WEIGHTS = np.array([[0.125], [-0.5], [0.25], [1], [-0.125], [0.0625], [0.5]], np.float32)


def request(rows: int = 3) -> dict[str, np.ndarray]:
    """A request of N rows, which repeat the three rows below."""
    numerical = np.array([[1.5, 2], [0, -3], [-1, 0.5]], np.float32)
    ids = np.array([[0, 1, 1, 5, -1, -1], [3, 4, 0, 0, 1, 2], [2, 2, 3, -1, -1, -1]], np.int32)
    return {NUMERICAL: np.resize(numerical, (rows, 2)), CATEGORICAL: np.resize(ids, (rows, 6))}


def expected_embeddings(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Embeddings of `CLICKS`, one row and one id at a time."""
    rows = []
    for city, *others in arrays[CATEGORICAL].tolist():
        tags, words = others[:2], others[2:]
        summed = sum((WORDS[word] for word in words if word >= 0), np.zeros(3, np.float32))
        rows.append(np.concatenate([TWO[city], TWO[4 + tags[0]] + TWO[4 + tags[1]], summed]))
    return np.stack(rows)


def expected_scores(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Scores of `CLICKS`, in float64."""
    logits = arrays[NUMERICAL] @ NUMERICAL_WEIGHTS.astype(np.float64)
    logits = logits + expected_embeddings(arrays) @ EMBEDDING_WEIGHTS.astype(np.float64)
    return 1 / (1 + np.exp(-logits))


def write_clicks(folder: Path, **changes) -> Path:
    """A version folder of `CLICKS`, with changes to its interface."""
    interface = CLICKS._replace(**changes)
    (folder / TABLES_FOLDER).mkdir(parents=True)
    interfaces.write(interface, folder)
    np.save(folder / TABLES_FOLDER / "two.npy", TWO)
    np.save(folder / TABLES_FOLDER / "words.npy", WORDS)
    write_dense(folder / DENSE_FILE)
    return folder


def write_dense(path: Path, numerical: str = NUMERICAL) -> None:
    """scores = sigmoid(numerical features * weights + embeddings * weights), NaN where that is not
    finite: the sigmoid of onnxruntime turns NaN into a number."""
    weights = np.concatenate([NUMERICAL_WEIGHTS, EMBEDDING_WEIGHTS])
    nodes = [
        helper.make_node("Concat", [numerical, "embeddings"], ["all"], axis=1),
        helper.make_node("MatMul", ["all", "weights"], ["logits"]),
        helper.make_node("Sigmoid", ["logits"], ["finite"]),
        helper.make_node("Sub", ["logits", "logits"], ["zero"]),
        helper.make_node("Equal", ["zero", "zero"], ["is_finite"]),
        helper.make_node("Where", ["is_finite", "finite", "zero"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "dense",
        [
            helper.make_tensor_value_info(numerical, TensorProto.FLOAT, ["batch", 2]),
            helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["batch", 7]),
        ],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 1])],
        [numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
