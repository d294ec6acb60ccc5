import json
import math
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from runtime.logs.dlll import LogNames
from runtime.logs.run_logger import RunLogger
from runtime.readable import readable


def _lines(path):
    lines = []
    for line in Path(path).read_text().splitlines():
        assert line.startswith("DLLL {")
        lines.append(json.loads(line[5:], parse_constant=lambda name: pytest.fail(name)))
    return lines


def printed_lines(capsys):
    """Lines of stdout without empty ones; stderr must be empty."""
    captured = capsys.readouterr()
    assert captured.err == ""
    return [line for line in captured.out.splitlines() if line]


def test_lines_of_the_file(tmp_path):
    path = tmp_path / "new" / "log.json"
    with RunLogger(path, {"batch_size": 64, "lr": 24.0, "amp": True, "path": Path("x")}) as log:
        log.metadata("throughput", unit="samples/s", format=".1f")
        log.log(10, {"loss": 0.5}, epoch=0)
        log.log(20, {"auc": 0.75})
        log.message("no GPU is visible: training on the CPU")
        log.summary({"best_auc": 0.75})
        log.message("only on stdout")
    lines = _lines(path)
    for text, line in zip(path.read_text().splitlines(), lines, strict=True):
        assert text == f"DLLL {json.dumps(line)}"
    times = ["timestamp", "datetime", "elapsedtime", "type"]
    log_keys, metadata_keys = [*times, "step", "data"], [*times, "metric", "metadata"]
    assert [list(line) for line in lines] == [log_keys, metadata_keys] + [log_keys] * 4
    for line in lines:
        assert float(line["timestamp"]) > 1.7e9 and 0 <= float(line["elapsedtime"]) < 60
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:.*", line["datetime"])
    assert lines[0]["step"] == "PARAMETER"
    assert lines[0]["data"] == {"batch_size": 64, "lr": 24.0, "amp": True, "path": "x"}
    assert lines[1]["type"] == "METADATA" and lines[1]["metric"] == "throughput"
    assert lines[1]["metadata"] == {"unit": "samples/s", "format": ":.1f"}
    assert [(line["type"], line["step"], line["data"]) for line in lines[2:]] == [
        ("LOG", [0, 10], {"loss": 0.5}),
        ("LOG", 20, {"auc": 0.75}),
        ("LOG", "MESSAGE", {"message": "no GPU is visible: training on the CPU"}),
        ("LOG", [], {"best_auc": 0.75}),
    ]


def test_names_of_a_recipe(tmp_path, capsys):
    names = LogNames(step={"loss": "total_loss", "rate": "samples/s"}, summary={"auc": "test_auc"})
    with RunLogger(tmp_path / "log", {}, names=names) as log:
        log.metadata("rate", unit="rows/s")
        log.log(7, {"loss": 0.5, "rate": 2.0}, epoch=1)
        log.end_epoch(1, 9, {"rate": 3.0})
        log.summary({"auc": 0.75})
    lines = _lines(tmp_path / "log")[1:]
    assert [line["metric"] for line in lines[:2]] == ["samples/s", "rate"]
    assert [(line["step"], line["data"]) for line in lines[2:]] == [
        ([1, 7], {"total_loss": 0.5, "samples/s": 2.0}),
        ([1], {"rate": 3.0}),
        ([], {"test_auc": 0.75}),
    ]
    assert "epoch 1 done  rate 3 rows/s" in capsys.readouterr().out


def test_valid_json(tmp_path):
    values = [np.float32(0.1), np.int64(7), np.bool_(True), np.array([1.5, math.nan], np.float32)]
    values += [tf.constant(0.5, tf.bfloat16), tf.constant([1, 2]), -math.inf, np.float16(math.inf)]
    values += [None, {"a": (1, math.nan)}, {3, 1, 2}, b"x", "text"]
    expected = [0.1, 7, True, [1.5, None], 0.5, [1, 2], None, None]
    expected += [None, {"a": [1, None]}, [1, 2, 3], "b'x'", "text"]
    with RunLogger(tmp_path / "log", {}) as log:
        log.log(1, {"values": values})
    assert _lines(tmp_path / "log")[1]["data"] == {"values": expected}


