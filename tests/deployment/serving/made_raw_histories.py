"""A small model of histories, made by hand: its encoder and its interface."""

from pathlib import Path

import pyarrow as pa

from deployment.serving import checksums
from deployment.serving.interface import (
    ENCODER_FOLDER,
    RECOMMENDER,
    TEXT,
    Interface,
    ServedFeature,
    ServedLookup,
    ServedTensor,
)
from deployment.serving.raw.input_columns import raw_columns
from preproc.encoding.encoder import Encoder
from preproc.encoding.profile import ColumnProfile
from tests.deployment.serving.made_raw_model import vocabulary

USER, TARGET, HISTORY = "user_features", "target_features", "positive_history"
# Books a and c are of genre 2, b of genre 1.
ENCODER = Encoder(
    (
        vocabulary("user_id", "7", "12", column="shopper", is_integer=True),
        vocabulary("item", "a", "b", "c", column="book", attributes={"genre": pa.array([2, 1, 2])}),
    ),
    profile={"shopper": ColumnProfile(9, missing=0)},
)
_FEATURES = (
    ServedFeature("user_id", USER, 0, 1, 3),
    ServedFeature("item", TARGET, 0, 1, 4),
    ServedFeature("genre", TARGET, 1, 1, 3),
    ServedFeature("item_pos", HISTORY, 0, 3, 4),
    ServedFeature("genre_pos", HISTORY, 3, 3, 3),
)
_TABLES = ("user_id", "item", "genre", "item", "genre")
INTERFACE = Interface(
    recipe="sim",
    inputs=(
        ServedTensor(USER, "int64", (1,)),
        ServedTensor(TARGET, "int64", (2,)),
        ServedTensor(HISTORY, "int64", (2, 3)),
    ),
    features=_FEATURES,
    lookups=tuple(
        ServedLookup(table, feature.input, feature.start, feature.count, None)
        for table, feature in zip(_TABLES, _FEATURES, strict=True)
    ),
    tables=(),
    dense_inputs=(),
    histories=(HISTORY,),
    encoder=ENCODER.digest,
)
RAW = INTERFACE._replace(columns=raw_columns(ENCODER, INTERFACE))
_SEARCH = INTERFACE._replace(candidate_input=TARGET, top=2, items=TEXT, role=RECOMMENDER)
RAW_SEARCH = _SEARCH._replace(columns=raw_columns(ENCODER, _SEARCH))


def write_encoder(folder: Path, encoder: Encoder = ENCODER) -> Path:
    """A version folder with the encoder alone."""
    encoder.save(folder / ENCODER_FOLDER)
    checksums.write(folder)
    return folder
