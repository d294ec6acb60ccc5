"""The estimate before a preparation: exact for small logs, near the truth for large ones."""

import gzip

import pytest

from preproc.criteo import estimate as estimate_module
from preproc.criteo.__main__ import main
from preproc.criteo.estimate import estimate
from preproc.criteo.generate_logs import generate_day
from preproc.criteo.options import CriteoOptions
from preproc.criteo.output import row_buckets
from preproc.criteo.prepare import prepare


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    for day in range(3):
        generate_day(folder / f"day_{day}", 40_000, [6, day])
    return folder


def options(source, **changes):
    return CriteoOptions(
        **{"input": source, "output": None, "estimate": True, "memory_limit_bytes": 1 << 30}
        | changes
    )


def truth(source, output, threshold):
    spec = prepare(
        CriteoOptions(
            input=source,
            output=output,
            frequency_threshold=threshold,
            memory_limit_bytes=1 << 30,
        )
    )
    files = [path for path in output.rglob("*") if path.suffix in (".bin", ".tsv")]
    return spec.cardinalities("categorical"), sum(path.stat().st_size for path in files)


@pytest.mark.long
def test_small_log(log, tmp_path):
    """The sample is the whole log: everything is exact, but for the length of a count."""
    result = estimate(options(log, frequency_threshold=3))
    cardinalities, size_bytes = truth(log, tmp_path / "out", 3)
    assert result.sampled == 1
    assert (result.rows, result.bad_lines) == (120_000, 0)
    assert list(result.cardinalities) == cardinalities
    assert result.data_bytes == pytest.approx(size_bytes, rel=0.02)
    assert "rows: 120,000; malformed lines: 0" in result.report()


