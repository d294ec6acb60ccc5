"""`python -m runtime.logs dashboard`: one page, which a browser shows without other files."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from dataloading.spec.data_checks import WARNING, Finding, write_findings
from deployment.client.latency_statistics import Measurement, write_csv
from runtime.logs import plots
from runtime.logs.__main__ import main
from runtime.logs.compare import read_run, report
from runtime.logs.dashboard import write_dashboard
from runtime.logs.run_logger import RunLogger
from tests.runtime.logs.test_compare import write


@pytest.fixture(scope="module")
def page(tmp_path_factory, root):
    """The page of two trainings, one of them without a summary, and a measured latency."""
    runs = tmp_path_factory.mktemp("page") / "runs"
    flags = {"recipe": "dlrm", "mode": "train", "path": "<a & b>"}
    write(runs / "first", flags, {1: 0.9, 2: 0.8}, {2: 0.7}, {"auc": 0.7, "throughput": 12345.6})
    write(runs / "group/second", flags, {1: 0.9, 2: 0.6}, {1: 0.6, 2: 0.75}, None)
    plots.learning_curve(runs / "first/learning_curve.png", {"train_loss": [(1, 0.9), (2, 0.8)]})
    metrics = {"auc": 0.123456}
    models = [{"model": "constant", "settings": "", "metrics": metrics, "elapsed_s": 0.1}]
    results = {"split": "test", "description": "", "models": models, "checkpoint": None}
    (runs / "first/baseline.json").write_text(json.dumps(results))
    numbers = range(1, len(Measurement._fields) + 1)
    write_csv(runs / "latency.csv", [Measurement(*numbers)])
    (runs / "scores.csv").write_text("user,score\n1,0.5\n")
    # In another process: in this one no pictures are drawn, see conftest.py.
    command = [sys.executable, "-m", "runtime.logs", "dashboard", str(runs)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == f"{runs}/dashboard.html: 2 runs\n"
    return runs / "dashboard.html"


def test_content(page):
    text = page.read_text()
    assert "<td>constant</td><td>0.12346</td>" in text and "compared on the test split" in text
    for part in ("first", "group/second", "0.70000", "12.35k samples/s", "without summary"):
        assert part in text
    assert "&lt;a &amp; b&gt;" in text and "<a & b>" not in text
    assert text.count("<img") == 2 and "Served latency: latency.csv" in text
    assert "scores.csv" not in text
    assert not re.search(r'(?:src|href)="(?!data:|#)', text) and "<script" not in text


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium: make browser-setup")
def test_browser(page, tmp_path):
    """Chromium lays the page out: each link has its target, and pictures have their sizes."""
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--virtual-time-budget=2000", f"--user-data-dir={tmp_path / 'profile'}"]
    sizes = "[...document.images].map(i => i.naturalWidth > 100)"
    targets = "[...document.links].map(a => !!document.getElementById(decodeURI(a.hash.slice(1))))"
    script = f"<script>onload = () => document.title = [{sizes}, {targets}].join()</script>"
    tested = page.with_name("tested.html")
    tested.write_text(page.read_text().replace("</body>", f"{script}</body>"))
    command.append(tested.as_uri())
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "<title>true,true,true,true</title>" in done.stdout


def test_unreadable_logs(tmp_path, capsys):
    """They are listed with the reason, and other files that are not tables are left out."""
    write(tmp_path / "good", {"recipe": "dlrm"}, {1: 0.9}, {}, None)
    for name, content in (("empty", b""), ("bytes", bytes(range(128, 256)) * 9 + b"\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.json").write_bytes(content)
        (tmp_path / name / "table.csv").write_bytes(content)
    assert main(["dashboard", str(tmp_path)]) == 0
    assert "dashboard.html: 1 runs; 2 logs cannot be read, see the page" in capsys.readouterr().out
    page = (tmp_path / "dashboard.html").read_text()
    assert "Logs that cannot be read" in page
    assert "empty/log.json: expected the log of a run, got a file without parameters" in page
    assert "bytes/log.json, line 1: expected a line" in page
    assert main(["dashboard", str(tmp_path), "--output", str(tmp_path / "good")]) == 2
    assert f"Is a directory: '{tmp_path / 'good'}'" in capsys.readouterr().err
    (tmp_path / "good/log.json").unlink()
    assert main(["dashboard", str(tmp_path)]) == 2
    assert "expected a run that can be read, got: " in capsys.readouterr().err
    assert main(["dashboard", str(tmp_path / "good")]) == 2
    assert "expected a folder with runs (log.json below it), got none" in capsys.readouterr().err


def test_baselines_of_other_shapes(tmp_path):
    """Models alone have a table; of other files, the page has the reason."""
    models = [{"model": "constant", "metrics": {"auc": 0.5}}]
    for name, content in (("a", {"models": models}), ("b", {"auc": 1}), ("c", [3]), ("d", None)):
        write(tmp_path / name, {"recipe": "dlrm"}, {1: 0.9}, {}, None)
        (tmp_path / name / "baseline.json").write_text(json.dumps(content) if content else "{")
    write_dashboard(tmp_path, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<th>simple models</th><th>auc</th>" in page and "<td>constant</td>" in page
    for name in "bcd":
        assert f"{name}/baseline.json: expected results of --baseline, got " in page


def test_checks_of_data_sets(tmp_path):
    """Each data set has one section; one without checks has none."""
    finding = Finding("tells_label", WARNING, ("a", "b"), "a < b", "leak", "drop 'a'")
    for name, findings in (("bad", [finding]), ("good", []), ("damaged", [])):
        (tmp_path / name).mkdir()
        write_findings(tmp_path / name, findings, ["ties"])
    (tmp_path / "damaged/checks.json").write_text("{")
    for number, name in enumerate(("bad", "bad", "good", "damaged", "absent")):
        flags = {"dataset_path": str(tmp_path / name)}
        write(tmp_path / f"runs/{number}", flags, {1: 0.9}, {}, None)
    write(tmp_path / "runs/generated", {"dataset_path": None}, {1: 0.9}, {}, None)
    write_dashboard(tmp_path / "runs", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count("<h3>Checks of the data set</h3>") == 3
    assert "<p>warning, tells_label: a &lt; b (leak). drop &#x27;a&#x27;</p>" in page
    assert "All checks passed." in page and "expected the findings of a preparation" in page


def test_metric_of_the_user(tmp_path):
    """A metric that a training compares by has a column, a best value, and can be sorted by."""
    for name, value in (("a", 0.25), ("b", 0.5)):
        flags = {"mode": "train", "dataset_path": "x", "metric": "mrr"}
        with RunLogger(tmp_path / name / "log.json", flags) as log:
            for metric in ("mrr", "calibration"):
                log.metadata(metric, split="validation")
            log.summary({"mrr": value, "calibration": value})
    write_dashboard(tmp_path, tmp_path / "page.html", "mrr")
    page = (tmp_path / "page.html").read_text()
    assert "<th>mrr (validation)</th>" in page and "<b>0.50000</b>" in page
    assert page.index("<b>0.50000</b>") < page.index("<td>0.25000</td>")
    text = report([read_run(tmp_path / name) for name in "ab"], "mrr")
    assert re.search(r"mrr \(validation\) +0.50000 \* +0.25000\n", text)
    assert not re.search(r"calibration.*\*", text)


def test_overview(tmp_path):
    """A table per data set, sorted, with the best value marked; a training has its evaluation's."""
    for name, data_set, split, metrics in (
        ("a", "x", "validation", {"auc": 0.5, "ndcg@x": 0.3}),
        ("a/eval-test", "x", "test", {"auc": 0.25}),
        ("b", "x", "validation", {"validation_auc": 0.4, "validation_loss": 0.125}),
        ("b/eval-test", "x", "test", {"test_auc": 0.75}),
        ("c", "y", "test", {"ndcg@5": 0.375, "full_hr@10": 0.625}),
    ):
        mode = "eval" if "/" in name else "train"
        flags = {"mode": mode, "dataset_path": data_set}
        with RunLogger(tmp_path / name / "log.json", flags) as log:
            for metric in metrics:
                log.metadata(metric, split=split)
            log.summary(metrics)
    with pytest.raises(
        ValueError, match=r"--sort: expected one of .*auc \(test\).* got 'nonsense'"
    ):
        write_dashboard(tmp_path, tmp_path / "page.html", "nonsense")
    assert write_dashboard(tmp_path, tmp_path / "page.html") == (5, 0)
    page = (tmp_path / "page.html").read_text().partition("<h2>Runs</h2>")[0]
    sections = dict(re.findall(r"<h2>(\w)</h2>\n(.*?)(?=<h2>|$)", page, re.DOTALL))
    assert re.findall("<th>(.*?)</th>", sections["x"])[3:-1] == [
        "auc (test)",
        "auc (validation)",
        "log_loss (validation)",
    ]
    rows = [
        re.findall("<td>(.*?)</td>", row) for row in re.findall("<tr>(<td>.*)</tr>", sections["x"])
    ]
    assert [row[3:-1] for row in rows] == [
        ["<b>0.75000</b>", "0.40000", "0.12500"],
        ["0.25000", "<b>0.50000</b>", "-"],
    ]
    assert "0.37500" in sections["y"] and "<th>full_hr@10 (test)</th>" in sections["y"]


def test_size(tmp_path):
    """Twenty runs with pictures fit into 1 MB."""
    import numpy as np
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 255, (200, 300, 3), np.uint8)
    for number in range(20):
        write(tmp_path / str(number), {"a": number}, {1: 0.9}, {}, None)
        Image.fromarray(noise).save(tmp_path / str(number) / "roc.png")
    write_dashboard(tmp_path, tmp_path / "page.html")
    assert 100_000 < (tmp_path / "page.html").stat().st_size < 1_000_000
