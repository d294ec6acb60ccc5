"""Encodings as ids: hash buckets, identity and vocabularies, also those that grow."""

import datetime
import functools

import pyarrow as pa
import pytest
import xxhash

from preproc.encoding.arrow_columns import InvalidValue
from preproc.encoding.encodings import HashBuckets, Identity
from preproc.encoding.vocabulary import Vocabulary
from tests import vocabularies

DAY = datetime.date(2026, 11, 29)


vocabulary = functools.partial(vocabularies.vocabulary, "x")


def counted(**counts):
    return pa.table({"value": list(counts), "count": pa.array(counts.values(), pa.int64())})


def days(*before):
    return pa.array([DAY - datetime.timedelta(number) for number in before], pa.date32())


def ids(encoding, values):
    return encoding.encode(pa.array(values))["x"][:, 0].tolist()


def test_hash_buckets():
    encoding = HashBuckets(name="x", column="x", buckets=1000)
    # From the xxHash project's own tests and pages: XXH64 with seed 0.
    known = {"": 0xEF46DB3751D8E999, "a": 0xD24EC4F1A98C6E5B, "abc": 0x44BC2CF5AD770999}
    assert ids(encoding, list(known)) == [value % 1000 for value in known.values()]
    bucket = [xxhash.xxh64_intdigest(text) % 1000 for text in (b"7", b"", "\u00e4".encode())]
    assert ids(encoding, [" 7", "NULL", "\u00e4", "7"]) == [*bucket, bucket[0]]
    assert ids(encoding, [7.0, None]) == bucket[:2]
    assert (encoding.num_ids, encoding.dtype) == (1000, "int16")
    lists = HashBuckets(name="x", column="x", buckets=1000, hotness=3)
    arrays = lists.encode(pa.array(["7;", None]))
    assert arrays["x"].tolist() == [[bucket[0], bucket[1], 0], [0, 0, 0]]


def test_identity():
    encoding = Identity(name="x", column="x", cardinality=3)
    assert ids(encoding, ["0", "2.0"]) == [0, 2]
    assert encoding.decode([2]).to_pylist() == [2]
    for value, rule in (("3", r"\[0, 3\)"), ("-1", r"\[0, 3\)"), ("NA", "an id: assign")):
        with pytest.raises(InvalidValue, match=rule) as error:
            ids(encoding, ["1", value])
        assert error.value.index == 1
    assert encoding.dtype == "int8"
    assert Identity(name="x", column="x", cardinality=129).dtype == "int16"
    with pytest.raises(ValueError, match="expected 1 to what int8 holds, got 129"):
        Identity(name="x", column="x", cardinality=129, dtype="int8")


@pytest.mark.parametrize("values", [["True", "False"], ["false", "TRUE", "new"], ["true"]])
def test_spellings_of_booleans(values):
    """Booleans of JSON, Arrow and pandas are those of a CSV file, however that spells them."""
    encoding = vocabulary(values)
    spelled = [text.lower() for text in values]
    for value, text in ((True, "true"), (False, "false")):
        expected = spelled.index(text) + 1 if text in spelled else 0
        texts = [text, text.upper(), text.capitalize(), "1" if value else "0"]
        assert ids(encoding, texts) == [expected] * 4
        assert ids(encoding, [value]) == ids(encoding, [int(value)]) == [expected]
    assert ids(encoding, ["yes", None]) == [0, 0]
    assert ids(vocabulary(["True", "1"]), ["true", "1", "0"]) == [0, 2, 0]
    assert ids(vocabulary(["Truth", "0"]), ["true", "false"]) == [0, 0]


def test_vocabulary():
    encoding = vocabulary(["b", "a", "7"])
    assert ids(encoding, ["a", " b ", "c", None, "", "7.0"]) == [2, 1, 0, 0, 0, 0]
    assert ids(encoding, [7, 8]) == ids(encoding, [7.0, None]) == [3, 0]
    assert (encoding.num_ids, encoding.dtype) == (4, "int8")
    assert encoding.decode([0, 1, 3]).to_pylist() == [None, "b", "7"]
    encoding = vocabulary(["7", "-1"], is_integer=True)
    assert ids(encoding, ["7.0", "7", "-1.", "7.5", "x"]) == [1, 1, 2, 0, 0]


def test_vocabulary_without_unknown_values():
    encoding = vocabulary(["b", "a"], first_id=0)
    assert ids(encoding, ["a", "b"]) == [1, 0]
    assert encoding.num_ids == 2
    assert encoding.decode([0]).to_pylist() == ["b"]
    for value in ("c", None):
        with pytest.raises(InvalidValue, match="one of the 2 values .* such as b, a") as error:
            ids(encoding, ["a", value])
        assert error.value.index == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"counts": pa.array([1, 2], pa.int32())}, "counts: expected 2 values of int64, got '2 of"),
        ({"first_id": 2}, "first id: expected 0 or 1, got 2"),
        ({"last_seen": pa.array([1, 2])}, r"last_seen: expected 2 values of date32\[day\]"),
    ],
)
def test_settings(settings, message):
    arrays = {"values": pa.array(["a", "b"]), "counts": pa.array([1, 2], pa.int64())}
    with pytest.raises(ValueError, match=message):
        Vocabulary(name="x", column="x", **arrays | settings)


def test_repeated_value():
    with pytest.raises(ValueError, match="feature 'x': vocabulary: expected each value once"):
        ids(vocabulary(["a", "a"]), ["a"])


def test_growth():
    known = vocabulary(["b", "a"], [5, 4])
    grown = known.grown(counted(a=1, d=2, e=3, c=2, f=1), least=2)
    assert grown == vocabulary(["b", "a", "e", "c", "d"], [5, 5, 3, 2, 2])
    assert known.grown(counted(), least=1) == known

    known = vocabulary([f"v{number}" for number in range(127)])
    assert (known.dtype, known.grown(counted(a=1), least=1).dtype) == ("int8", "int16")
    # Values without days count as seen on the first date.
    grown = vocabulary(["b"]).grown(counted(c=1), least=1, date=DAY, evict_after=1)
    assert grown == vocabulary(["b", "c"], last_seen=days(0, 0))


def test_eviction():
    known = vocabulary(["a", "b", "c", "d"], [9, 8, 7, 6], last_seen=days(3, 2, 1, 3))
    grown = known.grown(counted(d=1, e=2), least=2, date=DAY, evict_after=2)
    assert grown == vocabulary(
        ["c", "d", "e"],
        [7, 7, 2],
        last_seen=days(1, 0, 0),
        previous_ids=pa.array([3, 4, None], pa.int64()),
    )
    again = grown.grown(counted(c=1), least=2, date=DAY)
    assert again.previous_ids is None
    assert again.counts.to_pylist() == [8, 7, 2]


def test_days_of_growth():
    """Rows of an earlier day do not set the last day back."""
    known = vocabulary(["a", "b"], last_seen=days(0, 5))
    grown = known.grown(counted(a=1), least=1, date=DAY - datetime.timedelta(2))
    assert grown.last_seen == days(0, 5)
    with pytest.raises(ValueError, match="date: expected the day of the new rows"):
        vocabulary(["a"], last_seen=days(0)).grown(counted(a=1), least=1)
    with pytest.raises(ValueError, match="date: expected the day"):
        vocabulary(["a"]).grown(counted(a=1), least=1, evict_after=3)
