"""Simple models of `recipes.baseline`: rows, constant, popularity, logistic regression, trees."""

import numpy as np
import pytest

from dataloading import transcribe
from dataloading.formats.split_tfrecords.folder_format import stored_spec
from dataloading.pipeline.ragged import Ragged
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.synthetic.dataset import write_dataset
from dataloading.synthetic.rows import synthetic_spec
from recipes.baseline.fitted import constant, popularity, scores_of
from recipes.baseline.gradient_boosting import _matrix, gradient_boosting
from recipes.baseline.logistic import STRENGTHS, _encoder, logistic_regression
from recipes.baseline.sample_arrays import ClickRows, ClickSplit, read_fitting_rows


def click_rows(labels, ids=None, numbers=None, bags=None, cardinality=4):
    ids = {name: np.asarray(values) for name, values in (ids or {}).items()}
    bags = bags or {}
    numbers = np.zeros((len(labels), 0)) if numbers is None else np.asarray(numbers)
    cardinalities = dict.fromkeys([*ids, *bags], cardinality)
    labels = np.asarray(labels, bool)
    return ClickRows(numbers.astype(np.float32), ids, bags, cardinalities, labels)


def shares(logits):
    return 1 / (1 + np.exp(-logits))


def test_constant():
    model = constant(click_rows([1, 0, 0, 0]))
    np.testing.assert_allclose(shares(model.logits(click_rows([0, 1]))), [0.25, 0.25])


def test_popularity():
    """Id 1 has 3 positives in 4 rows, id 2 has none in 4: (3 + m 3/8) / (4 + m)."""
    train = click_rows([1, 1, 1, 0, 0, 0, 0, 0], {"item": [1, 1, 1, 1, 2, 2, 2, 2]})
    model = popularity(train, train)
    assert model.settings == "mean label by item, 1 rows added"  # train rows: the least smoothing
    result = shares(model.logits(click_rows([0, 0, 0], {"item": [1, 2, 3]})))
    np.testing.assert_allclose(result, [3.375 / 5, 0.375 / 5, 3 / 8])


def test_popularity_of_the_most_telling_feature():
    labels = [1, 1, 0, 0] * 5
    rows = click_rows(labels, {"noise": [0, 1, 0, 1] * 5, "item": [1, 1, 2, 2] * 5})
    assert "item" in popularity(rows, rows).settings


def test_popularity_without_ids():
    rows = click_rows([1, 0], numbers=[[1], [2]])
    assert popularity(rows, rows) is None


def test_encoding_for_logistic_regression():
    """Numbers 1 and 3 are -1 and 1; ids and bags are columns, an id twice in a bag counts twice."""
    bag = Ragged(np.array([0, 2, 2]), np.array([0, 1, 3]))
    rows = click_rows([1, 0], {"item": [1, 0]}, [[1, 5], [3, 5]], {"tags": bag}, cardinality=3)
    expected = [[-1, 0, 0, 1, 0, 1, 0, 0], [1, 0, 1, 0, 0, 0, 0, 2]]
    np.testing.assert_array_equal(_encoder(rows)(rows).toarray(), expected)


def test_matrix_for_trees():
    """The two most frequent ids of the bag, 2 and 0, are columns."""
    bag = Ragged(np.array([0, 2, 2]), np.array([0, 1, 3]))
    rows = click_rows([1, 0], {"item": [1, 0]}, [[1], [3]], {"tags": bag}, cardinality=3)
    matrix = _matrix(rows, {"tags": np.array([2, 0])})
    np.testing.assert_array_equal(matrix, [[1, 1, 0, 1], [3, 0, 1, 0]])
    large = ClickRows(rows.numbers, rows.ids, {}, {"item": (1 << 24) + 1}, rows.labels)
    assert _matrix(large, {}).dtype == np.float64


