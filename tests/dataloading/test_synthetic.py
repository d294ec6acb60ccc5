"""Generated data: distributions, the teacher and its best AUC, the same rows everywhere."""

import re

import numpy as np
import pytest
import tensorflow as tf
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import OneHotEncoder

from dataloading.formats.stored_dataset import StoredDataset
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.synthetic.__main__ import main
from dataloading.synthetic.dataset import SyntheticDataset, synthetic_spec, write_dataset
from dataloading.synthetic.power_law import PowerLaw
from dataloading.synthetic.rows import SyntheticSamples
from dataloading.synthetic.teacher import LogitCounts, Teacher

SMALL = synthetic_spec([10, 20, 5, 300], hotness=[1, 3, 1, 2], alpha=1.1, num_numerical=3)


def spec_with(**features) -> FeatureSpec:
    """SMALL with other keys of some features, stored as CSV, where dtypes may mix."""
    content = SMALL.to_dict()
    for name, keys in features.items():
        content["feature_spec"][name] = {**content["feature_spec"][name], **keys}
    chunk = {"type": "csv", "features": list(content["feature_spec"]), "files": ["a.csv"]}
    return FeatureSpec.from_dict({**content, "source_spec": {"train": [chunk]}}, ".")


def rows_of(dataset) -> list[np.ndarray]:
    """Returns the real rows of all batches: numerical features, ids of each feature, labels."""
    pieces = []
    for batch in dataset:
        real = batch.weights[:, 0].numpy() > 0
        arrays = (batch.inputs.numerical, *batch.inputs.categorical, batch.labels)
        pieces.append([array.numpy()[real] for array in arrays])
    return [np.concatenate(arrays) for arrays in zip(*pieces, strict=True)]


