"""`ncf.py` on two ranks: real raw ratings, by the documented commands, to what one rank has."""

import numpy as np
import pytest

from tests import tastes
from tests.ranks.test_entry_scripts import lines
from tests.tables import arrays_of

FLAGS = (
    *("-b", "30000", "-f", "16", "--layers", "32", "32", "16", "-e", "3", "-l", "0.005"),
    *("-s", "1", "--dropout", "0", "-b1", "0.9", "-b2", "0.999", "--print_freq", "10"),
)


@pytest.fixture(scope="module")
def ratings(root, run_script, tmp_path_factory):
    """100,836 real ratings, prepared."""
    raw = root.parent / "shared/data/movielens_latest_small/ratings.csv"
    if not raw.exists():
        pytest.skip(f"the real ratings are not there: {raw}")
    folder = tmp_path_factory.mktemp("movielens") / "rows"
    done = run_script("-m", "preproc.movielens", "--input", raw, "--output", folder)
    assert done.returncode == 0, done.stderr
    return folder


def train(flags, run_script, run_ranks, folder, tables=()):
    """Trains on one rank and on two; (last line of the log, weights) of each."""
    for name in ("one", "two"):
        run_dir = ("--run_dir", folder / name, "--checkpoint_dir", folder / name / "model")
        if name == "one":
            done = run_script("ncf.py", *flags, *run_dir)
            assert done.returncode == 0, done.stderr
        else:
            run_ranks(2, "ncf.py", *flags, *tables, *run_dir)
    return [
        (lines(folder / name)[-1][1], arrays_of(folder / name / "model")) for name in ("one", "two")
    ]


def test_real_ratings(ratings, run_script, run_ranks, tmp_path):
    flags = ("--data", ratings, *FLAGS)
    (one, _), (two, _) = train(flags, run_script, run_ranks, tmp_path)
    assert one["hr@10"] > 0.5
    for name in ("hr@10", "ndcg@10"):
        # One user's place of 610 may turn on the last bit of a score.
        assert two[name] == pytest.approx(one[name], abs=2 / 610)
    assert two["validation_loss"] == pytest.approx(one["validation_loss"], rel=1e-4)
    assert two["steps"] == one["steps"]
    tested = {}
    for name, start in (("one", run_script), ("two", run_ranks)):
        load = ("--data", ratings, "--mode", "test", "--checkpoint_dir", tmp_path / "one/model")
        ranks = () if name == "one" else (2,)
        start(*ranks, "ncf.py", *load, "--run_dir", tmp_path / f"test_{name}")
        tested[name] = lines(tmp_path / f"test_{name}")[-1][1]
    assert tested["two"]["hr@10"] == tested["one"]["hr@10"] == one["best_accuracy"]
    assert tested["two"]["ndcg@10"] == pytest.approx(tested["one"]["ndcg@10"], abs=1e-9)


def test_all_weights(run_script, run_ranks, tmp_path):
    """By SGD, which shows a gradient that is off by a factor; the last batch does not divide, its
    parts neither, and the tables are cut by rows and by columns."""
    tastes.write(tmp_path / "rows", interactions=7, users=57)
    flags = (
        *("--data", tmp_path / "rows", "-b", "130", "--grads_accumulated", "3", "-f", "8"),
        *("--layers", "16", "16", "8", "--optimizer", "sgd", "-l", "3", "-e", "2", "-s", "1"),
        *("--dropout", "0", "--weight_decay", "0.001", "--valid_batch_size", "100", "-k", "3"),
    )
    tables = ("--row_slice_threshold", 450, "--column_slice_threshold", 300)
    (one, expected), (two, found) = train(flags, run_script, run_ranks, tmp_path, tables)
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-6, err_msg=name)
    for name in ("hr@3", "ndcg@3", "validation_loss"):
        assert two[name] == pytest.approx(one[name], abs=1e-4)
