"""Vocabularies, and encoders of data sets whose ids were made by hand."""

from pathlib import Path

import pyarrow as pa

from preproc.encoding.encoder import Encoder
from preproc.encoding.vocabulary import Vocabulary


def vocabulary(name: str, values: list, counts: list | None = None, **settings) -> Vocabulary:
    """Returns the vocabulary of a column with the name of the feature, of values seen once."""
    stored = pa.array(counts or [1] * len(values), pa.int64())
    texts = pa.array([str(value) for value in values], pa.string())
    return Vocabulary(name=name, column=name, values=texts, counts=stored, **settings)


def write_encoder(folder: Path, first_id: int = 0, **values: list) -> Encoder:
    """Writes the encoder of a data set; values: feature -> what its ids stand for."""
    features = (vocabulary(name, own, first_id=first_id) for name, own in values.items())
    encoder = Encoder(tuple(features))
    encoder.save(folder / "encoder")
    return encoder
