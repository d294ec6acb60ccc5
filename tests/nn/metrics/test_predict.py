"""Predictions of a model for every row, on one rank and on several."""

import math

import numpy as np
import pytest
import tensorflow as tf
from embedding_testing.fake_world import run_threads

from dataloading.formats.stored_dataset import StoredDataset
from dataloading.synthetic.dataset import SyntheticDataset, synthetic_spec, write_dataset
from nn.metrics.classification import NonFiniteScores
from nn.metrics.predictor import predict

SPEC = synthetic_spec([10], num_numerical=2)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """`stored(num_samples)`: generated rows on disk, whose labels have been thrown away."""

    def make(num_samples: int):
        spec = write_dataset(tmp_path_factory.mktemp("rows") / "set", SPEC, {"test": num_samples})
        (spec.base_directory / "test/label.bin").unlink()
        return spec

    return make


def numericals(spec) -> np.ndarray:
    """float32 [rows, 2], in the order of the file."""
    path = spec.base_directory / "test/numerical.bin"
    return np.fromfile(path, np.float16).reshape(-1, 2).astype(np.float32)


def sigmoid(logits) -> np.ndarray:
    return 1 / (1 + np.exp(-np.asarray(logits, np.float64)))


def first_numerical(inputs):
    """A model: the logit is the first numerical."""
    return inputs.numerical[:, :1]


def collected(world, model, dataset) -> list[np.ndarray]:
    return list(predict(model, dataset, world))


@pytest.mark.quick("*-1", "*-2", "77-3")
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("num_samples", [96, 77, 49, 1])  # 77, 49, 1: the last batch is uneven
def test_order_of_scores(stored, size, num_samples):
    """Scores follow the rows, without padding, also if a rank has no real row in a batch."""
    spec = stored(num_samples)

    def run(world):
        dataset = StoredDataset(
            *(spec, "test", 24), with_labels=False, rank=world.rank, world_size=world.size
        )
        scores = collected(world, first_numerical, dataset)
        assert world.calls.count("predict.scores") == dataset.num_batches
        return scores

    chief, *others = run_threads(size, run)
    num_batches = -(-num_samples // 24)
    assert [len(scores) for scores in chief[:-1]] == [24] * (num_batches - 1)
    result = np.concatenate(chief)
    assert result.dtype == np.float32 and result.shape == (num_samples,)
    np.testing.assert_allclose(result, sigmoid(numericals(spec)[:, 0]), rtol=1e-6)
    for scores in others:
        assert [(len(part), part.dtype) for part in scores] == [(0, np.float32)] * num_batches


def test_ids_of_global_batch(stored):
    """Model-parallel input: the model of each rank gets all ids and picks those of its rows."""
    spec = stored(31)

    def run(world):
        def model(inputs):
            (ids,) = inputs.categorical
            length = tf.shape(ids)[0] // world.size
            own = ids[world.rank * length : (world.rank + 1) * length]
            return inputs.numerical[:, :1] + tf.cast(own, tf.float32)

        dataset = StoredDataset(
            *(spec, "test", 12),
            with_labels=False,
            global_features=[0],
            rank=world.rank,
            world_size=world.size,
        )
        return collected(world, model, dataset)

    result = np.concatenate(run_threads(3, run)[0])
    ids = np.fromfile(spec.base_directory / "test/cat_0.bin", np.int8)
    np.testing.assert_allclose(result, sigmoid(numericals(spec)[:, 0] + ids), rtol=1e-6)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_float32_sigmoid(dtype):
    dataset = SyntheticDataset(SPEC, "test", 4, num_samples=4)
    (result,) = predict(lambda inputs: tf.fill([4, 1], tf.constant(-9.0, dtype)), dataset)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, sigmoid([-9.0] * 4), rtol=1e-6)


def spoilt(at: float, bad: float):
    """A model: the logit is the first numerical, and `bad` in its place where that is `at`."""

    def model(inputs):
        logits = first_numerical(inputs)
        return tf.where(logits == at, bad, logits)

    return model


@pytest.mark.quick("*-nan", "8-3-inf")
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("row", [0, 8, 9, 15])
def test_row_of_nonfinite_score(stored, bad, size, row):
    """16 rows in batches of 9: on 3 ranks 3, 3 and 3, then 3, 2 and 2."""
    spec = stored(16)
    rows = np.tile(np.arange(16, dtype=np.float16)[:, None], [1, 2])
    rows.tofile(spec.base_directory / "test/numerical.bin")
    seen = []

    def run(world):
        dataset = StoredDataset(
            *(spec, "test", 9), with_labels=False, rank=world.rank, world_size=world.size
        )
        for scores in predict(spoilt(row, bad), dataset, world):
            seen.append(len(scores))

    errors = run_threads(size, run)
    assert len(errors) == size
    for error in errors:
        assert isinstance(error, NonFiniteScores)
        assert str(error).startswith(
            f"predictions: 1 of {9 if row < 9 else 7} logits of a batch are NaN or infinite, first "
            f"that of row {row} (counted from 0)."
        )
    assert sum(seen) == row // 9 * 9


def test_padding_rows(stored):
    """A bad first row, which pads the other ranks, counts once."""
    spec = stored(4)
    np.arange(8).astype(np.float16).tofile(spec.base_directory / "test/numerical.bin")

    def run(world):
        dataset = StoredDataset(
            *(spec, "test", 6), with_labels=False, rank=world.rank, world_size=world.size
        )
        return collected(world, spoilt(0, math.nan), dataset)

    for error in run_threads(3, run):
        assert "1 of 4 logits" in str(error) and "row 0 " in str(error)