@pytest.mark.parametrize(
    ("threshold", "zipped"),
    [
        pytest.param(0, False, id="all", marks=pytest.mark.long),
        pytest.param(3, True, id="gzip", marks=pytest.mark.long),
        pytest.param(15, False, id="frequent"),
    ],
)
def test_accuracy_of_a_sample(log, tmp_path, monkeypatch, threshold, zipped):
    """A fifth of the bytes: rows within 2 % (gzip: 5 %), ids in all within 30 %, each column's
    within a factor of three or 20."""
    source = log
    if zipped:
        source = tmp_path / "zipped"
        source.mkdir()
        for path in log.iterdir():
            (source / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 1))
    size = sum(path.stat().st_size for path in log.iterdir())
    monkeypatch.setattr(estimate_module, "SAMPLE_BYTES", size // 5)
    monkeypatch.setattr(estimate_module, "_SMALLEST_PIECE", 1 << 10)
    result = estimate(options(source, frequency_threshold=threshold))
    assert 0.1 < result.sampled < 0.3
    # Of a gzip file only the start is read, and its ratio is known to a block of 8 KiB.
    assert result.rows == pytest.approx(120_000, rel=0.05 if zipped else 0.02)
    spec = truth(log, tmp_path / "out", threshold)
    assert sum(result.cardinalities) == pytest.approx(sum(spec[0]), rel=0.3)
    for i, (guess, real) in enumerate(zip(result.cardinalities, spec[0], strict=True)):
        assert guess <= 3 * real + 20 and real <= 3 * guess + 20, f"cat_{i}"
    assert result.data_bytes == pytest.approx(spec[1], rel=0.2)
    # A gzip file is unpacked while it is parsed.
    assert (result.staging_bytes > 0.4 * size) == zipped


def test_spill_files(tmp_path, monkeypatch):
    """Columns larger than a bucket are spilled, with a place of 4 bytes per row: the label (1 byte)
    and the numerical features (26) at the same time."""
    generate_day(tmp_path / "day_0", 100, 1)
    without = estimate(options(tmp_path / "day_0")).staging_bytes
    monkeypatch.setattr(row_buckets, "_BUCKET_BYTES", 10)
    spilled = estimate(options(tmp_path / "day_0")).staging_bytes - without
    assert spilled == 100 * (1 + 4 + 26 + 4)


def test_cut_lines_and_gzip_members(tmp_path, monkeypatch):
    """The last line without its end counts; several gzip members are one file."""
    generate_day(tmp_path / "day_0", 100, 1)
    lines = (tmp_path / "day_0").read_bytes().splitlines(keepends=True)
    (tmp_path / "day_0").write_bytes(b"".join(lines[:50]).removesuffix(b"\n"))
    members = [gzip.compress(b"".join(lines[50:80])), gzip.compress(b"".join(lines[80:]))]
    (tmp_path / "day_1.gz").write_bytes(b"".join(members))
    (tmp_path / "day_2").write_bytes(b"no row\n")
    result = estimate(options(tmp_path, frequency_threshold=0))
    assert (result.sampled, result.rows, result.bad_lines) == (1, 100, 1)


def test_estimate_without_bad_lines(tmp_path):
    """A byte order mark, empty lines at the end, zero bytes after gzip data."""
    generate_day(tmp_path / "lines", 100, 1)
    text = (tmp_path / "lines").read_bytes()
    (tmp_path / "day_0").write_bytes(b"\xef\xbb\xbf" + text + b"\n\r\n\n")
    (tmp_path / "day_1.gz").write_bytes(gzip.compress(text) + bytes(512))
    result = estimate(options(tmp_path, frequency_threshold=0))
    assert (result.sampled, result.rows, result.bad_lines) == (1, 200, 0)


def test_file_without_line_ends(tmp_path, monkeypatch, capsys):
    """Only the sample of a file is read."""
    monkeypatch.setattr(estimate_module, "SAMPLE_BYTES", 1 << 20)
    (tmp_path / "day_0").write_bytes(b"x" * (8 << 20))
    assert main(["--input", str(tmp_path), "--estimate"]) == 2
    assert "not one line of the sample is a row" in capsys.readouterr().err


def test_digamma():
    """By hand: psi(1) = -gamma, psi(2) = 1 - gamma, psi(15) from tables."""
    gamma = 0.5772156649
    assert estimate_module._digamma(1) == pytest.approx(-gamma, abs=1e-7)
    assert estimate_module._digamma(2) == pytest.approx(1 - gamma, abs=1e-7)
    assert estimate_module._digamma(15) == pytest.approx(2.6743466, abs=1e-6)


def test_command(log, tmp_path, capsys):
    assert main(["--input", str(log), "--estimate", "--frequency_threshold", "3,0:50"]) == 0
    printed = capsys.readouterr().out
    assert "estimate from 100.000% of the log's bytes" in printed
    assert "rows: 120,000" in printed and "--memory_limit from 384 MiB" in printed
    assert main(["--input", str(log / "day_0"), "--estimate"]) == 0  # a single file, no holdout
    assert "rows: 40,000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--output", "out"], "--output is only read with a preparation, not by --estimate"),
        (["--engine", "spark"], "--engine is only read with a preparation"),
        (["--on_bad_line", "skip"], "--on_bad_line is only read with a preparation"),
    ],
)
def test_unread_flags(log, capsys, flags, message):
    assert main(["--input", str(log), "--estimate", *flags]) == 2
    assert message in capsys.readouterr().err


def test_log_without_rows(tmp_path, capsys):
    (tmp_path / "day_0").write_text("no\nrows\n")
    assert main(["--input", str(tmp_path), "--estimate"]) == 2
    assert "not one line of the sample is a row" in capsys.readouterr().err
    (tmp_path / "day_0").write_bytes(gzip.compress(b"x" * 1000)[:20] + b"\xff" * 90)
    assert main(["--input", str(tmp_path), "--estimate"]) == 2
    assert "the gzip data is cut off or damaged" in capsys.readouterr().err


def test_missing_output(tmp_path, capsys):
    assert main(["--input", str(tmp_path)]) == 2
    assert "--output is missing" in capsys.readouterr().err