def assert_same_rows(left, right):
    for a, b in zip(left, right, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("cardinality", [1, 1000])
def test_power_law_of_ids(alpha, cardinality):
    ids = PowerLaw(cardinality, alpha).draw(np.random.default_rng(0), 200_000)
    assert ids.min() >= 0 and ids.max() < cardinality
    expected = np.arange(1, cardinality + 1) ** -alpha
    expected *= len(ids) / expected.sum()
    counts = np.bincount(ids, minlength=cardinality)
    common = expected > 20
    assert (abs(counts - expected) < 5.5 * np.sqrt(expected))[common].all()
    # Chi-square with as many degrees of freedom as ids has this mean and deviation.
    chi_square = ((counts - expected) ** 2 / expected)[common].sum()
    assert abs(chi_square - common.sum()) < 6 * np.sqrt(2 * common.sum()) + 1


@pytest.mark.parametrize("alpha", [1.0, 1.05])
def test_power_law_in_the_tail_of_a_large_table(alpha):
    cardinality = 400_000
    ids = PowerLaw(cardinality, alpha).draw(np.random.default_rng(0), 500_000)
    assert ids.max() < cardinality
    weights = np.arange(1, cardinality + 1) ** -alpha
    edges = [0, 1, 10, 1000, 65_530, 65_536, 65_600, 70_000, 200_000, 390_000, cardinality]
    expected = np.add.reduceat(weights, edges[:-1]) * len(ids) / weights.sum()
    counts = np.histogram(ids, edges)[0]
    assert (abs(counts - expected) < 5 * np.sqrt(expected) + 1).all()


def test_best_auc_and_scikit_learn():
    dataset = SyntheticDataset(SMALL, "validation", 4096, num_samples=20_000, seed=3)
    rows = SyntheticSamples(SMALL, "validation", 3)
    blocks = [rows.block(index) for index in range(3)]
    logits = np.concatenate([logits for _, logits in blocks])[:20_000]
    labels = np.concatenate([arrays[-1] for arrays, _ in blocks])[:20_000, 0]
    assert dataset.best_auc == pytest.approx(roc_auc_score(labels, logits), abs=1e-12)
    assert dataset.statistics.num_samples == 20_000
    assert dataset.statistics.click_rate == pytest.approx(labels.mean())
    assert dataset.statistics.expected_auc == pytest.approx(dataset.best_auc, abs=0.015)
    assert 0.7 < dataset.best_auc < 0.9
    np.testing.assert_array_equal(rows_of(dataset.dataset())[-1][:, 0], labels)


def test_auc_from_counts_by_hand():
    """Pairs of (click, no click): (1, 0), (1, 1) tie, (2, 0), (2, 1): 3.5 of 4."""
    counts = LogitCounts()
    assert np.isnan(counts.best_auc) and np.isnan(counts.click_rate)
    score = np.array([0.0, 1.0, 1.0, 2.0])
    counts.add(score, np.array([0, 1, 0, 1]))
    assert counts.best_auc == 3.5 / 4
    assert (counts.num_samples, counts.click_rate) == (4, 0.5)
    p = 1 / (1 + np.exp(-score))
    wins = (np.sign(score[:, None] - score[None, :]) + 1) / 2
    weight = p[:, None] * (1 - p[None, :])
    assert counts.expected_auc == pytest.approx((weight * wins).sum() / weight.sum())


def test_teacher_and_a_linear_model():
    spec = synthetic_spec([10, 12, 8, 9], num_numerical=2)
    train = rows_of(SyntheticDataset(spec, "train", 8192, num_samples=30_000).dataset())
    valid_set = SyntheticDataset(spec, "validation", 8192, num_samples=30_000)
    valid = rows_of(valid_set.dataset())
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(
        np.hstack(train[1:-1])
    )

    def columns(rows):
        return np.hstack([rows[0], encoder.transform(np.hstack(rows[1:-1]))])

    linear = LogisticRegression(max_iter=200).fit(columns(train), train[-1][:, 0])
    reached = roc_auc_score(valid[-1][:, 0], linear.decision_function(columns(valid)))
    assert 0.6 < reached < valid_set.best_auc - 0.02


def test_sum_of_the_teachers_parts():
    teacher = Teacher(0, [PowerLaw(1, 1.0)], num_numerical=1)
    # A single id has no effect, one feature makes no pair: bias and the numerical are left.
    x = np.array([[0.0], [1.0], [-1.0]], np.float32)
    logits = teacher.logits(x, [np.zeros((3, 1), np.int64)])
    slope = np.sqrt(0.6) * np.sign(logits[1] - logits[2])
    curve = np.array([-0.6 / np.sqrt(2), 0.8, -0.8])
    np.testing.assert_allclose(logits, -1.4 + slope * curve, atol=2e-4)
    assert (logits * 4096 == np.rint(logits * 4096)).all()


def test_seeds_of_rows_and_teachers():
    def read(split, seed):
        return rows_of(SyntheticDataset(SMALL, split, 500, num_samples=2000, seed=seed).dataset())

    train = read("train", 1)
    assert_same_rows(train, read("train", 1))
    assert (train[0] != read("validation", 1)[0]).mean() > 0.9
    assert (train[0] != read("train", 2)[0]).mean() > 0.9
    same_ids = [np.arange(5)[:, None]] * 4
    x = np.zeros((5, 3), np.float32)
    logits = [
        SyntheticSamples(SMALL, s, n)._teacher.logits(x, same_ids)
        for s, n in (("train", 1), ("validation", 1), ("train", 2))
    ]
    assert (logits[0] == logits[1]).all() and (logits[0] != logits[2]).any()


def test_values_of_a_spec():
    numerical, *ids, labels = rows_of(
        SyntheticDataset(SMALL, "train", 6000, num_samples=18_000).dataset()
    )
    assert numerical.shape == (18_000, 3) and abs(numerical.mean()) < 0.02
    assert abs(numerical.std() - 1) < 0.02
    for feature_ids, cardinality in zip(ids, [10, 20, 5, 300], strict=True):
        assert feature_ids.min() == 0 and feature_ids.max() < cardinality
    assert set(labels.ravel()) == {0.0, 1.0} and 0.1 < labels.mean() < 0.4


def test_rows_by_batch_size_and_start():
    """Across the blocks of the generator, of 8,192 rows; ranks are in pipeline/test_ranks.py."""

    def read(batch_size, *place):
        dataset = SyntheticDataset(SMALL, "train", batch_size, num_samples=17_000)
        return rows_of(dataset.dataset(*place))

    whole = read(1000)
    assert_same_rows(whole, read(9999, 3))
    assert_same_rows([array[8190:] for array in whole], read(1234, 0, 8190))


@pytest.mark.parametrize(
    ("cardinalities", "num_numerical"), [([], 4), ([6], 0), ([100_000_000, 3], 2)]
)
def test_extreme_specs(cardinalities, num_numerical):
    spec = synthetic_spec(cardinalities, num_numerical=num_numerical)
    dataset = SyntheticDataset(spec, "train", 512, num_samples=2000)
    numerical, *ids, labels = rows_of(dataset.dataset())
    assert numerical.shape == (2000, num_numerical) and len(ids) == len(cardinalities)
    assert labels.shape == (2000, 1) and dataset.best_auc > 0.55


def test_dtypes_of_a_spec(tmp_path):
    spec = spec_with(cat_0={"dtype": "int64"}, num_1={"dtype": "float32"}, label={"dtype": "int8"})
    batch = next(iter(SyntheticDataset(spec, "train", 64, num_samples=64).dataset()))
    assert [ids.dtype for ids in batch.inputs.categorical[:2]] == [tf.int64, tf.int32]
    assert batch.inputs.numerical.shape == (64, 3)
    written = write_dataset(tmp_path / "made", spec, {"train": 9000}, seed=0)
    assert [c.files[0] for c in written.source_spec["train"][:4]] == [
        "train/label.bin",
        "train/numerical.bin",
        "train/numerical_1.bin",
        "train/numerical_2.bin",
    ]
    assert_same_rows(
        rows_of(StoredDataset(written, "train", 1000).dataset()),
        rows_of(SyntheticDataset(spec, "train", 1000, num_samples=9000).dataset()),
    )


def test_rows_of_files_and_of_the_generator(tmp_path):
    rows = {"train": 9000, "validation": 1000, "test": 1001}
    written = write_dataset(tmp_path / "data set", SMALL, rows, seed=4)
    assert [path.name for path in tmp_path.iterdir()] == ["data set"]
    for split, num_samples in rows.items():
        fly = SyntheticDataset(SMALL, split, 700, num_samples=num_samples, seed=4)
        disk = StoredDataset(written, split, 700)
        assert disk.num_samples == num_samples
        assert_same_rows(rows_of(fly.dataset()), rows_of(disk.dataset()))
        facts = written.metadata[split]
        assert facts["best_auc"] == fly.best_auc and facts["rows"] == num_samples
        assert facts["click_rate"] == fly.statistics.click_rate
    assert written.metadata["seed"] == 4
    assert FeatureSpec.from_yaml(tmp_path / "data set/feature_spec.yaml") == written


LABEL_TWICE = FeatureSpec.from_dict(
    {
        **SMALL.to_dict(),
        "channel_spec": {"numerical": ["num_0"], "categorical": [], "label": ["label", "num_0"]},
    },
    ".",
)
REFUSED = {
    "split": ({"split": "valid"}, "split is 'valid'; expected train, validation, test"),
    "no rows": ({"num_samples": 0}, "generated data of 0 rows; expected 1 or more"),
    "numerical dtype": ({"spec": spec_with(num_1={"dtype": "int8"})}, "'num_1': dtype int8"),
    "labels": ({"spec": LABEL_TWICE}, "'num_0' is in the channels 'numerical' and 'label'; the"),
}


@pytest.mark.parametrize(("settings", "message"), REFUSED.values(), ids=REFUSED)
def test_invalid_settings(settings, message):
    settings = {"spec": SMALL, "split": "train", "batch_size": 8, "num_samples": 10, **settings}
    with pytest.raises(ValueError, match=message):
        SyntheticDataset(**settings)


def test_invalid_features():
    with pytest.raises(ValueError, match="hotness has 3 values and there are 2 cardinalities"):
        synthetic_spec([3, 4], hotness=[1, 2, 3])
    with pytest.raises(ValueError, match="alpha has 3 values and there are 2 cardinalities"):
        synthetic_spec([3, 4], alpha=[1, 2, 3])
    with pytest.raises(ValueError, match="'cat_0': cardinality is 0; expected a positive"):
        synthetic_spec([0])


def test_folder_with_other_files(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(ValueError, match="exists and is not an empty folder"):
        write_dataset(tmp_path, SMALL, {"train": 10})
    with pytest.raises(ValueError, match="0 rows for the split 'test'; expected 1 or more"):
        write_dataset(tmp_path / "new", SMALL, {"train": 10, "test": 0})
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_output_of_the_tool(tmp_path, capsys):
    flags = f"--output {tmp_path / 'out'} --rows 1000 --validation_rows 200 --test_rows 300 "
    flags += "--cardinalities 10,20 --hotness 1,2 --alpha 1.2 --num_numerical 2 --seed 1"
    assert main(flags.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    # A row: 1 byte of label, 2 float16, 1 + 2 ids of one byte.
    expected = r"train: 1,000 rows, 8,000 bytes, click rate 0\.\d+, best reachable AUC 0\.\d+ \(exp"
    assert re.match(expected, lines[0])
    assert lines[-1] == f"written: {tmp_path / 'out/feature_spec.yaml'}"
    spec = FeatureSpec.from_yaml(tmp_path / "out/feature_spec.yaml")
    assert f"{spec.metadata['test']['best_auc']:.5f}" in lines[2]
    assert spec.hotnesses("categorical") == [1, 2]


def test_features_from_a_spec_and_errors_of_the_tool(tmp_path, capsys):
    SMALL.to_yaml(tmp_path / "f.yaml")
    arguments = ["--output", str(tmp_path / "out"), "--feature_spec", str(tmp_path / "f.yaml")]
    assert main([*arguments, "--rows", "50", "--validation_rows", "1", "--test_rows", "50"]) == 0
    assert "validation: 1 rows" in capsys.readouterr().out
    written = FeatureSpec.from_yaml(tmp_path / "out/feature_spec.yaml")
    assert written.metadata["validation"]["best_auc"] is None, "of one row"
    assert main([*arguments, "--rows", "50"]) == 2
    assert "exists and is not an empty folder" in capsys.readouterr().err
