"""Command line of the preparation: flags, exit statuses, files after a kill."""

import pytest

from preproc.amazon_books.__main__ import main
from preproc.histories import engines
from runtime.cli import USER_ERROR
from runtime.files.outputs import MARKER
from tests.preproc.amazon_books.amazon_reference import parse

AMAZON = ["--output_path", "out", "--amazon_dataset_path", "raw"]
CSV = ["--output_path", "out", "--input_format", "csv", "--interactions", "log.csv"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([*AMAZON, "--min_events", "1"], "--min_events"),
        ([*AMAZON, "--seed", str(1 << 64)], "--seed"),
        ([*CSV, "--delimiter", '"'], "--delimiter"),
        (CSV[:4], "--interactions"),
        (AMAZON[:2], "--amazon_dataset_path is missing"),
        ([*AMAZON, "--meta", "x", "--no_metadata"], "--meta and --no_metadata"),
        ([*CSV, "--time_column", "item_id"], "--time_column .* item_id, item_id"),
        ([*CSV, "--users", "x"], "--users x needs --user_features"),
        ([*CSV, "--item_features", "a,,b"], "--item_features"),
        ([*AMAZON, "--user_column", "u"], "--user_column is only read with"),
        ([*AMAZON, "--reviews=x", "--meta=y"], r"\(--input\) is only read without --reviews"),
    ],
)
def test_wrong_flags(flags, message):
    with pytest.raises(ValueError, match=message):
        parse(flags)


def test_default_engine(monkeypatch, tmp_path):
    for gpu, modules, expected in (
        (1, ["nvtabular"], "duckdb"),
        (1, ["cudf"], "duckdb"),
        (0, ["cudf", "nvtabular"], "duckdb"),
        (1, ["cudf", "nvtabular"], "nvtabular"),
    ):
        monkeypatch.setattr(engines, "_GPU", tmp_path if gpu else tmp_path / "none")
        monkeypatch.setattr(
            engines.importlib.util,
            "find_spec",
            lambda name, found=modules: True if name in found else None,
        )
        assert engines.default_engine() == expected
        assert parse(AMAZON).engine == expected


def test_complete_run(tmp_path, capsys):
    log, output = tmp_path / "log.csv", tmp_path / "a folder" / "out"
    rows = [f"{user},{item},{item}\n" for user in range(30) for item in range(user, user + 40)]
    log.write_text("user_id,item_id,time\n" + "".join(rows))
    command = ["--input_format=csv", f"--interactions={log}", f"--output_path={output}"]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{output}: train 1,140 rows, test 30 rows\n"
    assert printed.err.startswith("staged 1,200 events; left out 0 ")
    names = [MARKER, "checks.json", "encoder", "events", "feature_spec.yaml", "test", "train"]
    assert sorted(path.name for path in output.iterdir()) == names
    assert [path.name for path in output.parent.iterdir()] == ["out"]
    assert main(command) == USER_ERROR == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {output} exists") and error.count("\n") == 1
