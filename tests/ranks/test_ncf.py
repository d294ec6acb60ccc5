"""`ncf.py` on two ranks: the weights and recommendations of one rank."""

import numpy as np
import pytest

from tests import tastes
from tests.ranks.test_entry_scripts import summary
from tests.tables import arrays_of

WEIGHTS = (
    "--preset=terabyte",
    *("-b", "130", "--grads_accumulated", "3", "-f", "8", "--layers", "16", "16", "8"),
    *("--optimizer", "sgd", "-l", "3", "-e", "2", "-s", "1", "--dropout", "0"),
    *("--weight_decay", "0.001", "--valid_batch_size", "100", "-k", "3"),
)


@pytest.fixture(scope="module")
def runs(run_recipes, tmp_path_factory):
    """`weights / RANKS`: the folder of a training; `top_RANKS.csv`: recommended items."""
    folder = tmp_path_factory.mktemp("runs")
    tastes.write(folder / "rows", interactions=7, users=57)
    for ranks in (1, 2):
        slices = ("--row_slice_threshold", 450, "--column_slice_threshold", 300)
        more = slices if ranks > 1 else ()
        data, model = ("ncf.py", "--data", folder / "rows"), folder / "weights"
        load = ("--mode", "recommend", "--checkpoint_dir", model / "1/model", "--top", 6)
        output = ("--exclude_seen", "--predictions_path", folder / f"top_{ranks}.csv")
        where = ("--checkpoint_dir", model / f"{ranks}/model", "--run_dir", model / str(ranks))
        commands = {
            "weights": (*data, *WEIGHTS, *more, *where),
            "recommend": (*data, *load, *output, *more, "--run_dir", folder / f"top_{ranks}"),
        }
        run_recipes(ranks, commands)
    return folder


def test_all_weights(runs):
    """By SGD, which shows a gradient that is off by a factor; the last batch does not divide, its
    parts neither, and the tables are cut by rows and by columns."""
    expected, actual = (arrays_of(runs / "weights" / ranks / "model") for ranks in "12")
    assert expected.keys() == actual.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-3, atol=1e-6, err_msg=name)
    one, two = (summary(runs / "weights" / ranks) for ranks in "12")
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
