"""Interface of a served model: the file `interface.json` of its version folder.

    DIR/interface.json      this file
    DIR/tables/*.npy        tables (roles scorer, recommender and sparse)
    DIR/dense.onnx          dense part (roles scorer, recommender and dense)
    DIR/candidates.npy      items (role recommender)
    DIR/encoder/            encoder of raw rows (all roles but dense, of a data set that has one)
    DIR/checksums.json      sizes and checksums of all files

The models of an ensemble have the same interface except for `role`.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from deployment.serving import checksums

FILE = "interface.json"
TABLES_FOLDER = "tables"
DENSE_FILE = "dense.onnx"
CANDIDATES_FILE = "candidates.npy"
# Parameter of a request to a model of raw rows: true, its tensors are encoded.
ENCODED = "encoded"
ENCODER_FOLDER = "encoder"

EMBEDDINGS, SCORES = "embeddings", "scores"  # the tensors between the parts, and the answer
LOGITS = "DENSE_OUTPUT"  # the answer of NVIDIA's deployments, before the sigmoid
# Recommendations: the number of items per row of a request and items that it leaves out, the items
# of the answer, and none in both.
TOP, EXCLUDED, ITEMS, NO_ITEM = "top", "excluded_items", "items", -1

# Handling of unknown ids (at least the cardinality): a bad request, or id 0.
UNKNOWN_IS_ERROR, UNKNOWN_IS_ZERO = "error", "zero"

# Roles: all of the work, for one item per row or for all items; a part of an ensemble's; or checks
# alone, which answer the request or, for HPS, keys.
SCORER, RECOMMENDER = "scorer", "recommender"
SPARSE, DENSE, CHECKS, KEYS = "sparse", "dense", "checks", "keys"
ROLES_WITH_TABLES = (SCORER, RECOMMENDER, SPARSE)
ROLES_WITH_DENSE_PART = (SCORER, RECOMMENDER, DENSE)

# Dtype of a request's ids. Triton truncates integers in JSON that do not fit into a narrower dtype,
# so that another id would be looked up; it refuses those that do not fit into int64.
ID_DTYPE = "int64"

# Dtypes of raw columns.
TEXT, FLOAT64, INT64, BOOL = "text", "float64", "int64", "bool"

_FORMAT = 1  # format version of the file


class ServedTensor(NamedTuple):
    """A tensor of a request or an answer, [batch, *dims].

    Ids are int64, or int32 in deployments of earlier versions; encoded numbers and scores float32;
    raw columns as in `RawColumn`.
    """

    name: str
    dtype: str
    dims: tuple[int, ...]


class ServedFeature(NamedTuple):
    """Feature of a model: columns start to start + count - 1 of a request tensor [batch, columns].

    Attributes:
        cardinality: ids are in [0, cardinality); None for finite numerical values.
        padded: whether -1 means "no id", for features with varying numbers of ids per row.
    """

    name: str
    input: str
    start: int
    count: int
    cardinality: int | None
    padded: bool = False


class RawColumn(NamedTuple):
    """Source column of raw rows: a tensor [batch, 1], or [batch, -1] of lists.

    Attributes:
        dtype: `TEXT`, `FLOAT64`, `INT64` or `BOOL`. A missing value is an empty text or NaN; the
            others have none.
        is_list: lists are texts padded with empty ones at the end, or numbers padded with NaN.
        is_optional: the tensor may be absent: the value is missing in all rows.
        example: a value of the training, as JSON has it.
    """

    name: str
    dtype: str
    is_list: bool = False
    is_optional: bool = False
    example: Any = None

    @property
    def tensor(self) -> ServedTensor:
        return ServedTensor(self.name, self.dtype, (-1,) if self.is_list else (1,))


class ServedLookup(NamedTuple):
    """Lookup by ids in columns start to start + count - 1 of a request tensor [batch, columns].

    Attributes:
        combiner: "sum" for one vector, the sum; None for `count` concatenated vectors. The vector
            of -1 is zeros.
    """

    table: str
    input: str
    start: int
    count: int
    combiner: str | None


class ServedTable(NamedTuple):
    """Table: rows `first_row` to first_row + rows - 1 of a file in DIR/tables.

    Tables of one dim and dtype should be concatenated in one file: one call then gathers the rows
    of all, which halved the time (26 tables, batch size 2,048).

    Attributes:
        dtype: float32, float16 or int8.
        file: .npy file [rows of the file, dim].
        scales: for int8, .npy file float32 [rows of the file]; a row is its int8 values times its
            scale.
    """

    name: str
    rows: int
    dim: int
    dtype: str = "float32"
    file: str = ""
    scales: str | None = None
    first_row: int = 0


class Interface(NamedTuple):
    """Interface of a served model.

    Attributes:
        lookups: lookups whose concatenated vectors are the embeddings [batch, width].
        dense_inputs: names of the request's tensors that the dense part receives.
        unknown_ids: `UNKNOWN_IS_ERROR` or `UNKNOWN_IS_ZERO`.
        precision: precision of the dense part: fp32, fp16 or bf16.
        role: part of the work that the folder does; `SCORER` for all of it.
        max_batch_size: maximum number of rows per request.
        histories: names of the request's tensors of ids [batch, features, steps] in which 0 is
            padding: at the start, at the same steps of all features of a row.
        output: the answer: `SCORES`, probabilities, or `LOGITS`.
        top: most items per row of the answer of a recommender.
        candidate_input: the tensor that a recommender fills with the items of its catalogue.
        items: dtype of the items of its answer: `INT64`, or `TEXT` for original texts.
        columns: columns of raw requests, which the entry model encodes as `inputs`; empty: requests
            have the tensors `inputs`.
        encoder: digest of the encoder in the version folder of the entry model; empty: there is
            none.
    """

    recipe: str
    inputs: tuple[ServedTensor, ...]
    features: tuple[ServedFeature, ...]
    lookups: tuple[ServedLookup, ...]
    tables: tuple[ServedTable, ...]
    dense_inputs: tuple[str, ...]
    unknown_ids: str = UNKNOWN_IS_ERROR
    precision: str = "fp32"
    role: str = SCORER
    max_batch_size: int = 2048
    histories: tuple[str, ...] = ()
    output: str = SCORES
    top: int = 0
    candidate_input: str = ""
    items: str = INT64
    columns: tuple[RawColumn, ...] = ()
    encoder: str = ""

    @property
    def width(self) -> int:
        """Columns of the embeddings, all vectors of a row; 0 for a model without tables."""
        dims = {table.name: table.dim for table in self.tables}
        return sum(
            dims[lookup.table] * (lookup.count if lookup.combiner is None else 1)
            for lookup in self.lookups
        )

    def tensor(self, name: str) -> ServedTensor:
        return next(tensor for tensor in self.inputs if tensor.name == name)


def id_limits(
    features: Iterable[ServedFeature], tensor: ServedTensor
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the least id of each column of a request tensor, and the largest plus one.

    Both are int64 [columns]; 0 for columns without a feature, so that no id is allowed.
    """
    columns = int(np.prod(tensor.dims))
    first, end = np.zeros(columns, np.int64), np.zeros(columns, np.int64)
    for feature in features:
        if feature.input == tensor.name:
            own = slice(feature.start, feature.start + feature.count)
            first[own], end[own] = -int(feature.padded), feature.cardinality
    return first, end


