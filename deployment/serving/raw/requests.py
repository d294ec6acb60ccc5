"""Requests of raw rows, as tensors of a server, to the encoded tensors of a model."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deployment.serving.checks import BadRequest, listing
from deployment.serving.interface import (
    FLOAT64,
    TEXT,
    Interface,
    RawColumn,
    history_features,
    requested,
)
from deployment.serving.raw.encoded_rows import RawRows, request_tensors
from preproc.encoding.joint import JointEncoder, Texts
from preproc.encoding.numbers import Number

# Of a matrix and a tensor: the tensor's name, columns of the matrix, and those of the tensor.
_Places = list[tuple[str, NDArray[np.int64], NDArray[np.int64]]]


class RawRequests:
    """Encodes requests of raw rows. Thread-safe.

    Args:
        rows: encoder of rows.
        interface: interface of the model.

    Attributes:
        encoder: that of the rows.
    """

    def __init__(self, rows: RawRows, interface: Interface):
        self._rows, self._interface, self.encoder = rows, interface, rows.encoder
        self._columns = {column.name: column for column in rows.columns}
        features = [feature.name for feature in requested(interface)]
        histories = history_features(interface)
        names = [name for name in features if name not in histories]
        encodings = dict.fromkeys(rows.encoding(name).name for name in names)
        single = [name for name in encodings if self._is_single(name)]
        self._joint = joint = JointEncoder(rows.encoder, single)
        self._places = [_places(names, interface) for names in joint.features]
        self._others = set(features).difference(*joint.features)
        columns = {rows.column(name) for name in self._others}
        self._other_columns = [column for column in rows.columns if column.name in columns]

    def check(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the encoded tensors of those of a request, see `RawColumn.tensor`.

        Raises:
            BadRequest: see `RawRows.encode`; a tensor is not one of a column.
        """
        unknown = [name for name in tensors if name not in self._columns]
        if unknown:
            encoded = {tensor.name for tensor in self._interface.inputs}
            is_encoded = not encoded.isdisjoint(unknown)
            problem = "expected raw rows, got the tensor" if is_encoded else "unknown column"
            raise BadRequest(f"{problem} {listing(unknown)}; {self._rows.needed()}")
        encoded = self._encode_jointly(tensors)
        if encoded is None:
            columns = {
                name: column_values(tensor, self._columns[name]) for name, tensor in tensors.items()
            }
            encoded = self._rows.encode(columns)
        return encoded

    def example(self, num_rows: int) -> dict[str, np.ndarray]:
        """Returns the encoded tensors of rows with the examples of the columns."""
        rows = {name: [column.example] * num_rows for name, column in self._columns.items()}
        return self._rows.encode(rows)

    def _is_single(self, feature: str) -> bool:
        """Returns whether the tensor of a feature is one of numbers or of texts, not of lists."""
        encoding = self._rows.encoding(feature)
        column = self._columns[encoding.column]
        dtype = FLOAT64 if isinstance(encoding, Number) else TEXT
        return not column.is_list and column.dtype == dtype

    def _encode_jointly(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """Returns the tensors of a usual request; None: `RawRows.encode` is needed, if only for
        its errors."""
        num_rows = len(next(iter(tensors.values()), ()))
        if not num_rows or any(len(tensor) != num_rows for tensor in tensors.values()):
            return None
        if any(c.name not in tensors and not c.is_optional for c in self._other_columns):
            return None
        matrices = self._joint.encode(tensors, num_rows)
        if matrices is None:
            return None
        absent = pa.nulls(num_rows, pa.string())
        others = {
            c.name: column_values(tensors[c.name], c) if c.name in tensors else absent
            for c in self._other_columns
        }
        values = self._rows.values(others, self._others) if others else {}
        encoded = request_tensors(self._interface, values, num_rows)
        for matrix, places in zip(matrices, self._places, strict=True):
            for name, sources, targets in places:
                flat = encoded[name].reshape(num_rows, -1)
                flat[:, targets] = matrix[:, sources]
        return encoded


def _places(names: Sequence[str], interface: Interface) -> _Places:
    sources = {name: number for number, name in enumerate(names)}
    places = []
    for tensor in interface.inputs:
        features = [f for f in interface.features if f.input == tensor.name and f.name in sources]
        if features:
            targets = np.array([feature.start for feature in features])
            numbers = np.array([sources[feature.name] for feature in features])
            places.append((tensor.name, numbers, targets))
    return places


def column_values(tensor: np.ndarray, column: RawColumn) -> pa.Array:
    """Returns the values of a tensor [rows, 1], or of one of lists."""
    if not tensor.size:
        return pa.nulls(len(tensor), pa.string())
    texts = Texts.read(tensor) if column.dtype == TEXT else None
    values = pa.array(tensor.ravel()) if texts is None else texts.array()
    num_rows, count = tensor.shape
    if not column.is_list or (texts and count == 1):  # also `a;b` and JSON arrays
        return values
    lengths = np.full(num_rows, count)
    if texts is not None:
        exists = (texts.lengths > 0).reshape(tensor.shape)
        lengths = (count - np.argmax(exists[:, ::-1], axis=1)) * exists.any(axis=1)
        values = values.filter(pa.array((np.arange(count) < lengths[:, np.newaxis]).ravel()))
    return pa.ListArray.from_arrays(pa.array(np.cumsum([0, *lengths]), pa.int32()), values)
