"""Raw rows to the encoded tensors of a model, by the encoder in its version folder."""

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Mapping, Set
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deployment.serving import checksums
from deployment.serving.checks import BadRequest, listing
from deployment.serving.interface import (
    ENCODER_FOLDER,
    UNKNOWN_IS_ERROR,
    Interface,
    RawColumn,
    ServedFeature,
    history_features,
    requested,
)
from deployment.serving.raw.input_columns import check_encoder, raw_columns
from preproc.encoding.encoder import Encoder, EncodingError
from preproc.encoding.encodings import FeatureEncoding, Identity
from preproc.encoding.numbers import Number

_ANY_ID = (1 << 63) - 1


class RawRows:
    """Encodes raw rows. Thread-safe.

    Args:
        folder: version folder; without an encoder, rows have the model's numbers and ids.
        interface: interface of the model.

    Attributes:
        encoder: see above.
        columns: columns that are read.

    Raises:
        ValueError: the encoder is absent, damaged or not that of the deployment.
    """

    def __init__(self, folder: str | Path, interface: Interface):
        self.encoder = _load(Path(folder), interface)
        self.columns = interface.columns or raw_columns(self.encoder, interface)
        self._interface = interface
        self._by_name = {column.name: column for column in self.columns}
        self._histories = histories = history_features(interface)
        self._history_columns = self.encoder.history_columns(histories)
        features = requested(interface)
        self._encodings = {
            f.name: self.encoder.maker(histories.get(f.name, f.name)) for f in features
        }
        self._padded = [feature for feature in features if feature.padded]
        others = {*histories, *(feature.name for feature in self._padded)}
        names = [each.name for name, each in self._encodings.items() if name not in others]
        self._plain = list(dict.fromkeys(names))
        self._num_steps = max((f.count for f in features if f.name in histories), default=0)

    def encoding(self, feature: str) -> FeatureEncoding:
        """Returns the encoding of a feature of the model."""
        return self._encodings[feature]

    def column(self, feature: str) -> str:
        """Returns the column from which a feature of the model is read."""
        return self._history_columns.get(feature) or self._encodings[feature].column

    def encode(self, batch: Any, long_lists: Counter[str] | None = None) -> dict[str, np.ndarray]:
        """Returns the tensors `Interface.inputs` [rows, *dims] of raw rows.

        Args:
            batch: record batch, table, pandas frame, or mapping of column names to values. Absent
                optional columns are missing in all rows, and other columns are ignored.
            long_lists: see `Encoder.encode`.

        Raises:
            BadRequest: a column is absent, or a value breaks a rule; `feature` is the column.
        """
        names = _names(batch)
        columns = {name: batch[name] for name in self._by_name if name in names}
        absent = [column for name, column in self._by_name.items() if name not in columns]
        if absent:
            self._check_present(columns, absent, names)
            num_rows = len(next(iter(columns.values())))
            columns |= {column.name: pa.nulls(num_rows, pa.string()) for column in absent}
        return request_tensors(self._interface, self.values(columns, long_lists=long_lists))

    def values(
        self,
        columns: Mapping[str, Any],
        features: Set[str] | None = None,
        long_lists: Counter[str] | None = None,
    ) -> dict[str, NDArray]:
        """Returns the encoded values [rows, count] by feature; indicators come with their numbers.

        Args:
            columns: values of all source columns of the features.
            features: features to encode; None: all.
            long_lists: see `Encoder.encode`.

        Raises:
            BadRequest: a value breaks a rule; `feature` is the column.
        """
        names = [name for name in self._plain if features is None or name in features]
        try:
            values = self.encoder.encode(columns, names, long_lists)
            for feature in self._padded:
                if features is None or feature.name in features:
                    values[feature.name] = self._lists(columns, feature, long_lists)
            if self._histories and (features is None or not features.isdisjoint(self._histories)):
                steps = self._num_steps
                values |= self.encoder.encode_histories(columns, self._histories, steps)
        except EncodingError as error:
            place = f"column '{error.column}'"
            if error.row is not None:
                place += f", row {error.row} (counted from 0)"
            message = f"{place}: expected {error.rule}, got {error.found}"
            rule = f"expected {error.rule}"
            raise BadRequest(message, error.column, error.row, error.found, rule) from None
        return values

    def _check_present(
        self, columns: Collection[str], absent: list[RawColumn], names: Collection[str]
    ) -> None:
        required = [column.name for column in absent if not column.is_optional]
        if required or not columns:
            missing = f"the column {listing(required)}" if required else "a column"
            raise BadRequest(f"expected {missing}, got {listing(names)}; {self.needed()}")

    def needed(self) -> str:
        """Returns the columns, as messages state them."""
        required = [column.name for column in self.columns if not column.is_optional]
        optional = [column.name for column in self.columns if column.is_optional]
        return f"needed: {listing(required)}; optional: {listing(optional)}"

    def _lists(
        self, batch: Any, feature: ServedFeature, long_lists: Counter[str] | None
    ) -> NDArray:
        """Returns the first ids of lists, [rows, count], before -1."""
        encoding = self._encodings[feature.name]
        single = dataclasses.replace(encoding, hotness=1)
        ids, lengths = self.encoder.encode_lists(batch, encoding.column, single)
        rows = np.repeat(np.arange(len(lengths)), lengths)
        places = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        fits = places < feature.count
        if long_lists is not None and not fits.all():
            long_lists[feature.name] += int(np.count_nonzero(lengths > feature.count))
        result = np.full((len(lengths), feature.count), -1, np.int64)
        result[rows[fits], places[fits]] = ids[feature.name][fits]
        return result


