"""Notes on the data set at the start of a training, and on implausible metrics."""

from types import SimpleNamespace

import numpy as np
import pytest

from dataloading.spec.data_checks import NOTE, WARNING, Finding, write_findings
from tests.recipes.test_entry_scripts import TINY, in_process
from training import loop, run_log
from training.epoch_log import result_notes

FINDINGS = (
    Finding("tells_label", WARNING, ("price",), "'price' predicts the label", "why", "remedy"),
    Finding("unique_values", NOTE, ("row",), "'row' is unique", "why", "it is left out"),
    Finding("repeated_rows", WARNING, (), "60.0% of test are in train", "why", "remedy"),
)


@pytest.fixture
def rows(tiny, tmp_path):
    """A copy of the rows, whose numbers and ids can be replaced."""
    folder = tmp_path / "rows"
    for file in filter(lambda file: file.is_file(), tiny.rglob("*")):
        target = folder / file.relative_to(tiny)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    return folder


def notes_of(rows, folder, capsys, *flags):
    code, _ = in_process(folder, f"--dataset_path={rows}", *TINY, "--evals_per_epoch=2", *flags)
    assert code == 0
    return [line for line in capsys.readouterr().out.splitlines() if "note: " in line]


def test_warnings_of_the_data_set(rows, tmp_path, capsys):
    write_findings(rows, FINDINGS, [])
    lines = notes_of(rows, tmp_path / "run", capsys)
    (line,) = [line for line in lines if "checks of the data set" in line]
    texts = "'price' predicts the label; 60.0% of test are in train (remedies: "
    assert f"2 warnings: {texts}{rows / 'checks.json'})" in line
    (rows / "checks.json").write_text("{")
    lines = notes_of(rows, tmp_path / "b", capsys, "--max_steps=1")
    assert any("expected the findings" in line for line in lines)


def test_equal_predictions(rows, tmp_path, capsys):
    for file in rows.rglob("*.bin"):
        if file.stem != "label":
            file.write_bytes(bytes(file.stat().st_size))
    lines = notes_of(rows, tmp_path / "run", capsys)
    assert sum("all of the predictions are " in line for line in lines) == 1


def test_leak(rows, tmp_path, capsys):
    write_findings(rows, FINDINGS, [])
    for split in ("train", "validation", "test"):
        labels = np.fromfile(rows / split / "label.bin", bool)
        numbers = np.repeat(labels[:, None] * 8 - 4, 2, axis=1).astype(np.float16)
        numbers.tofile(rows / split / "numerical.bin")
    lines = notes_of(rows, tmp_path / "run", capsys, "--learning_rate=1", "--epochs=4")
    (line,) = [line for line in lines if "is higher than most tasks allow" in line]
    assert line.endswith("checks of the data set that warn: tells_label (price), repeated_rows")


@pytest.mark.parametrize("noise", [0.001, 1.0])
def test_model_that_gets_worse(noise, rows, tmp_path, monkeypatch, capsys):
    """The labels of validation are the opposite of what the model learns."""
    monkeypatch.setattr(loop, "_NOTED_FALL", noise)
    file = rows / "validation/label.bin"
    (~np.fromfile(file, bool)).tofile(file)
    flags = (f"--dataset_path={rows}", *TINY, "--learning_rate=1", "--epochs=4")
    assert in_process(tmp_path / "run", *flags)[0] == 0
    output = capsys.readouterr().out
    assert "is above 1: the probabilities are worse" in output
    assert ("validation auc fell from " in output) == (noise < 1)
    assert ": no checkpoint without" in output
    assert "last (validation)  best (validation)" in output and "DLL " not in output


def test_ranking_below_popularity():
    """Metrics of the weights that are kept count."""
    metrics = {"hr@5": 0.2, "hr@5_popularity": 0.3, "ndcg@5": 0.2, "ndcg@5_popularity": 0.1}
    run = SimpleNamespace(keeps_best=False, position=SimpleNamespace(best_metrics={"hr@5": 0.4}))
    (note,) = result_notes(run, {"elapsed_s": 1.0, "log": None, **metrics})
    assert note.startswith("note: hr@5: below a ranking")
    run.keeps_best = True
    assert not list(result_notes(run, metrics))


@pytest.mark.parametrize(
    ("local_size", "size", "kind", "mode", "noted"),
    [
        (2, 2, "CPU", "train", True),
        (2, 4, "CPU", "train", False),
        (2, 2, "CPU", "eval", False),
        (2, 2, "GPU", "train", False),
        (1, 1, "CPU", "train", False),
    ],
)
def test_ranks_that_do_not_pay(local_size, size, kind, mode, noted):
    run = SimpleNamespace(
        world=SimpleNamespace(local_size=local_size, size=size),
        device=SimpleNamespace(kind=kind),
        config=SimpleNamespace(run=SimpleNamespace(mode=mode)),
    )
    note = run_log.ranks_note(run)
    assert (note is not None) == noted
    assert not noted or "one process" in note
