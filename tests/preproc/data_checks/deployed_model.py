"""Deployed model of raw rows, made by hand."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from deployment.serving import checksums
from deployment.serving import interface as interfaces
from deployment.serving.interface import (
    DENSE_FILE,
    ENCODER_FOLDER,
    TABLES_FOLDER,
    Interface,
    ServedFeature,
    ServedLookup,
    ServedTable,
    ServedTensor,
)
from deployment.serving.raw.input_columns import raw_columns
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import IdEncoding, Label


def write_model(folder: Path, encoder: Encoder) -> None:
    """Writes a deployed model whose logit is a hundredth of the sum of all numbers and ids."""
    features = [f for f in encoder.features if not isinstance(f, Label)]
    ids = [feature for feature in features if isinstance(feature, IdEncoding)]
    numbers = [feature for feature in features if not isinstance(feature, IdEncoding)]
    served = [ServedFeature(f.name, "numbers", i, 1, None) for i, f in enumerate(numbers)]
    served += [ServedFeature(f.name, "ids", i, 1, f.num_ids) for i, f in enumerate(ids)]
    interface = Interface(
        recipe="dlrm",
        inputs=(
            ServedTensor("numbers", "float32", (len(numbers),)),
            ServedTensor("ids", "int64", (len(ids),)),
        ),
        features=tuple(served),
        lookups=tuple(ServedLookup(f.name, "ids", i, 1, "sum") for i, f in enumerate(ids)),
        tables=tuple(ServedTable(f.name, f.num_ids, 1, "float32", f"{f.name}.npy") for f in ids),
        dense_inputs=("numbers",),
        max_batch_size=512,
        encoder=encoder.digest,
    )
    (folder / TABLES_FOLDER).mkdir(parents=True)
    interfaces.write(interface._replace(columns=raw_columns(encoder, interface)), folder)
    for f in ids:
        np.save(folder / TABLES_FOLDER / f"{f.name}.npy", np.arange(f.num_ids, dtype="f4")[:, None])
    _write_dense(folder / DENSE_FILE, len(numbers), len(ids))
    encoder.save(folder / ENCODER_FOLDER)
    checksums.write(folder)


def _write_dense(path: Path, num_numbers: int, num_ids: int) -> None:
    weights = np.full((num_numbers + num_ids, 1), 0.01, np.float32)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])
        for name, size in (("numbers", num_numbers), ("embeddings", num_ids))
    ]
    nodes = [
        helper.make_node("Concat", ["numbers", "embeddings"], ["all"], axis=1),
        helper.make_node("MatMul", ["all", "weights"], ["logits"]),
        helper.make_node("Sigmoid", ["logits"], ["scores"]),
    ]
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 1])]
    constants = [numpy_helper.from_array(weights, "weights")]
    graph = helper.make_graph(nodes, "dense", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
