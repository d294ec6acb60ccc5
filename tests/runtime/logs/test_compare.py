"""`python -m runtime.logs compare`: flags that differ, metrics, curves."""

import pytest

from runtime.logs import plots
from runtime.logs.__main__ import main
from runtime.logs.compare import draw_curves, read_run, report
from runtime.logs.run_logger import RunLogger


def write(folder, parameters, losses, aucs, summary, append=False):
    """Writes the log of a run: a loss per step from 1 on, and the AUC of some steps."""
    with RunLogger(folder / "log.json", parameters, append=append) as log:
        log.metadata("throughput", unit="samples/s")
        for step, loss in losses.items():
            log.log(step, {"loss": loss, "throughput": 100.0}, epoch=0)
            if step in aucs:
                log.log(step, {"auc": aucs[step], "log_loss": 0.5}, epoch=0)
        if summary is not None:
            log.summary(summary)
    return folder


@pytest.fixture
def runs(tmp_path):
    flags = {"learning_rate": 0.1, "dims": (8, 4), "amp": False, "run_dir": "a"}
    a = write(
        tmp_path / "a", flags, {1: 0.9, 2: 0.8}, {2: 0.7}, {"auc": 0.7, "throughput": 12345.6}
    )
    flags = {"learning_rate": 0.2, "dims": (8, 4), "amp": True, "run_dir": "b", "epochs": 3}
    b = write(tmp_path / "b", flags, {1: 0.9, 2: 0.6}, {1: 0.6, 2: 0.75}, {"auc": 0.75, "best": 1})
    return a, b


def test_report(runs):
    lines = report([read_run(run) for run in runs]).replace(str(runs[0].parent), "").splitlines()
    assert [line.split() for line in lines if line] == [
        ["flags", "that", "differ", "/a", "/b"],
        ["data", "set", "generated", "generated"],
        ["learning_rate", "0.1", "0.2"],
        ["amp", "False", "True"],
        ["metrics", "(*:", "best)", "/a", "/b"],
        ["auc", "0.70000", "0.75000", "*"],
        ["throughput", "12.35k", "samples/s", "-"],
        ["best", "-", "1"],
    ]
    by_auc = report([read_run(run) for run in runs], "auc").splitlines()[0].split()
    assert by_auc[3:] == [str(run) for run in reversed(runs)]
    with pytest.raises(ValueError, match="--sort: expected one of auc, throughput, got 'hr'"):
        report([read_run(runs[0])], "hr")


def test_resumed_run(tmp_path):
    """The second part replaces steps of the first one; without a summary the last values count."""
    folder = write(tmp_path, {"epochs": 1}, {1: 0.9, 2: 0.8, 3: 0.7}, {3: 0.6}, None)
    record = read_run(folder)
    assert record.metrics() == {"loss": 0.7, "throughput": 100, "auc": 0.6, "log_loss": 0.5}
    assert "has no summary; its values are the last ones" in report([record])
    write(folder, {"epochs": 2}, {3: 0.75, 4: 0.5}, {4: 0.65}, {"auc": 0.65}, append=True)
    record = read_run(folder)
    assert record.parameters == {"epochs": 2} and record.metrics() == {"auc": 0.65}
    assert record.points(("total_loss", "loss")) == [(1, 0.9), (2, 0.8), (3, 0.75), (4, 0.5)]


def test_cut_lines(tmp_path):
    """They are left out: the last one during a training, and one that a resumed run follows."""
    folder = write(tmp_path, {"epochs": 1}, {1: 0.9, 2: 0.8}, {}, None)
    log, complete = folder / "log.json", read_run(folder)
    content = log.read_bytes()
    for cut in (b"DL", b'DLLL {"timestamp": "\xc3', b'DLLL {"step": 3, "data": {"loss": 0.7}'):
        log.write_bytes(content + cut)
        assert read_run(folder) == complete
        write(folder, {"epochs": 1}, {3: 0.7}, {}, None, append=True)
        assert read_run(folder).points(("loss",)) == [(1, 0.9), (2, 0.8), (3, 0.7)]


