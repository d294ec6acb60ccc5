"""Rows and negatives, by hand and by counting."""

import tracemalloc

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from preproc.amazon_books.engines.interface import NumberedLog
from preproc.amazon_books.negatives import POPULARITY, UNIFORM, draw, draw_by_popularity, row_keys
from preproc.amazon_books.parquet_rows import ColumnNames, block_rows, write_split
from preproc.amazon_books.samples import BYTES_PER_USER, SampleSplit, splits
from tests.preproc.amazon_books.amazon_reference import negative, random_64


def log_of(tmp_path, histories, item_features=(), num_items=9):
    path = tmp_path / "events.bin"
    np.concatenate([np.array(items, np.int32) for items in histories]).tofile(path)
    counts = np.array([len(items) for items in histories])
    features = tuple(np.array([0, *ids], np.int32) for ids in item_features)
    return NumberedLog(path, counts, (), features, num_items, len(counts))


def test_rows_by_hand(tmp_path):
    """Two users: items 3, 5, 3, 8 and 9, 1; the category of item i is i + 10."""
    log = log_of(tmp_path, [[3, 5, 3, 8], [9, 1]], [range(11, 20)])
    train, test = splits(log, with_validation=False, max_history=3, seed=0)
    rows = train.rows(0, train.num_rows)
    assert train.num_rows == 4
    assert rows.label.tolist() == [1, 0, 1, 0]
    assert rows.user[0].tolist() == [1, 1, 1, 1]
    assert rows.target[0][::2].tolist() == [5, 3]
    assert rows.positive[0].tolist() == [[0, 0, 3], [0, 0, 3], [0, 3, 5], [0, 3, 5]]
    assert rows.positive[1].tolist() == [[0, 0, 13], [0, 0, 13], [0, 13, 15], [0, 13, 15]]
    rows = test.rows(0, test.num_rows)
    assert rows.user[0].tolist() == [1, 1, 2, 2]
    assert rows.target[0][::2].tolist() == [8, 1]
    assert rows.target[1][::2].tolist() == [18, 11]
    assert rows.positive[0][::2].tolist() == [[3, 5, 3], [0, 0, 9]]
    for split in (train, test):
        rows = split.rows(0, split.num_rows)
        assert (rows.target[0][1::2] != rows.target[0][::2]).all()
        assert ((rows.negative[0] == 0) == (rows.positive[0] == 0)).all()
        assert ((rows.negative[0] != rows.positive[0]) | (rows.positive[0] == 0)).all()
        for ids, categories in zip(
            (rows.target[0], rows.negative[0]), (rows.target[1], rows.negative[1]), strict=True
        ):
            assert (categories == np.where(ids > 0, ids + 10, 0)).all()


@pytest.mark.parametrize("counts", [[2], [3], [2, 3, 4], [7, 2, 5]])
@pytest.mark.parametrize("with_validation", [False, True])
def test_events_of_splits(tmp_path, counts, with_validation):
    log = log_of(tmp_path, [range(1, 1 + count) for count in counts])
    result = {}
    for split in splits(log, with_validation, 4, 0):
        rows = split.rows(0, split.num_rows) if split.num_rows else None
        for label, user, item in zip(
            *((rows.label, rows.user[0], rows.target[0]) if rows else ([], [], [])), strict=True
        ):
            if label:
                assert (user, item) not in result
                result[user, item] = split.name
    expected = {}
    for user, count in enumerate(counts, 1):
        for item in range(2, count + 1):
            is_validation = with_validation and item == count - 1
            expected[user, item] = (
                "test" if item == count else "validation" if is_validation else "train"
            )
    assert result == expected


def test_files_not_written(tmp_path, monkeypatch):
    """A file that exists, and a full disk."""
    columns = ColumnNames(("user_id",), ("item_id",), ("uid", "item"))
    train = SampleSplit("train", log_of(tmp_path, [[1, 2, 3, 4, 5, 6]]), False, 3, 5)
    (tmp_path / "there").mkdir()
    with pytest.raises(FileExistsError):
        write_split(train, tmp_path / "there", columns, 2, 2, 2)

    def full(*args):
        raise OSError("[Errno 28] Error writing bytes to file")  # the message of Arrow

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(OSError, match=r"train/part\.\d\.parquet"):
        write_split(train, tmp_path / "train", columns, 2, 2, 2)


def random_log(tmp_path, num_items, seed=0):
    """Users with 2 to 60 events, and one with 300; two features of items, of 1 and of many ids."""
    random = np.random.default_rng(seed)
    counts = [*random.integers(2, 60, 40), 300, 2]
    features = [np.ones(num_items, np.int32), random.integers(1, num_items + 1, num_items)]
    histories = [random.integers(1, num_items + 1, count) for count in counts]
    return log_of(tmp_path, histories, features, num_items)