def test_split_of_a_metric(tmp_path, capsys):
    """Shown once for its metrics that follow each other, and not where the name has it."""
    names = LogNames(summary={"log_loss": "test_loss"})
    with RunLogger(tmp_path / "log", {}, names=names) as log:
        for metric in ("auc", "log_loss", "best_auc"):
            log.metadata(metric, split="test")
        log.log(1, {"loss": 0.5, "auc": 0.7, "log_loss": 0.4, "elapsed_s": 2, "best_auc": 0.7})
        log.summary({"log_loss": 0.4, "auc": 0.7})
    assert printed_lines(capsys) == [
        "step 1  loss 0.5  test auc 0.7  log_loss 0.4  elapsed_s 2  test best_auc 0.7",
        "test log_loss 0.4  auc 0.7",
    ]
    log = _lines(tmp_path / "log")
    assert log[1]["metadata"] == {"split": "test"} and set(log[-1]["data"]) == {"test_loss", "auc"}


def test_readable_lines_on_stdout(tmp_path, capsys):
    with RunLogger(tmp_path / "log", {"batch_size": 64}, total_steps=4096) as log:
        log.metadata("throughput", unit="samples/s")
        log.metadata("auc", format=".5f")
        log.log(1000, {"loss": 0.45123, "lr": 24.0, "throughput": 1234567.0}, epoch=0)
        log.log(1000, {"auc": np.float64(0.7), "rows": 89137319, "bad": math.nan})
        log.end_epoch(0, 1000, {"throughput": 1.0, "auc": 0.7})
        log.message("hello")
        columns = {"last": {"step": 2, "auc": 0.6, "best_x": 0.8}, "best": {"step": 1, "auc": 0.7}}
        values = {"auc": 0.6, "best_auc": 0.7, "best_auc_step": 1, "throughput": 12.0, "steps": 2}
        values["best_x"] = 0.8
        log.summary(values, columns)
    assert printed_lines(capsys) == [
        "epoch 0 step 1000/4096  loss 0.4512  lr 24  throughput 1.235M samples/s",
        "step 1000/4096  auc 0.70000  rows 89,137,319  bad nan",
        "epoch 0 done  throughput 1 samples/s  auc 0.70000",
        "hello",
        "metric  last     best",
        "step    2        1",
        "auc     0.60000  0.70000",
        "best_x  0.80000  -",
        "throughput 12 samples/s  steps 2",
    ]


@pytest.mark.parametrize(
    ("value", "text", "of_five_digits"),
    [
        (0.0, "0", "0.00000"),
        (1.2e-5, "1.2e-05", "0.00001"),
        (9999.0, "9999", "9999.00000"),
        (999_999.0, "1M", "999999.00000"),
        (-2.5e9, "-2.5G", "-2.5e+09"),
        (1e20, "1e+20", "1e+20"),
        (math.nan, "nan", "nan"),
        (12345, "12,345", None),
        (None, "None", None),
    ],
)
def test_readable_values(value, text, of_five_digits):
    assert readable(value, unit="ms") == f"{text} ms"
    assert of_five_digits is None or readable(value, format=".5f") == of_five_digits


def test_other_ranks(tmp_path, capsys):
    log = RunLogger(tmp_path / "log", {}, tensorboard_dir=tmp_path / "tb", enabled=False)
    log.metadata("x", unit="s")
    log.log(1, {"x": 1})
    log.progress(1)
    log.message("x")
    log.summary({})
    log.close()
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "")


def test_existing_log(tmp_path, capsys):
    path = tmp_path / "log"
    RunLogger(path, {"run": 1}).close()
    assert "earlier" not in capsys.readouterr().out
    RunLogger(path, {"run": 2}).close()
    assert f"the log of an earlier run is {tmp_path / 'log-1'} now" in capsys.readouterr().out
    RunLogger(path, {"run": 3}, append=True).close()
    assert "earlier" not in capsys.readouterr().out
    RunLogger(path, {"run": 4}).close()
    runs = [[line["data"]["run"] for line in _lines(tmp_path / n)] for n in ("log-1", "log-2")]
    assert runs == [[1], [2, 3]]


