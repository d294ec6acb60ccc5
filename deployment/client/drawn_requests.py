"""Random valid requests of a model, encoded and raw."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deployment.serving.interface import BOOL, ENCODER_FOLDER, FLOAT64, TEXT, Interface, RawColumn
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import FeatureEncoding, Identity
from preproc.encoding.profile import ColumnProfile
from preproc.encoding.vocabulary import Vocabulary

_NO_PROFILE = ColumnProfile(0, 0)


def drawn_request(model: Interface, rows: int, rng: np.random.Generator) -> dict[str, NDArray]:
    """Draws an encoded request with normal numerical features and uniform ids.

    Lengths of histories are uniform, too; those of the first row are empty.

    Returns:
        Tensors by name, [rows, *dims] each.
    """
    arrays = {}
    for tensor in model.inputs:
        is_history = tensor.name in model.histories
        features = [feature for feature in model.features if feature.input == tensor.name]
        values = np.zeros((rows, int(np.prod(tensor.dims))), tensor.dtype)
        for feature in features:
            shape = rows, feature.count
            if feature.cardinality is None:
                drawn = rng.standard_normal(shape)
            else:
                # In histories 0 is padding; a feature without other ids stays 0.
                first = min(int(is_history), feature.cardinality - 1)
                drawn = rng.integers(first, feature.cardinality, shape)
            values[:, feature.start : feature.start + feature.count] = drawn
        arrays[tensor.name] = values.reshape(rows, *tensor.dims)
        if is_history:
            steps = tensor.dims[1]
            has_events = all(feature.cardinality > 1 for feature in features)
            lengths = rng.integers(0, steps * has_events, rows, endpoint=True)
            lengths[0] = 0
            padding = np.arange(steps) < steps - lengths[:, np.newaxis]
            arrays[tensor.name][np.broadcast_to(padding[:, np.newaxis], (rows, *tensor.dims))] = 0
    return arrays


def drawn_rows(
    folder: Path, interface: Interface, rows: int, rng: np.random.Generator
) -> dict[str, NDArray]:
    """Draws raw rows: uniform values of vocabularies, numbers from the quantiles of the training.

    Args:
        folder: version folder of the model, which has the encoder.
        interface: interface of the model, which has columns.
    """
    encoder = Encoder.load(folder / ENCODER_FOLDER)
    encodings: dict[str, FeatureEncoding] = {}
    names = {feature.name for feature in interface.features}
    for encoding in encoder.features:
        if names.intersection(encoding.features):
            encodings.setdefault(encoding.column, encoding)
    return {
        column.name: _drawn(
            column,
            encodings[column.name],
            encoder.profile.get(column.name, _NO_PROFILE),
            (rows, encodings[column.name].hotness),
            rng,
        )
        for column in interface.columns
    }


def _drawn(
    column: RawColumn,
    encoding: FeatureEncoding,
    profile: ColumnProfile,
    shape: tuple[int, int],
    rng: np.random.Generator,
) -> NDArray:
    values: NDArray
    if isinstance(encoding, Vocabulary) and len(encoding.values):
        values = np.array(encoding.values.to_pylist(), object)
    elif isinstance(encoding, Identity):
        values = np.arange(encoding.cardinality)
    elif profile.quantiles:
        values = np.array(profile.quantiles)
    else:
        values = np.array([value for value, _ in profile.frequent] or [column.example], object)
    drawn = rng.choice(values, shape)
    if column.dtype == TEXT:
        return np.array([[str(v).encode() for v in row] for row in drawn], object).reshape(shape)
    if column.dtype == BOOL:
        return drawn == "true"
    return drawn.astype(np.float64 if column.dtype == FLOAT64 else np.int64)
