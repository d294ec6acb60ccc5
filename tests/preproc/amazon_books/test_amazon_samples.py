"""Files of samples, by hand."""

import numpy as np
import pytest

from preproc.histories import samples
from preproc.histories.samples import ColumnNames, NumberedLog, spec_of, write_events, write_split


def log_of(tmp_path, histories, item_features=(), user_features=(), num_items=9):
    path = tmp_path / "events.bin"
    np.concatenate([np.array(items, np.int32) for items in histories]).tofile(path)
    counts = np.array([len(items) for items in histories])
    users, items = (
        tuple(np.array([0, *ids], np.int32) for ids in features)
        for features in (user_features, item_features)
    )
    return NumberedLog(path, counts, users, items, num_items, len(counts))


def rows_of(folder, width):
    rows = np.fromfile(folder / "rows.bin", np.int32).reshape(-1, width)
    ranges = np.fromfile(folder / "ranges.bin", np.int64).reshape(-1, 2)
    return rows.tolist(), ranges.tolist()


@pytest.mark.parametrize("block", [1, 1000])
def test_rows_by_hand(tmp_path, monkeypatch, block):
    """Two users: items 3, 5, 3, 8 and 9, 1; the category of item i is i + 10."""
    monkeypatch.setattr(samples, "_BLOCK", block)
    log = log_of(tmp_path, [[3, 5, 3, 8], [9, 1]], [range(11, 20)], [[7, 6]])
    write_events(log, tmp_path / "events", ColumnNames(("user",), ("item", "cat")))
    for name, expected in (("item", [3, 5, 3, 8, 9, 1]), ("cat", [13, 15, 13, 18, 19, 11])):
        assert np.fromfile(tmp_path / f"events/{name}.bin", np.int32).tolist() == expected
    assert write_split(log, tmp_path / "train", False, 1) == 2
    assert rows_of(tmp_path / "train", 4) == ([[1, 7, 5, 15], [1, 7, 3, 13]], [[0, 1], [0, 2]])
    assert write_split(log, tmp_path / "test", False, 1) == 2
    assert rows_of(tmp_path / "test", 4) == ([[1, 7, 8, 18], [2, 6, 1, 11]], [[0, 3], [4, 5]])


@pytest.mark.parametrize("counts", [[2, 3, 4], [7, 2, 5]])
@pytest.mark.parametrize("with_validation", [False, True])
@pytest.mark.parametrize("least", [1, 2])
def test_events_of_splits(tmp_path, counts, with_validation, least):
    log = log_of(tmp_path, [range(1, 1 + count) for count in counts])
    result = {}
    for split in ("train", "validation", "test") if with_validation else ("train", "test"):
        write_split(log, tmp_path / split, with_validation, least)
        for row in rows_of(tmp_path / split, 2)[0]:
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
        names = ColumnNames(("user",), ("item",))
        spec_of(log_of(tmp_path, [[1, 1, 1]], num_items=1), names, ["test"], 3, {})


def test_columns_of_one_name():
    with pytest.raises(ValueError, match="called user_id"):
        ColumnNames(("user_id", "user_id"), ("item_id",))
    with pytest.raises(ValueError, match="called item_pos"):
        ColumnNames(("item_pos",), ("item",))
