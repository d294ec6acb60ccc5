"""`ncf.py` on two ranks: real raw ratings, by the documented commands, to what one rank has."""

import numpy as np
import pytest

from tests import tastes
from tests.ranks.test_entry_scripts import lines
from tests.tables import arrays_of

REAL = (
    "--preset=terabyte",
    *("-b", "30000", "-f", "16", "--layers", "32", "32", "16", "-e", "3", "-l", "0.005"),
    *("-s", "1", "--dropout", "0", "-b1", "0.9", "-b2", "0.999", "--print_freq", "10"),
)
WEIGHTS = (
    "--preset=terabyte",
    *("-b", "130", "--grads_accumulated", "3", "-f", "8", "--layers", "16", "16", "8"),
    *("--optimizer", "sgd", "-l", "3", "-e", "2", "-s", "1", "--dropout", "0"),
    *("--weight_decay", "0.001", "--valid_batch_size", "100", "-k", "3"),
)


@pytest.fixture(scope="module")
def ratings(request, root, run_script, tmp_path_factory):
    """100,836 real ratings, prepared; None where they are not, and without --long."""
    raw = root.parent / "shared/data/movielens_latest_small/ratings.csv"
    if not raw.exists() or not request.config.getoption("--long"):
        return None
    folder = tmp_path_factory.mktemp("movielens") / "rows"
    done = run_script("-m", "preproc.movielens", "--input", raw, "--output", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def runs(ratings, run_recipes, tmp_path_factory):
    """`runs / NAME / RANKS`: the folder of each command of `commands`, by one rank and by two."""
    folder = tmp_path_factory.mktemp("runs")
    tastes.write(folder / "rows", interactions=7, users=57)
    for ranks in (1, 2):
        run_recipes(ranks, commands(ratings, folder, ranks))
    return folder


def commands(ratings, folder, ranks):
    """Two trainings, recommendations and a test of what one rank trained."""

    def command(name, data, *flags):
        return ("ncf.py", "--data", data, *flags, "--run_dir", folder / name / str(ranks))

    def training(name, data, *flags):
        where = ("--checkpoint_dir", folder / name / str(ranks) / "model")
        return {name: command(name, data, *flags, *where)}

    slices = ("--row_slice_threshold", 450, "--column_slice_threshold", 300)
    command_lines = training("weights", folder / "rows", *WEIGHTS, *(slices if ranks > 1 else ()))
    load = ("--mode", "recommend", "--checkpoint_dir", folder / "weights/1/model", "--top", 6)
    output = ("--exclude_seen", "--predictions_path", folder / f"top_{ranks}.csv")
    more = slices if ranks > 1 else ()
    command_lines["recommend"] = command("recommend", folder / "rows", *load, *output, *more)
    if ratings is not None:
        command_lines |= training("real", ratings, *REAL)
        load = ("--mode", "test", "--checkpoint_dir", folder / "real/1/model")
        command_lines["test"] = command("test", ratings, *load)
    return command_lines


def summaries(runs, name):
    """The last lines of the log, of one rank and of two."""
    return [lines(runs / name / ranks)[-1][1] for ranks in "12"]


@pytest.mark.long
def test_real_ratings(ratings, runs):
    if ratings is None:
        pytest.skip("the real ratings are not there")
    one, two = summaries(runs, "real")
    assert one["hr@10"] > 0.5
    for name in ("hr@10", "ndcg@10"):
        # One user's place of 610 may turn on the last bit of a score.
        assert two[name] == pytest.approx(one[name], abs=2 / 610)
    assert two["test_loss"] == pytest.approx(one["test_loss"], rel=1e-4)
    assert two["steps"] == one["steps"]
    by_one, by_two = summaries(runs, "test")
    assert by_two["hr@10"] == by_one["hr@10"] == one["best_accuracy"]
    assert by_two["ndcg@10"] == pytest.approx(by_one["ndcg@10"], abs=1e-9)


def test_all_weights(runs):
    """By SGD, which shows a gradient that is off by a factor; the last batch does not divide, its
    parts neither, and the tables are cut by rows and by columns."""
    expected, actual = (arrays_of(runs / "weights" / ranks / "model") for ranks in "12")
    assert expected.keys() == actual.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-3, atol=1e-6, err_msg=name)
    one, two = summaries(runs, "weights")
    for name in ("hr@3", "ndcg@3", "test_loss"):
        assert two[name] == pytest.approx(one[name], abs=1e-4)


def test_recommendations(runs):
    """57 users, so that the last round has one block for two ranks, and tables that are cut."""
    one, two = ((runs / f"top_{ranks}.csv").read_text() for ranks in "12")
    assert two == one
    lines = one.splitlines()
    assert lines[0] == "user,rank,item,score"
    assert [line.split(",")[0] for line in lines[1:]] == [
        str(u) for u in range(57) for _ in "123456"
    ]
