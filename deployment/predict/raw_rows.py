"""Raw rows to the tensors of a request."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataloading.spec.data_set_files import ENCODER_FOLDER
from deployment.serving.checks import BadRequest
from deployment.serving.interface import UNKNOWN_IS_ERROR, Interface, ServedFeature
from preproc.encoding.columns import InvalidValue
from preproc.encoding.encoder import Encoder, EncodingError
from preproc.encoding.encodings import FeatureEncoding, Identity
from preproc.encoding.lists import flatten
from preproc.encoding.numbers import Number

_LONGEST = 1 << 20  # values of a list
_ANY_ID = (1 << 63) - 1


class RawRows:
    """Encoding of the rows of a served model.

    Args:
        folder: version folder; without an encoder, rows have the model's numbers and ids.
        interface: of the model.
    """

    def __init__(self, folder: str | Path, interface: Interface):
        path = Path(folder) / ENCODER_FOLDER
        self.encoder = Encoder.load(path) if path.is_dir() else _plain_encoder(interface)
        self._interface = interface
        known = {name: each for each in self.encoder.features for name in each.features}
        self._encodings = {f.name: known[f.name] for f in interface.features}

    @property
    def columns(self) -> tuple[str, ...]:
        """Source columns that `encode` reads."""
        return tuple(dict.fromkeys(each.column for each in self._encodings.values()))

    def encoding(self, feature: str) -> FeatureEncoding:
        """Returns the encoding of a feature of the model."""
        return self._encodings[feature]

    def encode(self, batch: Any) -> dict[str, NDArray]:
        """Returns the tensors of raw rows, [rows, *dims].

        Raises:
            BadRequest: a column is absent, or a value breaks a rule.
        """
        interface = self._interface
        aligned = {f.name for f in interface.features if f.padded or f.input in interface.histories}
        plain = [each.name for name, each in self._encodings.items() if name not in aligned]
        try:
            values = self.encoder.encode(batch, list(dict.fromkeys(plain)))
            for feature in interface.features:
                if feature.name in aligned:
                    values[feature.name] = self._lists(batch, feature)
        except EncodingError as error:
            raise BadRequest(
                str(error), error.column, error.row, error.found, f"expected {error.rule}"
            ) from None
        return request_tensors(interface, values)

    def _lists(self, batch: Any, feature: ServedFeature) -> NDArray:
        """Returns lists of ids, [rows, count]: the last ones of a history, after zeros; of other
        features the first ones, before -1."""
        is_history = feature.input in self._interface.histories
        encoding = self._encodings[feature.name]
        single = dataclasses.replace(encoding, hotness=1)
        missing = pa.array(self.encoder.missing_values)
        try:
            lists = flatten(batch[encoding.column], _LONGEST, missing)
            rows, places = np.divmod(lists.slots, _LONGEST)
            try:
                ids = single.encode(lists.values, missing)[feature.name][:, 0]
            except InvalidValue as bad:
                bad.index = int(lists.slots[bad.index])
                raise
        except InvalidValue as bad:
            row = None if bad.index < 0 else bad.index // _LONGEST
            raise EncodingError(feature.name, encoding.column, row, bad.found, bad.rule) from None
        lengths = np.bincount(rows, minlength=lists.num_rows)
        result = np.full((lists.num_rows, feature.count), 0 if is_history else -1, np.int64)
        if is_history:
            places = places + feature.count - lengths[rows]
        fits = (places >= 0) & (places < feature.count)
        result[rows[fits], places[fits]] = ids[fits]
        return result


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

    return Encoder(tuple(map(encoding, interface.features)))


def request_tensors(interface: Interface, values: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """Arranges values [rows, count] by feature as the tensors of a request, [rows, *dims]."""
    num_rows = len(next(iter(values.values())))
    arrays = {
        tensor.name: np.empty((num_rows, int(np.prod(tensor.dims))), tensor.dtype)
        for tensor in interface.inputs
    }
    for feature in interface.features:
        array, columns = arrays[feature.input], slice(feature.start, feature.start + feature.count)
        numbers = values[feature.name]
        if feature.cardinality is not None:
            # A cast must not turn an id out of range into a valid one.
            numbers = np.minimum(numbers, np.int64(np.iinfo(array.dtype).max))
        array[:, columns] = numbers
    return {
        tensor.name: arrays[tensor.name].reshape(-1, *tensor.dims) for tensor in interface.inputs
    }