@pytest.mark.parametrize("negatives", [UNIFORM, POPULARITY])
@pytest.mark.parametrize(("max_history", "num_items"), [(1, 2), (3, 9), (100, 70_000)])
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_files_against_arrays(tmp_path, negatives, max_history, num_items, split):
    """Files hold what `SampleSplit.rows` returns, for Arrow and for DuckDB."""
    log = random_log(tmp_path, num_items)
    samples = SampleSplit(split, log, True, max_history, 7, negatives, min_training_history=2)
    columns = ColumnNames(("user_id",), ("item_id", "one", "many"), ("uid", "item", "one", "many"))
    paths = write_split(samples, tmp_path / split, columns, 700, 98, 2)
    block = samples.rows(0, samples.num_rows)
    expected = [block.label, *block.user, *block.target, *block.positive, *block.negative]
    assert len(paths) == -(-samples.num_rows // 700)
    assert len({str(pq.read_schema(path).remove_metadata()) for path in paths}) == 1
    assert pq.read_schema(paths[0]).equals(columns.schema())
    assert str(columns.schema().field("item_id_pos").type) == "list<element: int64 not null>"
    parts = [pq.read_table(path) for path in paths]
    assert all(len(part) == 700 for part in parts[:-1])
    scan = duckdb.sql(f"SELECT * FROM read_parquet({[str(path) for path in paths]})").fetchall()
    for number, (name, values) in enumerate(zip(columns.schema().names, expected, strict=True)):
        actual = [value for part in parts for value in part[name].to_pylist()]
        assert actual == values.tolist(), name
        assert [row[number] for row in scan] == actual, name


def test_memory_of_splits(tmp_path):
    """BYTES_PER_USER, which --memory_limit is compared with, covers the memory of users."""
    log = log_of(tmp_path, np.ones((100_000, 4), np.int32), num_items=2)
    tracemalloc.start()
    try:
        for split in splits(log, with_validation=True, max_history=2, seed=0):
            split.rows(0, 2)
            del split
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The numbers of events were allocated before.
    assert 0.6 < (peak + log.num_events.nbytes) / (log.num_users * BYTES_PER_USER) < 1.02


def test_one_item(tmp_path):
    with pytest.raises(ValueError, match="one item"):
        SampleSplit("test", log_of(tmp_path, [[1, 1, 1]], num_items=1), False, 3, 0)


def test_columns_of_one_name():
    columns = ColumnNames(("user_id", "item"), ("item_id", "cat"), ("uid", "item", "item", "cat"))
    assert columns.titles == ("user_id", "item", "item_id_trgt", "cat_trgt")
    with pytest.raises(ValueError, match="user_id"):
        ColumnNames(("user_id", "user_id"), ("item_id",), ("uid", "user_id", "item"))


def test_rows_at_a_time():
    assert block_rows(2, 100, 1 << 30, 1) == (1 << 20) // 100 // 2 * 2
    assert block_rows(1, 100, 4 << 20, 2) == (4 << 20) // (2 * 2 * 32 * 100) // 2 * 2
    assert block_rows(9, 10_000_000, 1 << 20, 2) == 2


# Negatives


def test_numbers_against_reference():
    seed, users, events = 2**64 - 1, np.array([1, 2**31]), np.array([0, 10**9])
    keys = row_keys(seed, users, events, np.array([1, 0]))
    assert keys.tolist() == [random_64(seed, 1, 0, 1), random_64(seed, 2**31, 10**9, 0)]
    steps, num_items = np.arange(101), 2**31 - 1
    drawn = draw(np.repeat(keys[:1], 101), steps, steps + 1, num_items)
    expected = [negative((seed, 1, 0, 1, step), step + 1, num_items) for step in range(101)]
    assert drawn.tolist() == expected


def chi_square_is_likely(counts, expected) -> bool:
    """Below the 99.9 % point of the chi-square distribution (Wilson and Hilferty's formula)."""
    freedom = len(counts) - 1
    statistic = ((counts - expected) ** 2 / expected).sum()
    limit = freedom * (1 - 2 / (9 * freedom) + 3.09 * (2 / (9 * freedom)) ** 0.5) ** 3
    return statistic < limit


def test_uniform_negatives():
    """Negatives are uniform over users, events and steps, and pairs of steps are independent."""
    num_items, positive, users = 20, 7, np.arange(1, 40_001)
    keys = row_keys(3, users, users % 50, users % 2)
    drawn = [
        draw(keys, np.full(len(keys), step), np.full(len(keys), positive), num_items)
        for step in (0, 1, 100)
    ]
    for each in drawn:
        counts = np.bincount(each, minlength=num_items + 1)
        assert counts[0] == counts[positive] == 0
        assert len(counts) == num_items + 1
        others = np.delete(counts, [0, positive])
        assert chi_square_is_likely(others, len(users) / (num_items - 1))
    pairs = np.unique(drawn[0] * 100 + drawn[1], return_counts=True)[1]
    assert len(pairs) == (num_items - 1) ** 2
    assert chi_square_is_likely(pairs, len(users) / len(pairs))


def test_negatives_by_popularity():
    """Negatives are proportional to the numbers of events, independently of the positive item."""
    counts, users = np.arange(1, 21), np.arange(1, 40_001)
    events = np.repeat(np.arange(1, 21, dtype=np.int32), counts)
    keys = row_keys(3, users, users % 50, users % 2)
    drawn = draw_by_popularity(keys, np.zeros(len(keys), np.int64), events)
    expected = len(users) * counts / len(events)
    assert chi_square_is_likely(np.bincount(drawn, minlength=21)[1:], expected)


def test_negatives_of_two_items():
    keys = row_keys(0, np.arange(50), np.arange(50), np.arange(50) % 2)
    positives = np.arange(50) % 2 + 1
    assert (draw(keys, np.arange(50), positives, 2) == 3 - positives).all()
