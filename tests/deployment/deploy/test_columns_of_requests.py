"""Choice of raw or encoded requests, by the encoder of a data set."""

from types import SimpleNamespace

import pytest

from deployment.deploy.deploy_options import LocalOptions
from deployment.deploy.raw_inputs import with_encoder
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import HashBuckets
from tests.deployment.serving.made_raw_histories import ENCODER, INTERFACE, TARGET
from tests.deployment.serving.made_raw_model import vocabulary

USER, ITEM = ENCODER.features
PLAIN = INTERFACE._replace(encoder="")
SEARCH = PLAIN._replace(candidate_input=TARGET, top=2)


def chosen(tmp_path, interface=PLAIN, encoder=ENCODER, **options):
    """The interface of a model whose data set has an encoder."""
    if encoder is not None:
        encoder.save(tmp_path / "encoder")
    trained = SimpleNamespace(
        path="model", encoder_folder=None if encoder is None else tmp_path / "encoder"
    )
    flags = LocalOptions(checkpoint_dir="model", model_repository=tmp_path, **options)
    return with_encoder(interface, flags, trained)


def test_histories(tmp_path):
    interface = chosen(tmp_path)
    assert [column.name for column in interface.columns] == ["shopper", "book", "item_pos"]
    assert interface.encoder == ENCODER.digest
    encoded = chosen(tmp_path, inputs="encoded")
    assert encoded == PLAIN._replace(encoder=ENCODER.digest)


def test_recommendations(tmp_path):
    interface = chosen(tmp_path, SEARCH)
    names = [column.name for column in interface.columns]
    assert names == ["shopper", "item_pos", "top", "excluded_items"]
    assert interface.items == "text" and interface.top == 2


@pytest.mark.parametrize(
    ("interface", "encoder", "message"),
    [
        (PLAIN, None, "the data set of model has no encoder"),
        (
            PLAIN,
            Encoder((USER, vocabulary("item", "a", "b", "c", column="book"))),
            "the encoder of the data set of model lacks genre, genre_pos",
        ),
    ],
)
def test_encoders_of_earlier_versions(tmp_path, interface, encoder, message):
    """By default, requests have encoded tensors."""
    assert chosen(tmp_path, interface, encoder) == interface
    expected = f"--inputs raw: {message}: prepare the raw data again, or use --inputs encoded"
    with pytest.raises(ValueError, match=expected):
        chosen(tmp_path, interface, encoder, inputs="raw")


def test_items_without_original_values(tmp_path):
    features = SEARCH.features[:2]
    tables = {lookup.input: lookup for lookup in SEARCH.lookups[:2]}
    search = SEARCH._replace(features=features, lookups=(*tables.values(),), histories=())
    encoder = Encoder((USER, HashBuckets(name="item", column="book", buckets=4)))
    assert chosen(tmp_path, search, encoder) == search._replace(encoder=encoder.digest)
    message = "feature 'item': expected items of a vocabulary, got hash_buckets, or use --inputs"
    with pytest.raises(ValueError, match=message):
        chosen(tmp_path, search, encoder, inputs="raw")


@pytest.mark.parametrize("name", ["scores", "item_pos"])
def test_columns_with_names_of_others(tmp_path, name):
    encoder = Encoder((vocabulary("user_id", "7", "12", column=name), ITEM))
    with pytest.raises(ValueError, match=f"of different names, got '{name}' twice: rename"):
        chosen(tmp_path, PLAIN, encoder)


def test_unknown_ids(tmp_path):
    with pytest.raises(ValueError, match="--unknown_ids zero: expected a model of encoded"):
        chosen(tmp_path, unknown_ids="zero")
