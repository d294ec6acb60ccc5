"""Files of predictions: round trips, state after failures, and errors."""

import resource

import duckdb
import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from runtime.files import column_files
from runtime.files.predictions import check_writable, open_predictions

ENDINGS = [".parquet", ".csv", ".npy"]


@pytest.fixture
def small_blocks(monkeypatch):
    """Groups of 1,000 rows."""
    monkeypatch.setattr(column_files, "GROUP_ROWS", 1000)


def scores_of(num_rows: int) -> np.ndarray:
    """Scores of all magnitudes: also 0, 1, their neighbours, and subnormal ones."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, np.float32(1).view(np.uint32) + 1, num_rows).astype(np.uint32)
    ends = [0, 1, 2, 0x7FFFFF, 0x800000, 0x3F7FFFFF, 0x3F800000, 0x3F000001]
    bits[: len(ends)] = ends[:num_rows]
    return bits.view(np.float32)


def write(path, scores, *lengths, num_rows=None) -> None:
    """Writes the scores in pieces of these lengths, again and again."""
    with open_predictions(path, len(scores) if num_rows is None else num_rows) as writer:
        start = turn = 0
        while start < len(scores):
            length = lengths[turn % len(lengths)] if lengths else len(scores)
            writer.add(scores[start : start + length])
            start, turn = start + length, turn + 1


def read(path) -> np.ndarray:
    """The scores of a file, of which all else is checked."""
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".csv":
        lines = path.read_text().splitlines()
        assert lines[0] == "row,score"
        values = [line.split(",") for line in lines[1:]]
        assert [int(row) for row, _ in values] == list(range(len(values)))
        return np.array([text for _, text in values]).astype(np.float32)
    table = pyarrow.parquet.read_table(path)
    assert table.schema.names == ["row", "score"]
    assert table.schema.types == [pyarrow.int64(), pyarrow.float32()]
    assert (table["row"].to_numpy() == np.arange(len(table))).all()
    return table["score"].to_numpy()


def assert_same_bits(result, expected) -> None:
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result.view(np.uint32), expected.view(np.uint32))


def left_in(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    "lengths", [(), (1, 0, 7), (1000,), (2500, 1)], ids=lambda value: str(value)
)
@pytest.mark.parametrize("num_rows", [5432, 3000, 1, 0])
def test_round_trip(tmp_path, small_blocks, ending, lengths, num_rows):
    path = tmp_path / f"scores{ending}"
    scores = scores_of(num_rows)
    write(path, scores, *lengths)
    assert_same_bits(read(path), scores)
    assert list(left_in(tmp_path)) == [path.name]


def test_content_of_files(tmp_path):
    scores = np.array([0.25, 0, 1, 0.1], np.float32)
    write(tmp_path / "A.CSV", scores)  # a suffix in capitals
    assert (tmp_path / "A.CSV").read_bytes() == b"row,score\n0,0.25\n1,0\n2,1\n3,0.1\n"
    write(tmp_path / "a.npy", scores)
    np.save(tmp_path / "b.npy", scores)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()
    write(tmp_path / "a.parquet", scores)
    result = duckdb.sql(f"SELECT * FROM '{tmp_path}/a.parquet' ORDER BY row").fetchall()
    assert result == [(0, 0.25), (1, 0.0), (2, 1.0), (3, float(np.float32(0.1)))]


FIELDS = [("user", pyarrow.string()), ("tags", pyarrow.list_(pyarrow.int64()))]


@pytest.mark.parametrize("size", [5, 3])
def test_kept_columns(tmp_path, size, monkeypatch):
    monkeypatch.setattr(column_files, "GROUP_BYTES", 1)
    scores = scores_of(5)
    for name in ("a.csv", "a.parquet"):
        with open_predictions(tmp_path / name, 5, fields=FIELDS) as writer:
            for start in range(0, 5, size):
                rows = range(start, min(5, start + size))
                users = pyarrow.array([f"u,{i}" if i else None for i in rows])
                tags = pyarrow.array([[i, i + 1][: i % 3] for i in rows])
                writer.add(scores[start : start + size], [users, tags])
    assert pyarrow.parquet.read_metadata(tmp_path / "a.parquet").num_row_groups == -(-5 // size)
    table = pyarrow.parquet.read_table(tmp_path / "a.parquet")
    assert table.schema.names == ["row", "user", "tags", "score"]
    assert table["user"].to_pylist() == [None, "u,1", "u,2", "u,3", "u,4"]
    assert table["tags"].to_pylist() == [[], [1], [2, 3], [], [4]]
    assert_same_bits(table["score"].to_numpy(), scores)
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert [line.rpartition(",")[0] for line in lines] == [
        *("row,user,tags", '0,,""', '1,"u,1","1"', '2,"u,2","2;3"', '3,"u,3",""', '4,"u,4","4"')
    ]


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("a.npy", "user", "a .npy file has the scores alone"),
        ("a.csv", "score", "has a column 'score' of its own"),
    ],
)
def test_kept_columns_that_do_not_fit(tmp_path, name, column, message):
    fields = [(column, pyarrow.string()), FIELDS[1]]
    with (
        pytest.raises(ValueError, match=rf"--predictions_path .*{name}: {message}"),
        open_predictions(tmp_path / name, 5, fields=fields),
    ):
        pass
    assert left_in(tmp_path) == {}


@pytest.mark.parametrize("ending", ENDINGS)
def test_incremental_writing(tmp_path, small_blocks, ending):
    """Added scores are not held in memory."""
    path = tmp_path / f"a{ending}"
    with open_predictions(path, 100_000) as writer:
        for _ in range(99):
            writer.add(scores_of(1000))
        (partial,) = tmp_path.iterdir()
        assert partial.name.startswith(f".{path.name}.")
        assert partial.stat().st_size > 95_000 * 4
        writer.add(scores_of(1000))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("num_added", [0, 2500])
def test_exception_in_the_block(tmp_path, small_blocks, ending, num_added, recwarn):
    """A BaseException, as that of Ctrl-C."""
    path = tmp_path / f"a{ending}"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), open_predictions(path, 5000) as writer:
        writer.add(scores_of(num_added))
        raise KeyboardInterrupt
    assert left_in(tmp_path) == {path.name: b"old"}
    del writer
    assert [str(warning.message) for warning in recwarn] == []  # of files that were not closed


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(("num_rows", "num_scores"), [(3000, 2999), (3000, 3001), (0, 1)])
def test_wrong_number_of_scores(tmp_path, small_blocks, ending, num_rows, num_scores):
    path = tmp_path / f"a{ending}"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match=f"{num_scores} scores came for {num_rows} rows"):
        write(path, scores_of(num_scores), 700, num_rows=num_rows)
    assert left_in(tmp_path) == {path.name: b"old"}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("limit_bytes", [0, 6000, 39_900])
def test_full_disk(tmp_path, small_blocks, ending, limit_bytes, recwarn):
    """Played by a limit on the size of files; 39,900: only the last bytes do not find room."""
    path = tmp_path / f"a{ending}"
    path.write_bytes(b"old")
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, unlimited[1]))
    try:
        with pytest.raises(OSError, match=rf"{path} could not be written: .*File too large"):
            write(path, scores_of(10_000), 300)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert left_in(tmp_path) == {path.name: b"old"}
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.parametrize("action", [check_writable, lambda path: write(path, scores_of(3))])
def test_suffixes(tmp_path, action):
    for name, ending in (("a.txt", ".txt"), ("a", ""), (".csv", ""), ("a.npy.gz", ".gz")):
        with pytest.raises(ValueError, match=rf"--predictions_path .*{name} ends with '{ending}'"):
            action(tmp_path / name)
    assert left_in(tmp_path) == {}
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(IsADirectoryError, match="a.csv"):
        action(tmp_path / "a.csv")
