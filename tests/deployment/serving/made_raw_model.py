"""A small model of raw rows, made by hand: `made_models.CLICKS` with an encoder."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from deployment.serving import checksums
from deployment.serving import interface as interfaces
from deployment.serving.interface import (
    DENSE_FILE,
    ENCODER_FOLDER,
    TABLES_FOLDER,
    Interface,
    ServedFeature,
    ServedTensor,
)
from deployment.serving.raw.input_columns import raw_columns
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import Identity, Label
from preproc.encoding.numbers import Number
from preproc.encoding.profile import ColumnProfile
from preproc.encoding.vocabulary import Vocabulary
from tests.deployment.serving import made_models
from tests.deployment.serving.made_models import CATEGORICAL, CLICKS


def vocabulary(name: str, *values: str, **settings) -> Vocabulary:
    texts = pa.array(values, pa.string())
    counts = pa.array(range(len(values), 0, -1), pa.int64())
    return Vocabulary(name=name, values=texts, counts=counts, **{"column": name, **settings})


# Prices are halved, a missing age is 30; a city of three, two tags of four, three ids below 6.
ENCODER = Encoder(
    (
        Label(name="label", column="bought"),
        Number(name="price", column="price", transformation="standardize", deviation=2.0),
        Number(name="age", column="age", fill=30.0),
        vocabulary("city", "Bern", "Oslo", "Paris"),
        vocabulary("tags", "new", "sale", "red", "blue", hotness=2),
        Identity(name="words", column="words", cardinality=6, hotness=3),
    ),
    profile={"price": ColumnProfile(9, 0, quantiles=(1.0, 12.5, 20.0))},
)
INTERFACE = CLICKS._replace(
    inputs=(CLICKS.inputs[0], ServedTensor(CATEGORICAL, "int64", (6,))),
    features=(*CLICKS.features[:4], ServedFeature("words", CATEGORICAL, 3, 3, 6)),
    encoder=ENCODER.digest,
)
RAW = INTERFACE._replace(columns=raw_columns(ENCODER, INTERFACE))

ROWS = {
    "price": [3.0, 0.0, -2.0],
    "age": [2.0, None, 0.5],
    "city": ["Oslo", "", "Rome"],
    "tags": [["sale", "new"], ["red"], []],
    "words": [[5, 1], [1, 2, 3], []],
}
NUMBERS = np.array([[1.5, 2], [0, 30], [-1, 0.5]], np.float32)
IDS = np.array([[2, 2, 1, 5, 1, 0], [0, 3, 0, 1, 2, 3], [0, 0, 0, 0, 0, 0]])


def tensors() -> dict[str, np.ndarray]:
    """The rows as the server passes them."""

    def texts(*rows: list[str]) -> np.ndarray:
        return np.array([[text.encode() for text in row] for row in rows], object)

    return {
        "price": np.array([[3.0], [0.0], [-2.0]]),
        "age": np.array([[2.0], [np.nan], [0.5]]),
        "city": texts(["Oslo"], [""], ["Rome"]),
        "tags": texts(["sale", "new"], ["red", ""], ["", ""]),
        "words": texts(["5", "1", ""], ["1", "2", "3"], ["", "", ""]),
    }


def write(folder: Path, interface: Interface = RAW) -> Path:
    """A version folder of the model."""
    (folder / TABLES_FOLDER).mkdir(parents=True)
    interfaces.write(interface, folder)
    np.save(folder / TABLES_FOLDER / "two.npy", made_models.TWO)
    np.save(folder / TABLES_FOLDER / "words.npy", made_models.WORDS)
    made_models.write_dense(folder / DENSE_FILE)
    ENCODER.save(folder / ENCODER_FOLDER)
    checksums.write(folder)
    return folder
