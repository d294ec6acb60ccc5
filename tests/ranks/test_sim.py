"""`sim.py` on two ranks: the weights and recommendations of one rank."""

import numpy as np
import pytest

from tests import sequence_data
from tests.ranks.test_entry_scripts import summary
from tests.tables import arrays_of

WEIGHTS = (
    "--preset=terabyte",
    *("--global_batch_size", "64", "--optimizer", "sgd", "--lr", "0.5", "--epochs", "2"),
    *("--long_seq_length", "7", "--gsu_top_k", "3", "--print_freq", "5", "--seed", "1"),
    *("--weight_decay", "0.01", "--dropout_rate", "0.3", "--user_dropout_rate", "0.4"),
)


@pytest.fixture(scope="module")
def runs(run_recipes, tmp_path_factory):
    """`weights / RANKS`: the folder of a training; `top_RANKS.csv`: recommended items."""
    folder = tmp_path_factory.mktemp("runs")
    sequence_data.write(folder / "rows", 299)
    for ranks in (1, 2):
        slices = ("--row_slice_threshold", 900, "--column_slice_threshold", 100)
        data = ("sim.py", "--dataset_dir", folder / "rows", *(slices if ranks > 1 else ()))
        model = folder / "weights"
        where = ("--results_dir", model / str(ranks), "--save_checkpoint_path")
        load = ("--mode", "recommend", "--load_checkpoint_path", model / "1/model", "--top", 4)
        output = ("--exclude_seen", "--predictions_path", folder / f"top_{ranks}.csv")
        commands = {
            "weights": (*data, *WEIGHTS, *where, model / f"{ranks}/model"),
            "recommend": (*data, *load, *output, "--results_dir", folder / f"top_{ranks}"),
        }
        run_recipes(ranks, commands)
    return folder


def test_all_weights(runs):
    """By SGD, which shows a gradient that is off by a factor; the last batch does not divide, and
    the tables are cut by rows and by columns."""
    expected, actual = (arrays_of(runs / "weights" / ranks / "model") for ranks in "12")
    assert expected.keys() == actual.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-3, atol=1e-5, err_msg=name)
    one, two = (summary(runs / "weights" / ranks) for ranks in "12")
    for name in ("test_auc", "train_auc", "test_loss"):
        assert two[name] == pytest.approx(one[name], abs=1e-4)


def test_recommendations(runs):
    """Users in blocks of 8, of which two ranks compute two at a time; tables that are cut."""
    one, two = ((runs / f"top_{ranks}.csv").read_text().splitlines() for ranks in "12")
    assert len(one) == 1 + 4 * sequence_data.USERS
    assert [line.split(",")[:3] for line in two] == [line.split(",")[:3] for line in one]
    scores = [[float(line.split(",")[3]) for line in lines[1:]] for lines in (one, two)]
    np.testing.assert_allclose(scores[1], scores[0], atol=1e-6)
