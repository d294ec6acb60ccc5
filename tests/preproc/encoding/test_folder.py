"""Folder of an encoder: saved, loaded, damaged."""

import dataclasses
import json
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preproc.encoding import encoder_folder
from preproc.encoding.encoder import Encoder, EncodingError
from preproc.encoding.encodings import HashBuckets, Identity, Label
from preproc.encoding.numbers import Bins, Number
from preproc.encoding.profile import ColumnProfile
from preproc.encoding.vocabulary import Vocabulary

NAME = "user/id ä"
PROFILE = ColumnProfile(10, 2, 0.25, frequent=(("b", 5), ("a", 3)))


def encoder(values=("b", "a"), **changes):
    array = pa.array(values, pa.string())
    settings = {
        "counts": pa.array(range(len(values), 0, -1), pa.int64()),
        "last_seen": pa.array([1, 2, 3][: len(values)], pa.int32()).cast(pa.date32()),
        "previous_ids": pa.array([2, None, None][: len(values)], pa.int64()),
        "hotness": 2,
        "threshold": 2,
    }
    features = (
        Vocabulary(name=NAME, column="user", values=array, **settings | changes),
        Number(name="n", column="n", transformation="quantile", quantiles=(0.5, 1.0), fill=0.1),
        Bins(name="b", column="n", edges=(0.5,)),
        HashBuckets(name="h", column="h", buckets=10),
        Identity(name="i", column="i", cardinality=10),
        Label(name="l", column="l", spellings=("no", "yes")),
    )
    return Encoder(features, ("?",), {"user": PROFILE})


def test_round_trip(tmp_path):
    path = tmp_path / "day=1" / "encoder"
    saved = encoder()
    saved.save(path)
    loaded = Encoder.load(path)
    assert loaded == saved
    assert (
        loaded.digest == saved.digest == json.loads((path / "encoder.json").read_text())["digest"]
    )
    assert [file.name for file in (path / "vocabulary").iterdir()] == ["user%2Fid%20%C3%A4.parquet"]
    assert encoder_folder.vocabulary_file(path, NAME).is_file()
    table = pq.ParquetFile(encoder_folder.vocabulary_file(path, NAME)).read()
    assert table.schema.names == ["value", "count", "last_seen", "previous_id"]


def test_empty_vocabulary(tmp_path):
    saved = encoder(())
    saved.save(tmp_path / "encoder")
    loaded = Encoder.load(tmp_path / "encoder")
    assert loaded == saved
    assert loaded.encode({"user": ["a"]}, [NAME])[NAME].tolist() == [[0, 0]]


def test_attributes(tmp_path):
    saved = encoder(attributes={"city": pa.array([4, 1]), "count": pa.array([0, 3])})
    saved.save(tmp_path / "encoder")
    loaded = Encoder.load(tmp_path / "encoder")
    assert loaded == saved and loaded.digest != encoder().digest
    assert loaded.features[0].features == (NAME, "city", "count")
    ids = loaded.encode({"user": ["a", "b;a", "b;?"]}, [NAME])
    assert ids["city"].tolist() == [[1, 0], [4, 1], [4, 0]]
    assert ids["count"].tolist() == [[3, 0], [0, 3], [0, 0]]
    names = [{"city": pa.array([4, 1])}, {"town": pa.array([4, 1])}, {"city": pa.array([1, 4])}]
    assert len({encoder(attributes=each).digest for each in names}) == 3
    with pytest.raises(ValueError, match="attribute 'city': expected 2 values of int64"):
        encoder(attributes={"city": pa.array([4])})
    with pytest.raises(ValueError, match="expected the first id 1"):
        encoder(attributes={"city": pa.array([4, 1])}, first_id=0)


def test_digest():
    """The digest depends on values, not on the profile or on how Arrow stores them."""
    digest = encoder().digest
    first, *features = encoder().features
    part = dataclasses.replace(first, values=pa.array(["xyz", "b", "a", "x"]).slice(1, 2))
    assert Encoder((part, *features), ("?",)).digest == digest
    others = [
        encoder(("a", "b")),
        encoder(("ba", "")),
        encoder(counts=pa.array([2, 2], pa.int64())),
        encoder(last_seen=None),
        encoder(previous_ids=None),
        encoder(threshold=3),
        Encoder(encoder().features, ("-",)),
        Encoder(encoder().features[:1], ("?",)),
    ]
    assert len({digest, *(other.digest for other in others)}) == 9


def test_stored_vocabularies(tmp_path):
    """An encoder whose vocabularies are files: in row groups, compressed, of any number of them."""
    values = pa.array([f"v{i}" * (i % 9) + chr(0x6F22) * (i % 3) + str(i) for i in range(70_000)])
    counts = pa.array(range(len(values), 0, -1), pa.int64())
    fitted = Vocabulary(name=NAME, column="c", values=values, counts=counts, threshold=2)
    prototype = dataclasses.replace(fitted, values=values[:0], counts=counts[:0])
    file = encoder_folder.vocabulary_file(tmp_path, NAME)
    file.parent.mkdir()
    table = pa.table({"value": values, "count": counts})
    pq.write_table(table, file, row_group_size=7000, compression="zstd")
    features = (*encoder().features[1:], prototype)
    digest = encoder_folder.complete(tmp_path, features, ("",), {})
    loaded = Encoder.load(tmp_path)
    assert loaded == Encoder((*features[:-1], fitted), ("",))
    assert loaded.digest == digest


def test_pickled():
    assert pickle.loads(pickle.dumps(encoder())) == encoder()
    error = pickle.loads(pickle.dumps(EncodingError("f", "c", 3, "x", "a number")))
    assert (error.feature, error.column, error.row, error.found) == ("f", "c", 3, "x")


def edit(name, **changes):
    def damage(path):
        content = json.loads((path / name).read_text())
        (path / name).write_text(json.dumps(content | changes))

    return damage


def remove(name):
    return lambda path: next(path.rglob(name)).unlink()


def write(name, content):
    return lambda path: next(path.rglob(name)).write_bytes(content)


def replace_vocabulary(**columns):
    return lambda path: pq.write_table(
        pa.table(columns), encoder_folder.vocabulary_file(path, NAME)
    )


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (edit("encoder.json", version=2), "expected version 1, got 2: prepare the raw rows again"),
        (edit("encoder.json", missing_values=["-"]), "does not match its digest"),
        (edit("encoder.json", features=[{"kind": "other"}]), "got 'other'"),
        (edit("encoder.json", features=[{"kind": "number", "size": 1}]), "'size'"),
        (write("encoder.json", b'{"version": 1'), "expected the complete folder of an encoder"),
        (edit("profile.json", user={"size": 1}), "'size'"),
        (remove("encoder.json"), "the data set has no encoder"),
        (remove("profile.json"), "No such file"),
        (write("*.parquet", b"PAR1"), "Parquet"),
        (replace_vocabulary(value=["a"]), "expected 2 rows, got 1"),
        (replace_vocabulary(value=[1, 2], count=[2, 1]), "values: expected 2 values of string"),
        (replace_vocabulary(value=["a", "b"], count=[2, 1]), "does not match its digest"),
    ],
)
def test_damaged(tmp_path, damage, message):
    encoder().save(tmp_path)
    damage(tmp_path)
    with pytest.raises(ValueError, match=message) as error:
        Encoder.load(tmp_path)
    assert str(tmp_path) in str(error.value)
