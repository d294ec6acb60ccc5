"""Mutated records of histories: rejected with a message, or read as protocol buffers read them.

A file with damaged bytes may be rejected or read as before, never read as other values.
"""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf.message import DecodeError
from hypothesis import strategies as st

from dataloading.formats.sequence_tfrecord.dataset import SequenceTFRecordDataset
from tests.dataloading.formats.test_sequence_tfrecord import (
    FEATURES,
    LENGTH,
    example,
    rows_of,
    spec_of,
)
from tests.dataloading.fuzz.test_mutations import sweep
from tests.dataloading.fuzz.test_record_mutations import contents, edited, framed

pytestmark = pytest.mark.long

NUM_ROWS = 7
FILES = {
    prebatch: b"".join(
        framed(example(rows_of(NUM_ROWS)[start : start + prebatch]))
        for start in range(0, NUM_ROWS, prebatch)
    )
    for prebatch in (1, 3)
}
# The loader's columns: the label is the last.
COLUMNS = [*list(FEATURES)[1:], "label"]


@st.composite
def mutations(draw) -> tuple[str, int, bytes]:
    """Mutated files: the kind of the mutation, the prebatch, and the content."""
    kind = draw(st.sampled_from(["bytes", "content", "content", "content", "records"]))
    prebatch = draw(st.sampled_from([1, 3]))
    file = FILES[prebatch]
    if kind == "bytes":
        return kind, prebatch, edited(draw, file)
    records = contents(file)
    if kind == "content":
        index = draw(st.integers(0, len(records) - 1))
        for _ in range(draw(st.integers(1, 2))):
            records[index] = edited(draw, records[index])
    else:
        records = draw(st.lists(st.sampled_from(records), max_size=4))
    return kind, prebatch, b"".join(map(framed, records))


def values_of(record: bytes) -> dict[str, list[int]]:
    """Returns each feature's values by Python's protocol buffers; where these are stricter, e.g.
    with a stray byte after the last field, by TensorFlow's own parser of single Examples."""
    try:
        result = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        wanted = {name: tf.io.VarLenFeature(tf.int64) for name in COLUMNS}
        parsed = tf.io.parse_single_example(record, wanted)
        return {name: parsed[name].values.numpy().tolist() for name in COLUMNS}
    return {name: list(result[name].int64_list.value) for name in COLUMNS}


def read_slowly(file: bytes) -> list[list] | None:
    """Returns each column's rows, or None if a record does not belong to the data set."""
    rows = {name: [] for name in COLUMNS}
    for record in contents(file):
        result = values_of(record)
        num_samples = len(result["item"])
        for name, column in rows.items():
            values = result[name]
            width = LENGTH if "dimensions" in FEATURES[name] else 1
            if num_samples == 1 and width > 1:
                values = [0] * (width - len(values)) + values
            if len(values) != num_samples * width:
                return None
            column += np.reshape(values, (num_samples, width)).tolist()
    histories = [column for column in rows.values() if len(column[0]) > 1]
    for of_row in zip(*histories, strict=True):
        padding = [[id == 0 for id in history] for history in of_row]
        if any(steps != sorted(padding[0], reverse=True) for steps in padding):
            return None
    return list(rows.values())


def loaded(file: bytes) -> list[list] | None:
    """Each column's rows; None where they are refused."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "train.tfrecord").write_bytes(file)
        try:
            loader = SequenceTFRecordDataset(spec_of(Path(name)), "train", 4)
            rows = [array.tolist() for array in loader.stored_samples(0, loader.num_samples)]
        except ValueError as error:
            assert "split 'train'" in str(error) and len(str(error)) > 40, error
            return None
    return rows


def test_mutated_records():
    refused = []

    def one(mutation):
        kind, prebatch, file = mutation
        rows = loaded(file)
        refused.append(rows is None)
        if rows is None:
            return
        right = read_slowly(FILES[prebatch] if kind == "bytes" else file)
        assert rows == right, kind

    for prebatch, file in FILES.items():
        one(("bytes", prebatch, file))
        assert not refused.pop()
    sweep(3000, mutations(), one)
    assert {True, False} == set(refused), "some are refused, and some are not"


def test_sensitivity_of_the_reference():
    """A changed id in a whole record is read as it is, by both."""
    records = contents(FILES[1])
    parsed = tf.train.Example.FromString(records[2])
    parsed.features.feature["user"].int64_list.value[0] = 77
    file = b"".join(map(framed, [*records[:2], parsed.SerializeToString(), *records[3:]]))
    rows = loaded(file)
    assert rows[0] == [[0], [1], [77], [3], [4], [5], [6]] and rows == read_slowly(file)
