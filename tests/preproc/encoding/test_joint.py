"""Columns of a request that are encoded together: equal to `Encoder.encode`."""

import struct

import numpy as np
import pyarrow as pa
import pytest

from preproc.encoding.encoder import Encoder
from preproc.encoding.joint import JointEncoder, PackedTexts, Texts
from preproc.encoding.numbers import Number
from preproc.encoding.vocabulary_lookup import JointIndex, TextIndex
from tests.vocabularies import vocabulary

LONG = ["a" * n for n in (7, 8, 9, 16, 17, 300)]


ENCODER = Encoder(
    (
        vocabulary("city", ["Bern", "Zürich", "東京", *LONG]),
        vocabulary("shop", ["Bern", "b" * 8]),
        vocabulary("code", [7, 12, -3], is_integer=True),
        Number(name="plain", column="plain", fill=1.5),
        Number(
            name="price",
            column="price",
            transformation="standardize",
            mean=3.7,
            deviation=1.3,
            fill=2.0,
            indicator="price_missing",
        ),
        Number(name="log", column="log", transformation="log", mean=0.3, deviation=0.0, fill=0.0),
        Number(name="count", column="count", transformation="log", offset=3.0, fill=2.0),
        Number(
            name="rank", column="rank", transformation="quantile", quantiles=(0.0, 1.0, 5.0), fill=1
        ),
        Number(name="needed", column="needed"),
    )
)
FEATURES = tuple(encoding.name for encoding in ENCODER.features)


@pytest.fixture(scope="module")
def joint():
    return JointEncoder(ENCODER, FEATURES)


def columns(num_rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    texts = ["Bern", "Zürich", "東京", "Bonn", "", "NA", "b" * 8, "b" * 9, "7", "-3", "8", *LONG]
    result = {
        name: np.array([text.encode() for text in rng.choice(texts, num_rows)], object)[:, None]
        for name in ("city", "shop", "code")
    }
    for name in ("plain", "price", "log", "count", "rank", "needed"):
        values = rng.normal(0, 10.0 ** rng.integers(-3, 9), (num_rows, 1))
        if name != "needed":
            values[rng.random(num_rows) < 0.3] = np.nan
        result[name] = values
    return result


def by_feature(joint: JointEncoder, arrays) -> dict[str, list]:
    pairs = [
        (name, matrix[:, number].tolist())
        for names, matrix in zip(joint.features, arrays, strict=True)
        for number, name in enumerate(names)
    ]
    return dict(pairs)


def expected(rows) -> dict[str, list]:
    values = {
        name: pa.array(column.ravel(), pa.binary() if column.dtype == object else None)
        for name, column in rows.items()
    }
    return {name: array[:, 0].tolist() for name, array in ENCODER.encode(values).items()}


@pytest.mark.parametrize("num_rows", [1, 2, 500])
def test_equal_to_the_encoder(joint, num_rows):
    for seed in range(3):
        rows = columns(num_rows, seed)
        assert by_feature(joint, joint.encode(rows, num_rows)) == expected(rows)


def test_absent_columns(joint):
    rows = {"needed": np.array([[2.0], [-1.0]])}
    values = by_feature(joint, joint.encode(rows, 2))
    assert values["needed"] == [2, -1] and values["plain"] == [1.5, 1.5]
    assert values["price_missing"] == [1, 1] and values["city"] == values["code"] == [0, 0]
    assert joint.encode({}, 2) is None, "a number without a fill value"


@pytest.mark.parametrize(
    "changed",
    [
        {"city": b" Bern"},
        {"city": b"\xff"},
        {"code": b"7.0"},
        {"plain": np.inf},
        {"needed": np.nan},
    ],
)
def test_values_for_the_encoder(joint, changed):
    rows = columns(3)
    ((name, value),) = changed.items()
    rows[name][1, 0] = value
    assert joint.encode(rows, 3) is None


def test_text_that_continues_in_the_next_one(joint):
    rows = columns(2)
    start, end = "ü".encode()[:1], "ü".encode()[1:]
    rows["city"] = np.array([[start], [end]], object)
    assert joint.encode(rows, 2) is None


def test_kinds_of_encodings():
    others = Encoder(
        (
            vocabulary("required", ["a"], first_id=0),
            vocabulary("empty", []),
            vocabulary("list", ["a"], hotness=2),
            Number(name="small", column="small", dtype="float16"),
        )
    )
    joint = JointEncoder(others, [encoding.name for encoding in others.features])
    assert joint.features == ((), ())
    numbers, ids = joint.encode({}, 2)
    assert (numbers.shape, ids.shape) == ((2, 0), (2, 0))


def with_lengths(texts: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


@pytest.mark.parametrize(
    "texts",
    [
        *([], [b""], [b"abc", b"", b"", b"de"], [b"\0\0\0\0\0", b"\1\0\0\0", b"a"]),
        [b"x" * 255, b"y" * 256, b"z" * 70_000, b""],
    ],
)
def test_texts_with_lengths(texts):
    content = with_lengths(texts)
    assert Texts.packed([content]).array().to_pylist() == texts
    packed = np.empty(len(texts), object)
    for place in range(len(texts))[:1]:
        packed[place] = PackedTexts(content, len(texts))
    mixed = np.concatenate(
        [np.array([b"q"], object), packed, np.array([b"", b"r"], object), packed]
    )
    assert Texts.read(mixed).array().to_pylist() == [b"q", *texts, b"", b"r", *texts]


def test_indexes_stay_usable():
    values = [pa.array(["a", "b"]), pa.array([f"{n}" for n in range(1000)])]
    indexes = [TextIndex(array) for array in values]
    JointIndex(indexes)
    assert indexes[0].find(pa.array(["b", "c", None, "a"])).tolist() == [1, -1, -1, 0]
    assert indexes[1].find(values[1]).tolist() == list(range(1000))