def feature_at(features: Iterable[ServedFeature], tensor_name: str, column: int) -> ServedFeature:
    """Returns the feature of a column of a request tensor."""
    return next(
        feature
        for feature in features
        if feature.input == tensor_name and feature.start <= column < feature.start + feature.count
    )


def requested(interface: Interface) -> tuple[ServedFeature, ...]:
    """Returns the features of a request: all but those of a catalogue."""
    return tuple(f for f in interface.features if f.input != interface.candidate_input)


def history_features(interface: Interface) -> dict[str, str]:
    """Returns the features of histories, and the feature whose table each shares."""
    tables = {(lookup.input, lookup.start): lookup.table for lookup in interface.lookups}
    owners, histories = {}, {}
    for feature in interface.features:
        table = tables.get((feature.input, feature.start))
        if feature.input in interface.histories:
            histories[feature.name] = table
        else:
            owners[table] = feature.name
    return {name: owners[table] for name, table in histories.items()}


def received(interface: Interface) -> tuple[ServedTensor, ...]:
    """Returns the tensors that a model of this role receives and checks; all parts check all
    tensors."""
    if interface.columns and interface.role != DENSE:
        return tuple(column.tensor for column in interface.columns)
    if interface.role == SPARSE:
        read = {lookup.input for lookup in interface.lookups}
        return tuple(tensor for tensor in interface.inputs if tensor.name in read)
    if interface.role == DENSE:
        others = (tensor for tensor in interface.inputs if tensor.name in interface.dense_inputs)
        return (ServedTensor(EMBEDDINGS, "float32", (interface.width,)), *others)
    if interface.role == RECOMMENDER:
        return tuple(t for t in interface.inputs if t.name != interface.candidate_input)
    return interface.inputs


