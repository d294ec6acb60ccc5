"""`python -m runtime.logs dashboard`: one page, which a browser shows without other files."""

import re
import shutil
import subprocess
import sys

import pytest

from deployment.client.latency_statistics import Measurement, write_csv
from runtime.logs import plots
from runtime.logs.__main__ import main
from tests.runtime.logs.test_compare import write


@pytest.fixture
def page(tmp_path, root):
    """The page of two trainings, one of them without a summary, and a measured latency."""
    runs = tmp_path / "runs"
    flags = {"recipe": "dlrm", "mode": "train", "path": "<a & b>"}
    write(runs / "first", flags, {1: 0.9, 2: 0.8}, {2: 0.7}, {"auc": 0.7, "throughput": 12345.6})
    write(runs / "group/second", flags, {1: 0.9, 2: 0.6}, {1: 0.6, 2: 0.75}, None)
    plots.learning_curve(runs / "first/learning_curve.png", {"train_loss": [(1, 0.9), (2, 0.8)]})
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
    for part in ("first", "group/second", "0.70000", "12.35k samples/s", "without summary"):
        assert part in text
    assert "&lt;a &amp; b&gt;" in text and "<a & b>" not in text
    assert text.count("<img") == 2 and "Served latency: latency.csv" in text
    assert "scores.csv" not in text
    assert not re.search(r'(?:src|href)="(?!data:|#)', text) and "<script" not in text


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium: make browser-setup")
def test_browser(page, tmp_path):
    """Chromium lays the page out: each link has its target, and pictures have their sizes."""
    common = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=2000",
    ]
    common.append(f"--user-data-dir={tmp_path / 'profile'}")
    sizes = "[...document.images].map(i => i.naturalWidth > 100)"
    targets = "[...document.links].map(a => !!document.querySelector(a.hash))"
    script = f"<script>onload = () => document.title = [{sizes}, {targets}].join()</script>"
    tested = page.with_name("tested.html")
    tested.write_text(page.read_text().replace("</body>", f"{script}</body>"))
    dom = subprocess.run(
        [*common, "--dump-dom", tested.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    assert "<title>true,true,true,true</title>" in dom


def test_errors(tmp_path, capsys):
    assert main(["dashboard", str(tmp_path)]) == 2
    assert "expected a folder with runs (log.json below it), got none" in capsys.readouterr().err
