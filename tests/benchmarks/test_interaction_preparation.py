"""The comparison of preparations of ratings: what it measures and refuses; one real, tiny round."""

import numpy as np
import pytest

from benchmarks import interaction_preparation
from benchmarks.harness import preparations
from benchmarks.harness.preparations import PreparationRun
from benchmarks.interaction_preparation import OURS, PANDAS, checksum, compare, main
from dataloading.engines import environment


def stand_in(monkeypatch, seconds, peak_mib=900.0, checksums="aaaaa"):
    """Preparations that take a side's seconds; the sides and flags they get."""
    got = []

    def prepare(side, log, work, *flags):
        got.append((side, *flags))
        elapsed_s = seconds[side] + len(got) / 10
        return PreparationRun(elapsed_s, peak_mib, checksum=checksums[len(got) - 1])

    def run(module, *arguments):
        (next(path for path in arguments if hasattr(path, "iterdir")) / "ratings.csv").touch()
        return PreparationRun(7.0, 1.0)

    monkeypatch.setattr(interaction_preparation, "prepare", prepare)
    monkeypatch.setattr(interaction_preparation, "run", run)
    monkeypatch.setattr(preparations, "engine_versions", lambda *packages: "stand-ins")
    return got


@pytest.mark.parametrize(
    ("ratings", "ours_s", "limit_mib", "status", "verdicts"),
    [
        (20_000_000, 110.0, 1000, 0, ("target 120: met", "1000: met")),
        (20_000_000, 120.0, 1000, 1, ("target 120: MISSED", "1000: met")),
        (20_000_000, 110.0, 899, 1, ("target 120: met", "899: MISSED")),
        (1000, 110.0, 1000, 0, ("for information", "1000: met")),
        (30_000_000, 120.0, 1000, 0, ("for information", "1000: met")),
        (1000, 110.0, 899, 1, ("for information", "899: MISSED")),
    ],
)
def test_page(monkeypatch, tmp_path, capsys, ratings, ours_s, limit_mib, status, verdicts):
    """Two rounds, the second the other way around; both targets judged, time of 20 million."""
    got = stand_in(monkeypatch, {OURS: ours_s, PANDAS: 330.0})
    flags = ["--ratings", str(ratings), "--repeats", "2", "--memory_limit_mib", str(limit_mib)]
    flags += ["--work_dir", str(tmp_path), "--output", str(tmp_path / "page.md")]
    assert main(flags) == status
    page = capsys.readouterr().out
    assert (tmp_path / "page.md").read_text() == page
    assert got[:4] == [(OURS,), (PANDAS,), (PANDAS,), (OURS,)]
    assert got[4] == (OURS, "--memory_limit", f"{limit_mib}MiB")
    # Ours ran first and fourth: 0.1 and 0.4 s above.
    middle = ours_s + 0.25
    assert f"| {middle:.1f} [{ours_s + 0.1:.1f}, {ours_s + 0.4:.1f}] |" in page
    assert f"- {330.25 / middle:.1f} times as fast as pandas" in page
    assert f"{middle:.1f} s, judged for 20 million ratings; {verdicts[0]}" in page
    assert f"{ours_s + 0.5:.1f} s, 900 MiB; target {verdicts[1]}" in page
    assert [path.name for path in tmp_path.iterdir()] == ["page.md"]


def test_different_rows(monkeypatch, tmp_path):
    stand_in(monkeypatch, {OURS: 1.0, PANDAS: 1.0}, checksums="aaab")
    with pytest.raises(RuntimeError, match="different rows: "):
        compare(tmp_path, tmp_path, 2)
    stand_in(monkeypatch, {OURS: 1.0, PANDAS: 1.0}, checksums="aab")
    with pytest.raises(RuntimeError, match="different rows under the memory limit"):
        main(["--ratings", "1000", "--repeats", "1", "--work_dir", str(tmp_path)])


def test_checksum(tmp_path):
    """Training rows and positives count, negatives do not."""
    files = {
        "train/user": [0, 1],
        "train/item": [2, 3],
        "test/user": [0] * 101,
        "test/item": list(range(101)),
    }

    def written(**changes):
        for name, values in (files | changes).items():
            path = tmp_path / f"{name}.bin"
            path.parent.mkdir(exist_ok=True)
            np.array(values, np.int32).tofile(path)
        return checksum(tmp_path)

    first = written()
    assert written(**{"test/item": [0, *range(900, 1000)]}) == first
    for changes in ({"train/user": [1, 1]}, {"train/item": [2, 2]}, {"test/item": [5] * 101}):
        assert written(**changes) != first


@pytest.mark.skipif(not environment.is_installed("pandas"), reason="no pandas: run `make engines`")
def test_real_round(tmp_path, capsys):
    """Both sides agree on 6,000 ratings."""
    flags = ["--ratings", "6000", "--repeats", "1", "--work_dir", str(tmp_path)]
    assert main(flags) == 0
    assert "times as fast as pandas" in capsys.readouterr().out
    assert not any(tmp_path.iterdir())
