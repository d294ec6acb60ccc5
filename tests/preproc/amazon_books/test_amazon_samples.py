"""Splits of samples, and names of columns."""

import numpy as np
import pytest

from preproc.histories.samples import ColumnNames, NumberedLog, spec_of, write_split


def log_of(tmp_path, counts, num_items=9):
    """Users of whom each has the items 1, 2, and so on."""
    path = tmp_path / "events.bin"
    np.concatenate([np.arange(1, 1 + count, dtype=np.int32) for count in counts]).tofile(path)
    return NumberedLog(path, np.array(counts), (), (), num_items, len(counts))


@pytest.mark.parametrize("counts", [[2, 3, 4], [7, 2, 5]])
@pytest.mark.parametrize("with_validation", [False, True])
@pytest.mark.parametrize("least", [1, 2])
def test_events_of_splits(tmp_path, counts, with_validation, least):
    log = log_of(tmp_path, counts)
    result = {}
    for split in ("train", "validation", "test") if with_validation else ("train", "test"):
        write_split(log, tmp_path / split, with_validation, least)
        rows = np.fromfile(tmp_path / split / "rows.bin", np.int32).reshape(-1, 2).tolist()
        for row in rows:
            assert tuple(row) not in result
            result[tuple(row)] = split
    expected = {}
    for user, count in enumerate(counts, 1):
        for item in range(2, count + 1):
            is_validation = with_validation and item == count - 1
            split = "test" if item == count else "validation" if is_validation else "train"
            if split != "train" or item > least:
                expected[user, item] = split
    assert result == expected


def test_one_item(tmp_path):
    with pytest.raises(ValueError, match="one item"):
        spec_of(log_of(tmp_path, [3], 1), ColumnNames(("user",), ("item",)), ["test"], 3, {})


@pytest.mark.parametrize(
    ("user", "item", "name"),
    [(("user_id", "user_id"), ("item_id",), "user_id"), (("item_pos",), ("item",), "item_pos")],
)
def test_columns_of_one_name(user, item, name):
    with pytest.raises(ValueError, match=f"called {name}"):
        ColumnNames(user, item)
