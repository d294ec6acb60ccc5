"""Encoders of data sets whose ids were made by hand."""

from pathlib import Path

import pyarrow as pa

from preproc.encoding.encoder import Encoder
from preproc.encoding.vocabulary import Vocabulary


def write_encoder(folder: Path, first_id: int = 0, **values: list) -> Encoder:
    """Writes the encoder of a data set; values: feature -> what its ids stand for."""
    encoder = Encoder(
        tuple(
            Vocabulary(
                name=name,
                column=name,
                values=pa.array([str(value) for value in own]),
                counts=pa.array([1] * len(own), pa.int64()),
                first_id=first_id,
            )
            for name, own in values.items()
        )
    )
    encoder.save(folder / "encoder")
    return encoder