def optional(interface: Interface) -> tuple[ServedTensor, ...]:
    """Returns the other tensors of encoded requests, which a recommender reads."""
    if interface.role != RECOMMENDER or interface.columns:
        return ()
    return (ServedTensor(TOP, "int64", (1,)), ServedTensor(EXCLUDED, "int64", (-1,)))


def refused(interface: Interface) -> tuple[ServedTensor, ...]:
    """Returns tensors that an entry model of raw rows declares to refuse them itself, with a
    message that names the columns: the encoded ones, without the parameter `ENCODED`."""
    if not interface.columns or interface.role == DENSE:
        return ()
    names = {column.name for column in interface.columns}
    return tuple(tensor for tensor in interface.inputs if tensor.name not in names)


def answered(interface: Interface) -> tuple[ServedTensor, ...]:
    """Returns the tensors that a model of this role answers; `CHECKS` answers all encoded ones, and
    `SPARSE` those of the dense part if it encodes them."""
    if interface.role == SPARSE:
        embeddings = ServedTensor(EMBEDDINGS, "float32", (interface.width,))
        if not interface.columns:
            return (embeddings,)
        dense = (tensor for tensor in interface.inputs if tensor.name in interface.dense_inputs)
        return (embeddings, *dense)
    if interface.role == CHECKS:
        return interface.inputs
    if interface.role == RECOMMENDER:
        return (ServedTensor(ITEMS, interface.items, (-1,)), ServedTensor(SCORES, "float32", (-1,)))
    return (ServedTensor(interface.output, "float32", (1,)),)


def write(interface: Interface, folder: str | Path) -> None:
    """Writes `interface.json` into a folder; `read` returns an equal interface."""
    content = {"format": _FORMAT} | interface._asdict()
    for name in _PARTS:
        content[name] = [part._asdict() for part in content[name]]
    (Path(folder) / FILE).write_text(json.dumps(content, indent=1) + "\n")


def read(folder: str | Path) -> Interface:
    """Reads `interface.json` of a version folder.

    Raises:
        ValueError: it does not exist, is damaged, or of another version of this package.
    """
    path = Path(folder) / FILE
    try:
        checksums.verify(folder, FILE)
        content = dict(json.loads(path.read_text()))
        version = content.pop("format", None)
        if version != _FORMAT:
            raise ValueError(f"it has format {version}, this version reads {_FORMAT}")
        content.setdefault("columns", ())  # of earlier versions
        content.pop("width", None)
        for name, kind in _PARTS.items():
            content[name] = tuple(kind(**part) for part in content[name])
        content["inputs"] = tuple(t._replace(dims=tuple(t.dims)) for t in content["inputs"])
        for name in ("dense_inputs", "histories"):
            content[name] = tuple(content[name])
        return Interface(**content)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{path}: is not an interface of a model ({error}); deploy the checkpoint again"
        ) from None


# Classes of the elements of fields.
_PARTS = {
    "inputs": ServedTensor,
    "features": ServedFeature,
    "lookups": ServedLookup,
    "tables": ServedTable,
    "columns": RawColumn,
}
