"""The comparison of the engines: what it measures and refuses, on stand-ins."""

import contextlib
import subprocess
import sys

import pytest

from benchmarks import preparation_engines
from benchmarks.harness import preparations
from benchmarks.harness.preparations import PreparationRun, run, tree_memory_mib
from benchmarks.preparation_engines import CLUSTER, DUCKDB, SPARK

ALLOCATE = "import time; held = b'x' * (200 << 20); time.sleep(1.2)"
IN_A_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ALLOCATE!r}])"


@pytest.fixture
def frequent_looks(monkeypatch):
    """Frequent samples of memory, so that a busy machine takes some in the second of the peak."""
    monkeypatch.setattr(preparations, "_SAMPLE_S", 0.05)


@pytest.fixture
def run_text(monkeypatch, tmp_path):
    """Runs Python text as a module."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run_module(text, **options):
        (tmp_path / "written_module.py").write_text(text)
        return run("written_module", **options)

    return run_module


@pytest.mark.usefixtures("frequent_looks")
@pytest.mark.parametrize("script", [ALLOCATE, IN_A_CHILD], ids=["itself", "a child"])
def test_memory_of_a_command(script, run_text):
    result = run_text(script)
    assert result.elapsed_s > 1.2
    assert 200 < result.peak_mib < 300
    assert result.resident_mib > 200


@pytest.mark.usefixtures("frequent_looks")
def test_memory_of_other_processes(run_text):
    """Other processes count; one that has ended does not."""
    script = ALLOCATE.replace("time.sleep(1.2)", "print(flush=True); time.sleep(100)")
    other = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline()  # it holds them
        assert run_text("import time; time.sleep(1.2)", others=[other.pid]).peak_mib > 200
    finally:
        other.kill()
        other.communicate()
    assert tree_memory_mib(other.pid) == 0


def test_failing_command(run_text):
    with pytest.raises(RuntimeError, match="failed with 3:\nwhy not"):
        run_text("print('why not'); raise SystemExit(3)")


def test_checksum(tmp_path):
    """Names, contents and places of all files count."""
    folder = tmp_path / "a"
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "x.bin").write_bytes(b"1")
    digests = {preparations.checksum(folder)}
    (folder / "train" / "x.bin").write_bytes(b"2")
    digests.add(preparations.checksum(folder))
    (folder / "train" / "x.bin").rename(folder / "x.bin")
    digests.add(preparations.checksum(folder))
    (folder / "x.bin").rename(folder / "y.bin")
    digests.add(preparations.checksum(folder))
    assert len(digests) == 4


def test_checksum_of_parquet_files(tmp_path):
    """Versions of Arrow make no difference, rows do."""
    digests = []
    for version, row in ((b"25.0.1", b"1"), (b"26.0.1", b"1"), (b"26.0.1", b"2")):
        text = b"PAR1" + row + b"parquet-cpp-arrow version " + version + b"PAR1"
        (tmp_path / "part.0.parquet").write_bytes(text)
        digests.append(preparations.checksum(tmp_path))
    assert digests[0] == digests[1] != digests[2]


@contextlib.contextmanager
def no_cluster(folder):
    yield "spark://127.0.0.1:1", []


@pytest.fixture
def stand_ins(monkeypatch):
    """Preparations that take an engine's time and 100 MiB a day; returns the flags they got."""
    got, seconds = [], {"spark": 40.0}
    monkeypatch.setattr(preparation_engines, "spark_cluster", no_cluster)

    def prepare(log, work, *flags, others=()):
        got.append(flags)
        engine = flags[flags.index("--engine") + 1] if "--engine" in flags else "duckdb"
        rows = len(list(log.iterdir()))
        return PreparationRun(seconds.get(engine, 4.0), 100.0 * rows, checksum="same")

    def generate(folder, rows_per_day):
        folder.mkdir()
        for i in range(2 if rows_per_day >= 100 else 1):
            (folder / f"day_{i}").touch()
        return folder

    monkeypatch.setattr(preparation_engines, "prepare", prepare)
    monkeypatch.setattr(preparation_engines, "generate", generate)
    monkeypatch.setattr(preparations, "engine_versions", lambda *packages: "stand-ins")
    return got


def test_page(stand_ins, tmp_path, monkeypatch, capsys):
    """Two rounds, DuckDB with each other side; both targets judged."""
    got = stand_ins
    monkeypatch.setattr(preparation_engines, "REAL_ROWS", tmp_path / "not there")
    flags = ["--rows_per_day", "5", "--growth_rows_per_day", "10", "--output", tmp_path / "page.md"]
    status = preparation_engines.main([*map(str, flags), "--work_dir", str(tmp_path)])
    page = capsys.readouterr().out
    assert (tmp_path / "page.md").read_text() == page
    assert sum("--engine" not in flags for flags in got) == 4 + 4
    assert "| 10 | 0 | 4.0 | 100 |" in page and "| 100 | 0 | 4.0 | 200 |" in page
    assert "| Spark local[2] | 40.0 [40.0, 40.0] | 0 | 10.0 | 100 |" in page
    assert "DuckDB is 10.0 times as fast as Spark local[2]; target 8: met" in page
    assert "take 2.00 times the memory; target 1.3: MISSED" in page
    assert status == 1


def test_different_files(tmp_path, monkeypatch):
    names = iter("aaab")
    monkeypatch.setattr(preparation_engines, "spark_cluster", no_cluster)
    monkeypatch.setattr(
        preparation_engines,
        "prepare",
        lambda log, work, *flags, others=(): PreparationRun(1, 1, checksum=next(names, "a")),
    )
    with pytest.raises(RuntimeError, match="different files"):
        preparation_engines.compare(tmp_path, tmp_path, [], 1)


def test_sides_of_a_comparison(stand_ins, tmp_path):
    results = preparation_engines.compare(tmp_path, tmp_path, ["--days", "0"], 2)
    assert {name: len(runs) for name, runs in results.items()} == {
        DUCKDB: 4,
        SPARK: 2,
        CLUSTER: 2,
    }
    masters = [flags[-1] for flags in stand_ins if "--master" in flags]
    assert sorted(masters) == ["local[2]"] * 2 + ["spark://127.0.0.1:1"] * 2


@pytest.mark.long
def test_criteo_preparation(run_script, tmp_path):
    """A preparation of tiny logs misses the target of its speed."""
    flags = ["--rows", 400, "--memory_rows", 800, "--repeats", 2, "--work_dir", tmp_path]
    done = run_script("-m", "benchmarks.preparation", *flags, "--output", tmp_path / "page.md")
    assert done.returncode == 1, done.stderr
    page = (tmp_path / "page.md").read_text()
    assert done.stdout == page
    assert "--frequency_threshold 15 |" in page and "## Memory: 800 rows" in page
    assert "rows/s; target 150,000: MISSED" in page
    assert "target at most 512 MiB: met" in page
    assert [path.name for path in tmp_path.iterdir()] == ["page.md"]