def request_tensors(
    interface: Interface, values: Mapping[str, NDArray], num_rows: int | None = None
) -> dict[str, NDArray]:
    """Arranges values [rows, count] by feature as the tensors of a request, [rows, *dims].

    Other features are 0; then the number of rows is needed.
    """
    num_rows = len(next(iter(values.values()))) if num_rows is None else num_rows
    arrays = {
        tensor.name: np.zeros((num_rows, math.prod(tensor.dims)), tensor.dtype)
        for tensor in interface.inputs
        if tensor.name != interface.candidate_input
    }
    for feature in requested(interface) if values else ():
        numbers = values.get(feature.name)
        if numbers is None:
            continue
        array, columns = arrays[feature.input], slice(feature.start, feature.start + feature.count)
        if feature.cardinality is not None and array.dtype.itemsize < numbers.dtype.itemsize:
            # A cast must not turn an id out of range into a valid one.
            numbers = np.minimum(numbers, np.int64(np.iinfo(array.dtype).max))
        array[:, columns] = numbers
    dims = {tensor.name: tensor.dims for tensor in interface.inputs}
    return {name: array.reshape(-1, *dims[name]) for name, array in arrays.items()}


def _plain_encoder(interface: Interface) -> Encoder:
    """Returns the encoder of rows that have numbers and ids as they are."""
    # Otherwise the checks of a request decide about unknown ids.
    is_checked = interface.unknown_ids == UNKNOWN_IS_ERROR

    def encoding(feature: ServedFeature) -> FeatureEncoding:
        common: dict[str, Any] = {"name": feature.name, "column": feature.name}
        common["hotness"] = feature.count
        if feature.cardinality is None:
            return Number(**common)
        return Identity(**common, cardinality=feature.cardinality if is_checked else _ANY_ID)

    histories = history_features(interface)
    return Encoder(tuple(encoding(f) for f in interface.features if f.name not in histories))


def _load(folder: Path, interface: Interface) -> Encoder:
    if not interface.encoder:
        return _plain_encoder(interface)
    checksums.verify(folder, f"{ENCODER_FOLDER}/*")
    path = folder / ENCODER_FOLDER
    encoder = Encoder.load(path)
    if encoder.digest != interface.encoder:
        raise ValueError(
            f"{path}: expected the encoder of the deployment, digest {interface.encoder:.12}, got "
            f"{encoder.digest:.12}, that of another data set; deploy the checkpoint again"
        )
    check_encoder(encoder, interface)
    return encoder


def _names(batch: Any) -> Collection[str]:
    if isinstance(batch, pa.RecordBatch | pa.Table):
        return batch.schema.names
    return batch.keys()  # of a mapping, or a pandas frame
