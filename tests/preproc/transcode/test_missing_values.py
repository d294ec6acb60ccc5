"""Spellings of missing values in all formats: the data set is that of empty values."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.preproc.transcode.test_transcode import run, stored

FEATURES = ("city", "price", "age", "tags")


def write(path, spelling):
    """30 rows; in every fifth one all features are missing, and in each list one value is."""
    rows = [
        {
            "city": f"c{i % 3}",
            "price": f"{i}.5",
            "age": str(20 + i),
            "tags": [f"t{i % 2}", spelling, "x"],
            "click": str(i % 2),
        }
        | (dict.fromkeys(FEATURES, spelling) | {"tags": [spelling] * 3} if i % 5 == 0 else {})
        for i in range(30)
    ]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)) + "\n \n\t\n")
    else:
        lines = [
            ",".join([*list(row.values())[:3], ";".join(row["tags"]), row["click"]]) for row in rows
        ]
        path.write_text("\n".join([",".join(rows[0]), *lines]) + "\n \n\n\t\n")
    return path


@pytest.mark.parametrize(
    ("kind", "spelling"), [("csv", " N/A "), ("parquet", "NULL"), ("jsonl", "?")]
)
def test_spellings_in_all_formats(kind, spelling, tmp_path):
    flags = ("--label=click", "--frequency_threshold=0", "--numerical=price,age")
    flags = (*flags, "--missing_values=?")
    outputs = []
    for name, text in (("plain", ""), ("spelled", spelling)):
        path = write(tmp_path / f"{name}.{kind}", text)
        assert run(path, *flags, output=tmp_path / name) == 0
        outputs.append([stored(tmp_path / name, feature) for feature in FEATURES])
    assert outputs[0] == outputs[1]
    city, price, _, tags = outputs[0]
    assert city[:6] == [0, 2, 3, 1, 2, 0] and len(city) == 30
    assert price[0] == price[5] == 0.0
    assert tags[0] == [0, 0, 0] and tags[1][1] == 0 and tags[1][2] > 0
