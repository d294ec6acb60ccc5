"""Vocabularies: values of ids and ids of values, in both formats, and files that do not fit."""

import numpy as np
import pyarrow as pa
import pytest

from dataloading.keys.vocabulary import encoder_file, own_ids, read_vocabulary, write_counted


def write(folder, name, text):
    (folder / "vocabulary").mkdir(exist_ok=True)
    (folder / "vocabulary" / name).write_text(text)


def test_numbered_values(tmp_path):
    write(tmp_path, "user.csv", "id,value\n0,70\n1,-3\n2,500\n")
    users = read_vocabulary(tmp_path, "user", 3)
    assert users.values.type == pa.int64() and users.first_id == 0
    assert users.decode(np.array([2, 0, 0])).to_pylist() == [500, 70, 70]
    assert users.encode(pa.array(["-3", "500"]), "f").tolist() == [1, 2]


@pytest.mark.parametrize("odd", ["007", "7.0", "", "1e3", "+1", "9999999999999999999"])
def test_integers_with_one_text(tmp_path, odd):
    write(tmp_path, "item.csv", f'id,value\n0,"12"\n1,"{odd}"\n')
    assert read_vocabulary(tmp_path, "item", 2).values.to_pylist() == ["12", odd]


def test_texts_with_commas_quotes_and_lines(tmp_path):
    write(tmp_path, "item.csv", 'id,value\n0,"a,b"\n1,"a ""x"""\n2,"two\nlines"\n3,NA\n')
    values = read_vocabulary(tmp_path, "item", 4).values
    assert values.to_pylist() == ["a,b", 'a "x"', "two\nlines", "NA"]


def test_counted_values(tmp_path):
    """Files of `preproc.criteo`, in which id 0 stands for no value."""
    texts = [
        "\ufeffplain",
        "nul\0",
        "plain",
        "tab\there",
        "line\nend",
        "back\\slash",
        "\\t",
        "\\\\t",
    ]
    texts += ['quo"te', "r\r", "\ufeff\ufeff", "\ufeff", "x\ufeff"]
    table, file = tmp_path / "table.parquet", tmp_path / "vocabulary/my%20kind.tsv"
    pa.parquet.write_table(
        pa.table({"value": texts, "count": pa.array([9] * len(texts), pa.int64())}), table
    )
    file.parent.mkdir()
    write_counted(table, file)
    kinds = read_vocabulary(tmp_path, "my kind", 1 + len(texts))
    assert kinds.values.to_pylist() == [None, *texts] and kinds.first_id == 1
    assert kinds.encode(pa.array(texts), "f").tolist() == list(range(1, 1 + len(texts)))


@pytest.mark.parametrize("first_id", [0, 1])
def test_values_of_an_encoder(tmp_path, first_id):
    file = tmp_path / encoder_file("my kind")
    file.parent.mkdir(parents=True)
    pa.parquet.write_table(pa.table({"value": ["7", "-3"], "count": [2, 1]}), file)
    kinds = read_vocabulary(tmp_path, "my kind", 2 + first_id)
    assert kinds.values.to_pylist() == [None] * first_id + [7, -3]
    assert kinds.first_id == first_id
    with pytest.raises(ValueError, match="expected 5 values"):
        read_vocabulary(tmp_path, "my kind", 6)


def test_no_vocabulary(tmp_path):
    assert read_vocabulary(tmp_path, "user", 3) is None
    assert own_ids(3).decode(np.array([2, 1])).to_pylist() == [2, 1]
    assert own_ids(3).encode(pa.array(["2"]), "f").tolist() == [2]


@pytest.mark.parametrize("value", ["9", "", None])
def test_unknown_value(tmp_path, value):
    write(tmp_path, "user.csv", "id,value\n0,70\n1,71\n")
    users = read_vocabulary(tmp_path, "user", 2)
    message = r"--users f: row 2: expected one of the 2 values of .*user.csv, such as 70, 71, got "
    with pytest.raises(ValueError, match=message + (repr(value) if value else "")):
        users.encode(pa.array(["70", value]), "--users f")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("user.csv", "id,value\n0,a\n1,b\n", "expected 3 values, as the cardinality of .* got 2"),
        ("user.csv", "id,value\n0,a\n2,b\n3,c\n", "expected the ids 0, 1, 2, .* got 2 after 1 l"),
        ("user.csv", "id,name\n0,a\n", "is not a vocabulary: .*value"),
        ("user.tsv", "a\t3\n", "expected 2 values, as the cardinality .* is 3, got 1"),
        ("user.tsv", "a\tb\n", "is not a vocabulary; its lines are value, tab, count"),
        ("user.tsv", "a\t99999999999999999999\n", "is not a vocabulary; its lines are value, tab"),
    ],
)
def test_files_that_do_not_fit(tmp_path, name, text, message):
    write(tmp_path, name, text)
    with pytest.raises(ValueError, match=rf"{name}: {message}"):
        read_vocabulary(tmp_path, "user", 3)
