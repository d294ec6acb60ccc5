"""The NVTabular engine: each column against the slow reference, whole data sets against DuckDB."""

import gzip
import sys

import numpy as np
import pyarrow as pa
import pytest

from preproc.criteo.engines.interface import DayFile
from preproc.criteo.engines.nvtabular_engine import CriteoNVTabularEngine
from preproc.criteo.generate_logs import generate_day
from preproc.criteo.options import CriteoOptions
from preproc.criteo.output.binary_files import ColumnFiles, SplitLayout
from preproc.criteo.output.splits import Split
from preproc.criteo.prepare import prepare
from tests.preproc.criteo import criteo_reference as reference

needs_nvtabular = pytest.mark.engines("nvtabular")
MIB = 1 << 20


def options(folder, **changed):
    changed = {"memory_limit_bytes": 1024 * MIB, "threads": 2} | changed
    return CriteoOptions(input=folder, output=folder / "out", **changed)


@pytest.fixture
def engine(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with CriteoNVTabularEngine(options(tmp_path), scratch) as engine:
        yield engine
    assert list(scratch.iterdir()) == []


def stage(engine, folder, days):
    """Stages days with one value per row, in cat_0; "" is a missing value."""
    staged, first_row = [], 0
    for day, values in enumerate(days):
        source = folder / f"raw_{day}"
        source.write_text("".join(reference.line(0, {}, {0: value}) + "\n" for value in values))
        target = folder / f"day_{day}.parquet"
        counts = engine.parse_day(source, target, folder)
        assert counts == {"rows": len(values), "bad_lines": 0, "first_bad_line": 0}
        staged.append(DayFile(target, len(values), first_row))
        first_row += len(values)
    return staged


def count_and_encode(engine, folder, staged, counted, num_rows, threshold):
    """Returns the vocabulary of cat_0 as text, and its ids."""
    total = sum(day.num_rows for day in staged)
    files = ColumnFiles(
        SplitLayout(folder, (Split("train", 0, total),)), "cat_0.bin", np.dtype("<i4")
    )
    files.create()
    vocabulary = folder / "vocabulary.parquet"
    num_values = engine.count_values("cat_0", counted, num_rows, threshold, vocabulary)
    engine.write_vocabulary(vocabulary, folder / "cat_0.tsv")
    known = engine.write_ids("cat_0", staged, vocabulary, files)
    ids = np.fromfile(folder / "train/cat_0.bin", "<i4")
    text = (folder / "cat_0.tsv").read_bytes().decode()
    assert num_values == text.count("\n")
    assert known == np.count_nonzero(ids)
    return text, ids.tolist()


def expected(days, counted, threshold):
    known = reference.vocabulary(counted, threshold)
    ids = {value: i for i, (value, _) in enumerate(known, 1)}
    text = "".join(f"{value}\t{count}\n" for value, count in known)
    return text, [ids.get(value, 0) for day in days for value in day]


ODD = ["007", "7", "1e5", "100000", "nan", "NaN", "None", "NULL", "null", "<NA>", "inf", "-0"]
ODD += ["True", " a", "a ", "é", "e\u0301", "z", "漢", "\U0001f600", "\uffff", '"', "\\N", "A", "a"]
COLUMNS = {
    "ties": ["b", "a", "c", "b", "a", "c", "d"],
    "missing values": ["", "a", "", "", "b", "a", ""],
    "all missing": [""] * 9,
    "starts with missing": [""] * 5 + ["a", "b", "a"],
    "odd values": [*ODD, "", *reversed(ODD), "é"],
    "numbers": ["1", "01", "1", "1.0", "", "1e0"],
    "none often enough": ["a", "b", "c"],
}


@pytest.mark.quick(
    "odd values-slices", "ties-partitions", "all missing-*", "none often enough-slices"
)
@needs_nvtabular
@pytest.mark.parametrize("parts", ["one", "partitions", "slices"])
@pytest.mark.parametrize("name", COLUMNS)
def test_column_against_reference(engine, tmp_path, name, parts):
    values = COLUMNS[name]
    if parts == "partitions":
        values = values * 1000
        engine._partition_rows = 2048
    if parts == "slices":
        engine._slice_values = 1 + len(values) // 3
    days = [values[:4], values[4:]]
    staged = stage(engine, tmp_path, days)
    for threshold in (0, 2, 15):
        result = count_and_encode(engine, tmp_path, staged, staged, len(values), threshold)
        assert result == expected(days, values, threshold), threshold


@needs_nvtabular
def test_vocabulary_of_some_rows(engine, tmp_path):
    """Rows to count that end inside a day, and days without any of them."""
    days = [["a", "b", "b"], ["c", "", "c", "a", "c", "d"], ["d", "d", "d"]]
    staged = stage(engine, tmp_path, days)
    result = count_and_encode(engine, tmp_path, staged, staged[:2], 3 + 3, 1)
    assert result == expected(days, ["a", "b", "b", "c", "", "c"], 1)
    result = count_and_encode(engine, tmp_path, staged, staged[1:], 12, 1)
    assert result == expected(days, [*days[1], *days[2]], 1)
    result = count_and_encode(engine, tmp_path, staged, staged, 2, 1)
    assert result == expected(days, ["a", "b"], 1)


@needs_nvtabular
def test_same_paths_with_other_values(engine, tmp_path):
    """NVTabular keeps values by path; a later column must not get those of an earlier one."""
    for days in ([["a", "b", "a"]], [["x", "b", "b", "y"]]):
        staged = stage(engine, tmp_path, days)
        result = count_and_encode(engine, tmp_path, staged, staged, 9, 0)
        assert result == expected(days, days[0], 0)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Three generated days: plain; gzip; and with a byte order mark, returns and bad lines."""
    folder = tmp_path_factory.mktemp("log")
    for day, name in enumerate(("day_0", "day_1.gz", "day_2")):
        generate_day(folder / name, 700 + 101 * day, [7, day])
    lines = (folder / "day_2").read_bytes().split(b"\n")
    lines[3:3] = [b"", b"2" + lines[3][1:], lines[3] + b"\xff"]
    lines[-4] += b"\t"
    (folder / "day_2").write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(lines) + b"\r\n\n")
    return folder


def assert_like_duckdb(source, folder, **changed):
    for engine in ("duckdb", "nvtabular"):
        prepare(
            CriteoOptions(
                input=source,
                output=folder / engine,
                engine=engine,
                memory_limit_bytes=1024 * MIB,
                threads=2,
                **changed,
            )
        )
    spec = (folder / "duckdb/feature_spec.yaml").read_bytes()
    assert (folder / "nvtabular/feature_spec.yaml").read_bytes() == spec
    files = reference.files_of(folder / "duckdb")
    assert reference.files_of(folder / "nvtabular") == files
    return files


@pytest.mark.long
@needs_nvtabular
def test_days_against_duckdb(log, tmp_path):
    files = assert_like_duckdb(
        log, tmp_path, frequency_threshold=2, on_bad_line="skip", vocabulary_days=(0, 2)
    )
    days = [log / "day_0", log / "day_1.gz", log / "day_2"]
    assert files == reference.prepare(days, 2, vocabulary_files=[days[0], days[2]])


@needs_nvtabular
def test_real_rows_against_duckdb(criteo_rows, tmp_path):
    """In random order, with bins, and with the values of the training rows only."""
    assert_like_duckdb(
        criteo_rows,
        tmp_path,
        frequency_threshold=0,
        holdout_fraction=0.2,
        validation_fraction=0.1,
        vocabulary_days="train",
        bin_numericals=True,
        output_ordering="total_random",
        seed=3,
    )


@needs_nvtabular
@pytest.mark.long
@pytest.mark.parametrize("threshold", [0, 1, 3, 15])
def test_days_against_reference(log, tmp_path, threshold):
    files = assert_like_duckdb(log, tmp_path, frequency_threshold=threshold, on_bad_line="skip")
    days = [log / "day_0", log / "day_1.gz", log / "day_2"]
    assert files == reference.prepare(days, threshold)


@needs_nvtabular
def test_damaged_gzip(engine, tmp_path):
    (tmp_path / "raw").write_bytes(gzip.compress(b"x" * 1000)[:-3])
    with pytest.raises(ValueError, match="raw: the gzip data is cut off or damaged"):
        engine.parse_day(tmp_path / "raw", tmp_path / "day.parquet", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raw", "scratch"]


@needs_nvtabular
def test_restored_threads(tmp_path):
    before = pa.cpu_count()
    with CriteoNVTabularEngine(options(tmp_path, threads=before + 3), tmp_path):
        assert pa.cpu_count() == before + 3
    assert pa.cpu_count() == before


@needs_nvtabular
def test_out_of_memory(engine, tmp_path, monkeypatch):
    """Errors while values are counted, and during lookups, where NVTabular wraps the error."""
    pandas = pytest.importorskip("pandas")
    staged = stage(engine, tmp_path, [["a", "b"]])
    count_and_encode(engine, tmp_path, staged, staged, 2, 0)
    vocabulary = tmp_path / "vocabulary.parquet"

    def fails(*args, **kwargs):
        raise pa.ArrowMemoryError("too much")

    monkeypatch.setattr(pandas.DataFrame, "merge", fails)
    monkeypatch.setattr(pandas.DataFrame, "groupby", fails)
    for work in (
        lambda: engine.count_values("cat_0", staged, 2, 0, vocabulary),
        lambda: engine.write_ids("cat_0", staged, vocabulary, None),
    ):
        with (
            pytest.raises(ValueError, match="out of memory, with a --memory_limit of 1024 MiB; .*"),
            engine.explained_errors(),
        ):
            work()
    with pytest.raises(RuntimeError, match="something else"), engine.explained_errors():
        raise RuntimeError("something else")


def test_too_small_limit(tmp_path):
    with pytest.raises(ValueError, match="needs a --memory_limit of 768 MiB or more, got 767"):
        CriteoNVTabularEngine(options(tmp_path, memory_limit_bytes=767 * MIB), tmp_path)


def test_missing_nvtabular(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nvtabular", None)
    with pytest.raises(ValueError, match="cannot be imported here .*nvtabular.*; run `make engi"):
        CriteoNVTabularEngine(options(tmp_path), tmp_path)


@needs_nvtabular
def test_quiet_import(run_script):
    """Importing NVTabular prints nothing and does not import TensorFlow."""
    done = run_script(
        "-c",
        "import sys; from pathlib import Path; from preproc.criteo.options import CriteoOptions\n"
        "from preproc.criteo.engines.nvtabular_engine import CriteoNVTabularEngine\n"
        "here = Path()\n"
        "CriteoNVTabularEngine(CriteoOptions(input=here, output=here), here)\n"
        "print('nvtabular' in sys.modules, 'tensorflow' in sys.modules)",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True False\n", "")