def test_splits(tmp_path):
    """Metrics of validation and test samples are different rows, with one name for each."""
    for name, split in (("train", "validation"), ("eval", "test")):
        with RunLogger(tmp_path / name / "log.json", {"mode": name}) as log:
            log.metadata("log_loss", split=split)
            log.metadata("test_auc", split="test")
            log.summary({"log_loss": 0.5, "test_loss": 0.5, "test_auc": 0.25})
    lines = report([read_run(tmp_path / name) for name in ("train", "eval")]).splitlines()
    assert [line.split() for line in lines[-3:]] == [
        ["log_loss", "(validation)", "0.50000", "-"],
        ["auc", "(test)", "0.25000", "*", "0.25000", "*"],
        ["log_loss", "(test)", "-", "0.50000"],
    ]


def test_lines_of_epochs(tmp_path):
    """Values of an epoch belong to its last step."""
    with RunLogger(tmp_path / "log.json", {"x": 1}) as log:
        log.log(7, {"loss": 0.5}, epoch=0)
        log.end_epoch(0, 7, {"hr@10": 0.25})
        log.log(14, {"loss": 0.4}, epoch=1)
        log.end_epoch(1, 14, {"hr@10": 0.5})
    assert read_run(tmp_path).points(("auc", "hr@")) == [(7, 0.25), (14, 0.5)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "got neither"),
        (b"", "without parameters"),
        (b"loss 0.5\n", "line 1: .*got 'loss 0.5'"),
        (b"DLLL {}\n", "line 1: "),
        (b'DLLL {"step": 1e999, "type": "LOG", "data": {}, "datetime": ""}\n', "line 1: "),
        (b"DLLL {\n", "without parameters"),
        (b"\xff\xfe\x00\n", "log.json, line 1: "),
        (b"DLLL {", "log.json: .*without parameters"),
    ],
)
def test_errors(tmp_path, content, message):
    if content is not None:
        (tmp_path / "log.json").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_run(tmp_path)


def test_curves(runs, tmp_path, monkeypatch):
    """A panel per kind of value, a line per run."""
    figures = []
    monkeypatch.setattr(plots, "write_picture", lambda figure, path: figures.append(figure))
    monkeypatch.setattr(
        plots, "draw", lambda kind, path, **content: plots.comparison(path, **content)
    )
    draw_curves(tmp_path / "a.png", [read_run(run) for run in runs])
    loss, evaluation, auc = figures[0].axes
    titles = [axes.get_title() for axes in figures[0].axes]
    assert titles == ["Training loss", "Loss of evaluations", "AUC"]
    assert [list(line.get_ydata()) for line in loss.lines] == [[0.9, 0.8], [0.9, 0.6]]
    assert [list(line.get_xdata()) for line in auc.lines] == [[2], [1, 2]]
    assert evaluation.lines and loss.lines[0].get_color() == auc.lines[0].get_color()
    (legend,) = figures[0].legends
    assert [text.get_text() for text in legend.get_texts()] == [str(run) for run in runs]


def test_command(runs, tmp_path, run_script, capsys):
    path = tmp_path / "new/comparison.png"
    done = run_script("-m", "runtime.logs", "compare", *runs, "--plot", path, env={})
    assert done.returncode == 0, done.stderr
    assert "learning_rate" in done.stdout and path.read_bytes().startswith(b"\x89PNG")
    for name in ("x.xyz", "x", "x.svg"):
        assert main(["compare", *map(str, runs), "--plot", str(tmp_path / name)]) == 2
        assert "--plot: expected a file name that ends with .png" in capsys.readouterr().err
        assert not (tmp_path / name).exists()
    assert main(["compare", str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize(
    ("flags", "kept"),
    [
        ({"keep_best": True}, 0.8),
        ({"keep_best": None, "early_stopping": 4}, 0.8),
        ({"keep_best": False, "early_stopping": 4}, 0.7),
    ],
)
def test_kept_weights(tmp_path, flags, kept):
    """A training that keeps its best weights is compared by them."""
    with RunLogger(tmp_path / "log.json", flags) as log:
        log.metadata("auc", split="validation")
        for step, auc in {1: 0.8, 2: 0.7}.items():
            log.log(step, {"auc": auc}, epoch=0)
        log.summary({"auc": 0.7, "best_log_loss": 0.5, "best_log_loss_step": 1})
    assert read_run(tmp_path).metrics()["auc (validation)"] == kept
