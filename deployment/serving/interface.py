"""What a served model takes, looks up and answers: the file `interface.json` of its version folder.

    DIR/interface.json      this
    DIR/tables/*.npy        rows of tables (roles scorer and sparse)
    DIR/dense.onnx          from embeddings to scores (roles scorer and dense)

All models of an ensemble have the same interface but for `role`.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

FILE = "interface.json"
TABLES_FOLDER = "tables"
DENSE_FILE = "dense.onnx"

EMBEDDINGS, SCORES = "embeddings", "scores"  # the tensors between the parts, and the answer

# What unknown ids, those from the cardinality on, are: a bad request, or id 0.
UNKNOWN_IS_ERROR, UNKNOWN_IS_ZERO = "error", "zero"

# Roles: all of the work, a part of an ensemble's, or checks alone, which answer the request or, for
# HPS, keys.
SCORER, SPARSE, DENSE, CHECKS, KEYS = "scorer", "sparse", "dense", "checks", "keys"

_FORMAT = 1  # of the file; another one is not read


class ServedTensor(NamedTuple):
    """A tensor of a request.

    dtype: float32 or, of ids, int64; int32 in what earlier versions deployed.
    dims: its shape without the batch.
    """

    name: str
    dtype: str
    dims: tuple[int, ...]


class ServedFeature(NamedTuple):
    """What some columns of a request tensor mean, whose values are seen as [batch, columns].

    input: the tensor; the columns are start to start + count - 1.
    cardinality: ids lie in [0, cardinality); None: numericals, which must be finite.
    padded: -1 means "no id here", for features of which rows have different numbers of ids.
    """

    name: str
    input: str
    start: int
    count: int
    cardinality: int | None
    padded: bool = False


class ServedLookup(NamedTuple):
    """Rows of a table, by ids in the columns start to start + count - 1 of a request tensor.

    combiner: "sum": their sum, one vector; None: `count` vectors side by side. A -1 is zeros.
    """

    table: str
    input: str
    start: int
    count: int
    combiner: str | None


class ServedTable(NamedTuple):
    """Rows `first_row` to first_row + rows - 1 of a file below DIR/tables.

    Tables of one dim and dtype may lie in one file, one behind the other, and should: their rows
    are then looked up in one go, which took half of the time (26 tables, batch 2,048).

    dtype: float32, float16 or int8, as [rows of the file, dim] in a .npy file.
    scales: of int8: a .npy file float32 [rows of the file]; a row is its int8 values * its scale.
    """

    name: str
    rows: int
    dim: int
    dtype: str
    file: str
    scales: str | None = None
    first_row: int = 0


class Interface(NamedTuple):
    """A served model.

    recipe: the recipe that trained it.
    inputs: tensors of a request.
    lookups: their vectors, side by side in this order, are the embeddings [batch, width].
    dense_inputs: tensors of a request that the dense part gets beside the embeddings.
    unknown_ids: `UNKNOWN_IS_ERROR` or `UNKNOWN_IS_ZERO`.
    precision: of the dense part: fp32, fp16 or bf16.
    role: which part of the work a folder does, `SCORER` all of it.
    max_batch_size: the most rows of a request.
    histories: tensors of a request, ids [batch, features, steps], of which a 0 is no id but
        padding: in front, at the same steps of all features of a row.
    """

    recipe: str
    inputs: tuple[ServedTensor, ...]
    features: tuple[ServedFeature, ...]
    lookups: tuple[ServedLookup, ...]
    tables: tuple[ServedTable, ...]
    dense_inputs: tuple[str, ...]
    width: int
    unknown_ids: str = UNKNOWN_IS_ERROR
    precision: str = "fp32"
    role: str = SCORER
    max_batch_size: int = 2048
    histories: tuple[str, ...] = ()


def id_limits(
    features: Iterable[ServedFeature], tensor: ServedTensor
) -> tuple[np.ndarray, np.ndarray]:
    """The least id of each column of a request tensor, and one past the largest.

    Args:
      features: of the model; none of this tensor is a numerical.
      tensor: whose values are seen as [batch, columns].

    Returns:
      Both int64 [columns]; of a column that no feature has both are 0, so that none is allowed.
    """
    columns = int(np.prod(tensor.dims))
    least, end = np.zeros(columns, np.int64), np.zeros(columns, np.int64)
    for feature in features:
        if feature.input == tensor.name:
            of_feature = slice(feature.start, feature.start + feature.count)
            least[of_feature], end[of_feature] = -int(feature.padded), feature.cardinality
    return least, end


def feature_at(features: Iterable[ServedFeature], tensor_name: str, column: int) -> ServedFeature:
    """The feature that a column of a request tensor belongs to."""
    return next(
        feature
        for feature in features
        if feature.input == tensor_name and feature.start <= column < feature.start + feature.count
    )


def received(interface: Interface) -> tuple[ServedTensor, ...]:
    """The tensors that a model of this role gets, and checks.

    The dense part of an ensemble gets the embeddings and what it reads beside them, the sparse part
    what it looks up: together they see every tensor of the request.
    """
    if interface.role == SPARSE:
        read = {lookup.input for lookup in interface.lookups}
        return tuple(tensor for tensor in interface.inputs if tensor.name in read)
    if interface.role == DENSE:
        beside = (tensor for tensor in interface.inputs if tensor.name in interface.dense_inputs)
        return (ServedTensor(EMBEDDINGS, "float32", (interface.width,)), *beside)
    return interface.inputs


def answered(interface: Interface) -> tuple[ServedTensor, ...]:
    """The tensors that a model of this role answers; those of `CHECKS` are what it received, by the
    same names."""
    if interface.role == SPARSE:
        return (ServedTensor(EMBEDDINGS, "float32", (interface.width,)),)
    if interface.role == CHECKS:
        return interface.inputs
    return (ServedTensor(SCORES, "float32", (1,)),)


def write(interface: Interface, folder: str | Path) -> None:
    """Writes `interface.json` into a folder; `read` gives an equal interface back."""
    content = {"format": _FORMAT} | interface._asdict()
    for name in _PARTS:
        content[name] = [part._asdict() for part in content[name]]
    (Path(folder) / FILE).write_text(json.dumps(content, indent=1) + "\n")


def read(folder: str | Path) -> Interface:
    """Reads `interface.json` of a version folder.

    Raises:
      ValueError: it is not there, damaged, or of another version of this package.
    """
    path = Path(folder) / FILE
    way_out = "; deploy the checkpoint again"
    try:
        content = dict(json.loads(path.read_text()))
        found = content.pop("format", None)
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{path}: is no interface of a model ({error}){way_out}") from None
    if found != _FORMAT:
        raise ValueError(f"{path}: has format {found}, this version reads {_FORMAT}{way_out}")
    try:
        for name, kind in _PARTS.items():
            content[name] = tuple(kind(**part) for part in content[name])
        content["inputs"] = tuple(t._replace(dims=tuple(t.dims)) for t in content["inputs"])
        for name in ("dense_inputs", "histories"):
            content[name] = tuple(content[name])
        return Interface(**content)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: lacks or has one thing too many: {error}{way_out}") from None


# Fields of an interface that are made of parts, and of which.
_PARTS = {
    "inputs": ServedTensor,
    "features": ServedFeature,
    "lookups": ServedLookup,
    "tables": ServedTable,
}
