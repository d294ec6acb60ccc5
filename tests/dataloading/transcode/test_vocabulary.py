"""Vocabularies as text files."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataloading.keys.vocabulary import write_counted
from dataloading.transcode.encode import vocabulary

BYTE_ORDER_MARK = "\ufeff"


@pytest.mark.parametrize(
    "values",
    [
        [f"{BYTE_ORDER_MARK}abc", "abc", f"x{BYTE_ORDER_MARK}"],
        [BYTE_ORDER_MARK * 2, BYTE_ORDER_MARK],
        ["abc", f"{BYTE_ORDER_MARK}abc"],
        [f"{BYTE_ORDER_MARK}a\tb\\", "c\n"],
    ],
)
def test_byte_order_marks_in_values(tmp_path, values):
    counts = list(range(len(values), 0, -1))
    pq.write_table(pa.table({"value": values, "count": counts}), tmp_path / "values")
    write_counted(tmp_path / "values", tmp_path / "text.tsv")
    assert vocabulary.read_text(tmp_path / "text.tsv", tmp_path / "again") == len(values)
    again = pq.read_table(tmp_path / "again")
    assert again.column("value").to_pylist() == values
    assert again.column("count").to_pylist() == counts
