"""`sim.py` on two ranks: from real raw rows, by the documented commands, to the AUC of one rank."""

import json

import numpy as np
import pytest

from tests import sequence_data
from tests.ranks.test_entry_scripts import summary
from tests.tables import arrays_of

REAL = (
    "--preset=terabyte",
    *("--global_batch_size", "2048", "--lr", "0.003", "--epochs", "1", "--print_freq", "3"),
    *("--seed", "1", "--noevaluate_training_rows", "--max_steps", "25"),  # of 9 and 68
)
WEIGHTS = (
    "--preset=terabyte",
    *("--global_batch_size", "64", "--optimizer", "sgd", "--lr", "0.5", "--epochs", "2"),
    *("--long_seq_length", "7", "--gsu_top_k", "3", "--print_freq", "5", "--seed", "1"),
    *("--weight_decay", "0.01", "--dropout_rate", "0.3", "--user_dropout_rate", "0.4"),
)


@pytest.fixture(scope="module")
def musical(request, root, run_script, tmp_path_factory):
    """Real reviews in JSON, with a metadata file that is made here; None where they are not, and
    without --long."""
    reviews = root.parent / "shared/data/amazon_musical/Musical_Instruments.json"
    if not reviews.exists() or not request.config.getoption("--long"):
        return None
    folder = tmp_path_factory.mktemp("musical")
    items = sorted({json.loads(line)["asin"] for line in reviews.open()})
    with (folder / "meta.json").open("w") as file:
        for item in items:
            categories = [["Musical Instruments", f"part {item[-1]}"]]
            print({"asin": item, "categories": categories}, file=file)  # a Python literal
    prepare(
        *(run_script, folder, "--reviews", reviews, "--meta", folder / "meta.json"),
        *("--min_events", 5),
    )
    return folder / "histories"


@pytest.fixture(scope="module")
def grocery(request, root, run_script, tmp_path_factory):
    """A real log of users, items and times, with a table of the items' categories; None where it
    is not, and without --long."""
    data = root.parent / "shared/data/amazon_grocery"
    if not data.exists() or not request.config.getoption("--long"):
        return None
    folder = tmp_path_factory.mktemp("grocery")
    prepare(
        *(run_script, folder, "--input_format", "csv", "--delimiter", "tab"),
        *("--interactions", data / "train.csv", "--items", data / "item_meta.csv"),
        *("--item_features", "i_category", "--min_events", 8),
    )
    return folder / "histories"


def prepare(run_script, folder, *flags):
    done = run_script("-m", "preproc.amazon_books", *flags, "--output", folder / "histories")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def runs(musical, grocery, run_recipes, tmp_path_factory):
    """`runs / NAME / RANKS`: the folder of each training of `commands`, by one rank and by two."""
    folder = tmp_path_factory.mktemp("runs")
    sequence_data.write(folder / "rows", 299)
    for ranks in (1, 2):
        run_recipes(ranks, commands(musical, grocery, folder, ranks))
    return folder


def commands(musical, grocery, folder, ranks):
    slices = ("--row_slice_threshold", 900, "--column_slice_threshold", 100)
    flags = {"weights": (folder / "rows", *WEIGHTS, *(slices if ranks > 1 else ()))}
    for name, data, model in (("musical", musical, "sim"), ("grocery", grocery, "din")):
        if data is not None:
            flags[name] = (data, "--model_type", model, *REAL)
    lines = {
        name: (
            *("sim.py", "--results_dir", folder / name / str(ranks)),
            *("--save_checkpoint_path", folder / name / str(ranks) / "model"),
            *("--dataset_dir", *arguments),
        )
        for name, arguments in flags.items()
    }
    lines["recommend"] = (
        *("sim.py", "--results_dir", folder / "recommend" / str(ranks), "--mode", "recommend"),
        *("--load_checkpoint_path", folder / "weights/1/model", "--dataset_dir", folder / "rows"),
        *("--top", 4, "--exclude_seen", "--predictions_path", folder / f"top_{ranks}.csv"),
        *(slices if ranks > 1 else ()),
    )
    return lines


@pytest.mark.long
@pytest.mark.parametrize("name", ["musical", "grocery"])
def test_real_rows(name, request, runs):
    if request.getfixturevalue(name) is None:
        pytest.skip("the real rows are not there")
    one, two = (summary(runs / name / ranks) for ranks in "12")
    assert one["test_auc"] > 0.52  # after nine steps on the reviews
    assert two["test_auc"] == pytest.approx(one["test_auc"], abs=1e-4)
    assert two["test_loss"] == pytest.approx(one["test_loss"], rel=1e-3)
    assert two["steps"] == one["steps"]


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
