"""Random raw rows of a model, as the tensors of a request."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deployment.serving.interface import BOOL, ENCODER_FOLDER, FLOAT64, TEXT, Interface, RawColumn
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import FeatureEncoding, Identity
from preproc.encoding.profile import ColumnProfile
from preproc.encoding.vocabulary import Vocabulary

_NO_PROFILE = ColumnProfile(0, 0)


def drawn_rows(
    folder: Path, interface: Interface, rows: int, rng: np.random.Generator
) -> dict[str, NDArray]:
    """Draws uniform values of vocabularies, and numbers from the quantiles of the training.

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
