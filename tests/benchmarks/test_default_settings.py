"""`benchmarks.default_settings`: splits, gaps, tables, kept results."""

import csv
import itertools
import json
import re

import numpy as np
import pytest

from benchmarks import default_settings, which_model
from benchmarks.default_settings import SIMPLE, Cell, Gap, add_tables, gap_of, judge, permute
from benchmarks.harness.result_page import BenchmarkOptions, Page


def results_of(*aucs, elapsed_s=10.0):
    return [Cell(auc, 8000, elapsed_s, "abc") for auc in aucs]


MODELS = {
    "logistic regression": results_of(0.80, 0.82),
    "LightGBM": results_of(0.79, 0.84),
    "dlrm": results_of(0.81, 0.80, elapsed_s=21.4),
}


@pytest.fixture
def page():
    return Page("", "", BenchmarkOptions(), [])


def test_gap():
    """LightGBM has the higher mean, .815; the gaps are .02 and -.04, with the error .03."""
    gap = gap_of(MODELS, "dlrm")
    assert gap.mean == pytest.approx(-0.01) and gap.error == pytest.approx(0.03)
    assert str(gap) == "-0.0100 ± 0.0300" and str(Gap(0.02, np.nan)) == "+0.0200"


def test_tables_far_behind():
    assert Gap(-0.02, 0.005).is_behind and Gap(-0.02, np.nan).is_behind
    assert not Gap(-0.02, 0.015).is_behind and not Gap(-0.005, 0.001).is_behind


def test_tables(page):
    add_tables(page, {"shop": MODELS}, ["dlrm"])
    assert "| shop | 8,000 | 0.8100 | 0.8150 | 0.8050 | -0.0100 ± 0.0300 |" in str(page)
    assert "| shop | 8,000 | 21 (21) |" in str(page)


def test_verdicts(page):
    ahead = {**MODELS, "dlrm": results_of(0.85, 0.86)}
    judge(page, {"shop": MODELS, "bank": ahead}, "dlrm")
    assert page.is_met and "ahead on 1 of 2 tables" in str(page)
    judge(page, {"shop": MODELS}, "dlrm")
    assert not page.is_met and "mean gap -0.0100; target 0 or more: MISSED" in str(page)


@pytest.mark.parametrize("header", ["label,x,t_", "label,t_,x", "label,x"])
def test_permutation(header, tmp_path):
    table, names = tmp_path / "shop.csv", header.split(",")
    values = [{"label": str(n % 2), "x": f"{n},a", "t_": "9"} for n in range(5)]
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(values)
    permute(table, tmp_path / "rows.csv", 1)
    with (tmp_path / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    order = np.random.default_rng(101).permutation(5)
    assert [row["x"] for row in rows] == [f"{n},a" for n in order]
    assert [row["t_"] for row in rows] == list("01234")


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Commands that would run; each leaves what the real one would."""
    done = []

    def run(*words):
        words = [str(word) for word in words]
        flags = dict(itertools.pairwise(words))
        done.append(words)
        if "preproc.transcode" in words:
            (folder := tmp_path / flags["--output"] / "train").mkdir(parents=True)
            (folder / "label.bin").write_bytes(bytes(8))
        elif "recipes.baseline" in words:
            (folder := tmp_path / flags["--output"]).mkdir()
            names = ("constant", *SIMPLE)
            models = [{"model": n, "metrics": {"auc": 0.7}, "elapsed_s": 2.0} for n in names]
            (folder / "baseline.json").write_text(json.dumps({"models": models}))
        else:
            (folder := tmp_path / flags["--run_dir"]).mkdir(parents=True)
            entry = {"step": [], "data": {"auc": 0.8}}
            (folder / "log.json").write_text(f"DLLL {json.dumps(entry)}\n")

    monkeypatch.setattr(default_settings, "run", run)
    (tmp_path / "shop.csv").write_text("label,x\n" + "0,1\n1,2\n" * 5)
    return done


def test_page(commands, tmp_path):
    out, work = tmp_path / "page.md", tmp_path / "work"
    words = ("--tables", tmp_path, "--work", work, "--splits", 2, "--models", "dlrm")
    for _ in range(2):  # the second one reads kept results
        assert default_settings.main([*map(str, words), "--output", str(out)]) == 0
    assert "| shop | 8 | 0.7000 | 0.7000 | 0.8000 | +0.1000 ± 0.0000 |" in out.read_text()
    programs = [words[1] if words[0] == "-m" else words[0] for words in commands]
    assert programs == ["preproc.transcode", "recipes.baseline", *["dlrm.py"] * 2] * 2
    train = commands[2]
    assert train[1:3] == ["--dataset_path", str(work / "shop/0/data")]
    assert {word for word in train if word.startswith("--")} == {
        *("--dataset_path", "--seed", "--run_dir", "--save_checkpoint_path"),
    }
    page = tmp_path / "which_model.md"
    page.write_text("a\n\n<!-- results: old.md -->\nold\n<!-- end of results -->\n\nb\n")
    for _ in range(2):
        which_model.rewrite(out, page)
        new = page.read_text()
        assert new.startswith("a\n\n<!-- results: page.md -->\n| table |")
        assert "ahead on 1 of 1 tables" in new and "old" not in new and new.endswith("-->\n\nb\n")


def test_table_of_the_documentation(root):
    """The page agrees with its results page, by which `which_model.rewrite` replaces the table."""
    text = which_model.PAGE.read_text()
    name = re.search(r"<!-- results: (\S+) -->", text)[1]
    assert which_model.block(root / "benchmarks/results" / name) in text
    assert f"](../../benchmarks/results/{name})" in text


def test_no_table(tmp_path, capsys):
    with pytest.raises(SystemExit):
        default_settings.main(["--tables", str(tmp_path)])
    assert "expected a folder of files .csv" in capsys.readouterr().err
