"""Scores of the server against those of the trained model."""

import re

import numpy as np
import pytest

from deployment.client.client import Client
from deployment.evaluate_accuracy import __main__ as evaluate_accuracy


def printed(text, line):
    """Numbers by name in a line that evaluate_accuracy printed."""
    (actual,) = re.findall(rf"^{line} +(.*)$", text, re.MULTILINE)
    return {name: float(value) for name, value in re.findall(r"([\w@]+) ([-+.\de]+)", actual)}


def evaluate(server, model, recipe_model, *flags):
    return evaluate_accuracy.main(
        [
            *(f"--url={server.url}", f"--model_name={model}", "--batch_size=64"),
            *(f"--checkpoint_dir={recipe_model.checkpoint}", *flags),
        ]
    )


@pytest.mark.parametrize("model", ["dlrm", "ncf"])
def test_accuracy_of_served_model(server, served, model, capsys):
    recipe = model.removesuffix("_mono")
    assert evaluate(server, model, served[recipe].trained, "--trained") == 0
    message = capsys.readouterr().out
    ours, theirs = printed(message, "served"), printed(message, "trained")
    assert ours == pytest.approx(theirs, abs=1e-6)
    if recipe == "ncf":
        assert {"hr@3", "ndcg@3", "log_loss"} == set(ours)
    else:
        assert {"auc", "log_loss"} == set(ours)
    assert f"{len(served[recipe].expected):,} rows in " in message


@pytest.mark.parametrize("model", ["dlrm", "dlrm_mono", "dcnv2", "dcnv2_mono", "sim", "ncf"])
def test_scores_of_mode_predict(server, served, model):
    expected = served[model.removesuffix("_mono")]
    num_rows = len(expected.expected)
    requests = [expected.rows(start, start + 33) for start in range(0, num_rows, 33)]
    with Client(server.url, model, in_flight=3) as client:
        actual = np.concatenate(list(client.scores(requests)))
    np.testing.assert_allclose(actual, expected.expected, rtol=0, atol=1e-6)


def test_difference_of_int8_tables(server, served, capsys):
    dlrm = served["dlrm"]
    with Client(server.url, "dlrm_int8") as client:
        actual = client.ask(client.prepare(dlrm.arrays, "all"))
    difference = np.abs(actual - dlrm.expected)
    assert 1e-6 < difference.max() < 0.01
    assert evaluate(server, "dlrm_int8", dlrm.trained, "--trained") == 1
    assert "the served model is another than the trained one" in capsys.readouterr().err
    assert evaluate(server, "dlrm_int8", dlrm.trained, "--trained", "--tolerance=0.01") == 0


def test_model_without_server(repository, served, capsys):
    for folder in (repository / "dlrm_mono", repository):
        flags = [f"--model={folder}", f"--checkpoint_dir={served['dlrm'].trained.checkpoint}"]
        if folder == repository:  # of several models one must be named
            assert evaluate_accuracy.main(flags) == 2
            continue
        assert evaluate_accuracy.main([*flags, "--trained", "--max_rows=70"]) == 0
        assert f"{folder}, rows of test: 70 rows in 1 requests" in capsys.readouterr().out
    # One row has one label.
    more = ["--trained", "--max_rows=1", "--eval_mapping=train"]
    assert evaluate_accuracy.main([f"--model={repository}/dlrm_mono", flags[1], *more]) == 0
    message = capsys.readouterr().out
    assert "rows of train: 1 rows in 1 requests" in message
    assert len(re.findall(r"auc \+?nan  log_loss", message)) == 3


def test_whole_lists(server, served, capsys):
    assert evaluate(server, "ncf", served["ncf"].trained, "--max_rows=20", "--trained") == 0
    assert ": 26 rows in 1 requests" in capsys.readouterr().out


def test_too_large_batch_size(server, served, capsys):
    flags = [f"--url={server.url}", f"--checkpoint_dir={served['dlrm'].trained.checkpoint}"]
    assert evaluate_accuracy.main([*flags, "--batch_size=2049", "--wait_s=9"]) == 2
    assert "--batch_size is 2,049, dlrm at " in capsys.readouterr().err