def test_unwritable_paths(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for paths in ({"log_path": file / "log"}, {"log_path": None, "tensorboard_dir": file / "tb"}):
        with pytest.raises(OSError, match=f"'{file}"):
            RunLogger(parameters={}, **paths)


def test_tensorboard_scalars(tmp_path):
    with RunLogger(None, {}, tensorboard_dir=tmp_path) as log:
        log.log(5, {"loss": np.float32(0.5), "name": "text"}, epoch=0)
        log.log(6, {"loss": tf.constant(0.25)})
        (file,) = tmp_path.iterdir()
        events = list(tf.compat.v1.train.summary_iterator(str(file)))  # flushed already
    result = [
        (event.step, value.tag, float(tf.make_ndarray(value.tensor)))
        for event in events
        for value in event.summary.value
    ]
    assert result == [(5, "loss", 0.5), (6, "loss", 0.25)]


def test_full_disk_of_tensorboard(tmp_path, capsys):
    """Played by a limit on the size of files."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RunLogger(None, {}, tensorboard_dir=tmp_path) as log:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
        try:
            for step in range(20):
                log.log(step, {"loss": 0.5})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    out = capsys.readouterr().out
    assert out.count("note: TensorBoard summaries end") == 1 and str(tmp_path) in out


def test_progress_bar(capsys, monkeypatch):
    """On a terminal, and not in a pipe."""
    with RunLogger(None, {}, total_steps=10) as log:
        log.progress(5)
        log.log(5, {"loss": 1.0})
    assert capsys.readouterr() == ("step 5/10  loss 1\n", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with RunLogger(None, {}, total_steps=10, initial_step=2) as log:
        log.progress(5)
        log.log(5, {"loss": 1.0})
        log.progress(10)
        log.summary({"auc": 0.5})
    captured = capsys.readouterr()
    assert captured.out == "step 5/10  loss 1\nauc 0.5\n"
    assert "5/10" in captured.err and captured.err.endswith("\r")


def test_killed_run(tmp_path):
    code = (
        "import os, signal; from runtime.logs.run_logger import RunLogger;"
        f"log = RunLogger({str(tmp_path / 'log')!r}, {{}}); log.log(1, {{'loss': 1.0}});"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == -signal.SIGKILL
    assert [line["step"] for line in _lines(tmp_path / "log")] == ["PARAMETER", 1]
    assert process.stdout.endswith("step 1  loss 1\n")


def test_lines_of_dllogger_on_stdout(tmp_path, capsys):
    """Lines of epochs and of the summary as StdOutBackend prints them; none of steps."""
    names = LogNames(
        epoch={"epoch_s": "time"},
        added={"test_loss": ("log_loss", 1), "auc_percent": ("auc", 0.01)},
    )
    with RunLogger(tmp_path / "log", {}, names=names, prints_dlll=True) as log:
        log.metadata("auc", format=".5f")
        log.metadata("rate", unit="rows/s")
        log.log(1, {"auc": 0.5}, epoch=0)
        log.end_epoch(0, 2, {"epoch_s": 2.5, "rate": 3})
        log.summary({"auc": np.float64(0.5), "log_loss": math.nan})
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("DLL ")]
    pattern = r"DLL \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} - (.*)"
    assert [re.fullmatch(pattern, line)[1] for line in lines] == [
        "(0,) time : 2.5  rate : 3 rows/s",
        "() auc : 0.50000  log_loss : None  test_loss : None  auc_percent : 50.0 ",
    ]
    assert _lines(tmp_path / "log")[-1]["data"] == {
        "auc": 0.5,
        "log_loss": None,
        "test_loss": None,
        "auc_percent": 50.0,
    }