@pytest.fixture(scope="module")
def drawn():
    """Labels with the log odds 2 x_0 + (1 for id 1, -1 for id 2), and an exclusive or of signs."""
    rng = np.random.default_rng(0)
    numbers, ids = rng.normal(size=(3000, 3)), rng.integers(1, 3, 3000)
    logits = 2 * numbers[:, 0] + np.where(ids == 1, 1, -1)
    signs = 6 * (numbers[:, 1] * numbers[:, 2] > 0) - 3
    linear, crossed = (rng.random(3000) < shares(values) for values in (logits, signs))
    rows = [
        [
            click_rows(labels[part], {"item": ids[part]}, numbers[part])
            for part in np.split(np.arange(3000), 2)
        ]
        for labels in (linear, crossed)
    ]
    return logits, *rows


def test_logistic_regression(drawn):
    logits, (train, choosing), (crossed, crossed_choosing) = drawn
    model = logistic_regression(train, choosing)
    assert float(model.settings.removeprefix("C ")) in STRENGTHS
    np.testing.assert_allclose(model.logits(choosing), logits[1500:], atol=0.8)
    model = logistic_regression(crossed, crossed_choosing)
    assert scores_of(model.logits(crossed_choosing), crossed_choosing.labels).auc < 0.6


def test_gradient_boosting(drawn):
    _, (train, choosing), (crossed, crossed_choosing) = drawn
    for fitted, chosen, least in ((train, choosing, 0.85), (crossed, crossed_choosing, 0.85)):
        model = gradient_boosting(fitted, chosen)
        assert scores_of(model.logits(chosen), chosen.labels).auc > least


@pytest.fixture(scope="module")
def data_set(tmp_path_factory):
    spec = synthetic_spec([50, 9], hotness=[1, 3], num_numerical=2)
    folder = tmp_path_factory.mktemp("baseline") / "rows"
    return write_dataset(folder, spec, {"train": 1000, "validation": 60, "test": 70})


def test_rows_of_a_data_set(data_set):
    rows = ClickSplit(data_set, "test").read(range(70))
    folder = data_set.base_directory / "test"
    np.testing.assert_array_equal(rows.ids["cat_0"], np.fromfile(folder / "cat_0.bin", np.int8))
    np.testing.assert_array_equal(
        rows.bags["cat_1"].values, np.fromfile(folder / "cat_1.bin", np.int8)
    )
    np.testing.assert_array_equal(rows.bags["cat_1"].row_splits, 3 * np.arange(71))
    np.testing.assert_array_equal(rows.labels, np.fromfile(folder / "label.bin", bool))
    numbers = np.fromfile(folder / "numerical.bin", np.float16).reshape(70, 2)
    np.testing.assert_array_equal(rows.numbers, numbers.astype(np.float32))
    assert rows.cardinalities == {"cat_0": 50, "cat_1": 9}


def test_rows_of_split_tfrecords(data_set, tmp_path):
    folder = tmp_path / "records"
    flags = (f"--src_dataset_path={data_set.base_directory}", f"--dst_dataset_path={folder}")
    assert transcribe.main([*flags, "--dst_dataset_type=split_tfrecords"]) == 0
    spec = stored_spec(FeatureSpec.from_yaml(folder / "feature_spec.yaml"))
    rows, same = (ClickSplit(each, "test").read(range(70)) for each in (spec, data_set))
    for name in ("numbers", "labels"):
        np.testing.assert_array_equal(getattr(rows, name), getattr(same, name))
    np.testing.assert_array_equal(rows.ids["cat_0"], same.ids["cat_0"])
    np.testing.assert_array_equal(rows.bags["cat_1"].values, same.bags["cat_1"].values)


def test_rows_that_choose_settings(data_set):
    rows = read_fitting_rows(data_set, "test", 500)
    assert len(rows.train.labels) == 500 and len(rows.choosing.labels) == 60
    assert rows.description == (
        "fitted to 500 sampled rows of train, settings chosen by 60 rows of validation"
    )


def test_last_tenth_of_train(data_set):
    """Without a validation split, or where its rows are those that are evaluated."""
    rows = read_fitting_rows(data_set, "validation", 10_000)
    everything = ClickSplit(data_set, "train").read(range(1000))
    np.testing.assert_array_equal(rows.train.labels, everything.labels[:900])
    np.testing.assert_array_equal(rows.choosing.numbers, everything.numbers[900:])
    assert "900 rows of train, settings chosen by 100 rows of the last tenth" in rows.description
