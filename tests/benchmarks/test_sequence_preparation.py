"""The comparison of preparations of reviews: what it measures and refuses, mostly on stand-ins."""

import pytest

from benchmarks import sequence_preparation
from benchmarks.harness import preparations
from benchmarks.harness.preparations import PreparationRun, size_mb
from benchmarks.sequence_preparation import DUCKDB, NVTABULAR, compare, own_s, prepare, stages_s
from dataloading.engines import environment

LOG = """staged 9,000 events; left out 0 bad lines or rows, 0.5 s
kept 7,618 events of 156 users and 1,541 items, 1.25 s
train: 14,612 rows, 2.0 s
test: 312 rows, 0.5 s
"""


def test_stages():
    assert stages_s(LOG) == {"read": 0.5, "number": 1.25, "rows": 2.5}
    assert own_s([PreparationRun(5.0, 1.0, log=LOG)]) == 2.5


def stand_in(monkeypatch, seconds, peak_mib=100.0, checksums=None):
    """Preparations that take an engine's seconds and a peak for 5 bytes of log; their flags."""
    got = []

    def prepare(log, work, *flags):
        got.append(flags)
        engine = flags[flags.index("--engine") + 1]
        cpu_s = {DUCKDB: 3.0, NVTABULAR: 12.0}
        elapsed_s = seconds[engine] + len(got) / 100
        digest = "same" if checksums is None else checksums[len(got) - 1]
        size = (log / "reviews_x.json").stat().st_size
        return PreparationRun(elapsed_s, peak_mib * size / 5, 0.0, LOG, digest, cpu_s[engine])

    def generate(folder, num_reviews):
        folder.mkdir()
        (folder / "reviews_x.json").write_bytes(b"x" * num_reviews)
        return folder

    monkeypatch.setattr(sequence_preparation, "prepare", prepare)
    monkeypatch.setattr(sequence_preparation, "generate", generate)
    monkeypatch.setattr(preparations, "engine_versions", lambda *packages: "stand-ins")
    return got


@pytest.mark.parametrize(
    ("nvtabular_s", "limit_mib", "status", "verdicts"),
    [
        (60.0, 1000, 0, ("1: met", "1000: met")),
        (4.0, 1000, 1, ("1: MISSED", "1000: met")),
        (60.0, 999, 1, ("1: met", "999: MISSED")),
    ],
)
def test_page(monkeypatch, tmp_path, capsys, nvtabular_s, limit_mib, status, verdicts):
    """Two rounds, the second the other way around; both targets judged."""
    got = stand_in(monkeypatch, {DUCKDB: 5.0, NVTABULAR: nvtabular_s})
    flags = ["--reviews", "5", "--growth_reviews", "5", "--repeats", "2"]
    flags += ["--memory_limit_mib", str(limit_mib), "--work_dir", str(tmp_path)]
    assert sequence_preparation.main([*flags, "--output", str(tmp_path / "page.md")]) == status
    page = capsys.readouterr().out
    assert (tmp_path / "page.md").read_text() == page
    sides = [flags[1] for flags in got]
    assert sides == [DUCKDB, NVTABULAR, NVTABULAR, DUCKDB, DUCKDB, DUCKDB]
    assert got[-1][2:] == ("--memory_limit", f"{limit_mib}MiB")
    # DuckDB ran first and fourth: 5.01 and 5.04 s.
    assert "| duckdb | 5.0 [5.0, 5.0] | 1 | 0.5 | 1.2 | 2.5 | 3.0 | 100 |" in page
    assert f"times as fast as NVTabular; target {verdicts[0]}" in page
    own = (nvtabular_s + 0.025 - 2.5) / 2.525
    assert f"makes for both, {own:.1f} times" in page
    assert "by processor time, 4.0 times" in page
    assert f"ten times the log takes 1,000 MiB; target {verdicts[1]}" in page
    assert [path.name for path in tmp_path.iterdir()] == ["page.md"]


def test_different_files(monkeypatch, tmp_path):
    stand_in(monkeypatch, {DUCKDB: 1.0, NVTABULAR: 1.0}, checksums=["a", "a", "a", "b"])
    (tmp_path / "reviews_x.json").touch()
    with pytest.raises(RuntimeError, match="different files"):
        compare(tmp_path, tmp_path, 2)


def test_failing_preparation(tmp_path):
    with pytest.raises(RuntimeError, match=r"(?s)failed with 2:.*error: .* holds no reviews_\*"):
        prepare(tmp_path, tmp_path, "--engine", "duckdb")


def test_preparation(tmp_path):
    """A preparation keeps the log and removes the data set."""
    log = sequence_preparation.generate(tmp_path / "log", 2000)
    assert size_mb(log) > 1
    result = prepare(log, tmp_path, "--engine", DUCKDB)
    seconds = stages_s(result.log)
    own = own_s([result])  # the log rounds: the rows of this small log may take 0 s
    assert 0 <= seconds["read"] + seconds["number"] < own <= result.elapsed_s
    assert len(result.checksum) == 64
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.long
@pytest.mark.skipif(
    not environment.is_installed("nvtabular"), reason="no NVTabular: run `make engines`"
)
def test_real_comparison(tmp_path):
    log = sequence_preparation.generate(tmp_path / "log", 2000)
    runs = compare(log, tmp_path, 1)
    assert [len(its_runs) for its_runs in runs.values()] == [1, 1]
    assert all(each.peak_mib > 20 for (each,) in runs.values())
