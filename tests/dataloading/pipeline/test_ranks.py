"""Shares of a global batch on several ranks: weights of uneven ones, and model-parallel input."""

import dataclasses
import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from dataloading.formats.stored_dataset import StoredDataset
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.synthetic.dataset import SyntheticDataset, synthetic_spec, write_dataset


def small_spec() -> FeatureSpec:
    content = synthetic_spec([10, 20, 5, 300], hotness=[1, 2, 1, 1], num_numerical=3).to_dict()
    content["feature_spec"]["cat_0"]["dtype"] = "int64"
    return FeatureSpec.from_dict(content, ".")


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """`stored(num_samples)`: generated rows on disk."""
    created = {}

    def rows(num_samples: int) -> FeatureSpec:
        if num_samples not in created:
            folder = tmp_path_factory.mktemp("rows") / str(num_samples)
            created[num_samples] = write_dataset(folder, small_spec(), {"train": num_samples})
        return created[num_samples]

    return rows


@pytest.fixture
def copied(stored, tmp_path):
    """The spec of 30 rows in a separate folder, which the test may change."""
    spec = stored(30)
    for path in (spec.base_directory / "train").iterdir():
        (tmp_path / "train").mkdir(exist_ok=True)
        (tmp_path / "train" / path.name).write_bytes(path.read_bytes())
    return dataclasses.replace(spec, base_directory=tmp_path, origin="f.yaml")


SHUFFLED = {"shuffle": True, "seed": 3, "block_samples": 5, "window_samples": 10}


@pytest.fixture(params=["file_order", "shuffled", "generated"])
def open_rows(request, stored):
    """`open_rows(num_samples, batch_size, ...)`: a loader of each kind."""

    def open_one(num_samples, batch_size, **settings):
        if request.param == "generated":
            return SyntheticDataset(
                small_spec(), "train", batch_size, num_samples=num_samples, **settings
            )
        order = SHUFFLED if request.param == "shuffled" else {}
        return StoredDataset(stored(num_samples), "train", batch_size, **order, **settings)

    return open_one


def test_memory_of_a_finished_pipeline(open_rows):
    """A data set is freed with its pipeline, whose iterator alone keeps it."""
    rows = open_rows(30, 8)
    reference = weakref.ref(rows)
    iterator = iter(rows.dataset())
    del rows
    gc.collect()
    assert len(list(iterator)) == 4
    del iterator
    gc.collect()
    assert reference() is None


@pytest.mark.quick("*-13-30-3", "file_order-0-1-2")
@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("num_samples", [30, 1])
@pytest.mark.parametrize("start_sample", [0, 13])
def test_concatenated_ids_of_all_ranks(open_rows, world_size, num_samples, start_sample):
    start_sample = min(start_sample, num_samples)
    stored_value = [[2, 0], [], [1, 1, 3], [0, 1, 2, 3]]
    own, held_by = [], []
    for rank in range(world_size):
        settings = {"rank": rank, "world_size": world_size}
        own.append(list(open_rows(num_samples, 12, **settings).dataset(1, start_sample)))
        loader = open_rows(num_samples, 12, global_features=stored_value[rank], **settings)
        held_by.append(list(loader.dataset(1, start_sample)))
        assert loader.num_samples == num_samples
    for rank in range(world_size):
        assert len(held_by[rank]) == len(own[0])
        for index, batch in enumerate(held_by[rank]):
            mine = own[rank][index]
            np.testing.assert_array_equal(batch.inputs.numerical, mine.inputs.numerical)
            np.testing.assert_array_equal(batch.labels, mine.labels)
            np.testing.assert_array_equal(batch.weights, mine.weights)
            assert isinstance(batch.inputs.categorical, tuple)
            for ids, feature in zip(batch.inputs.categorical, stored_value[rank], strict=True):
                parts = [theirs[index].inputs.categorical[feature] for theirs in own]
                assert ids.dtype == parts[0].dtype
                np.testing.assert_array_equal(ids, tf.concat(parts, 0))


def test_static_shapes_and_dtypes(open_rows):
    loader = open_rows(24, 12, rank=1, world_size=2, global_features=[1, 0, 1])
    # A thread that tunes can delay the end of an iterator, and there is nothing to tune.
    assert loader.dataset().options().autotune.enabled is False
    element = loader.dataset().element_spec
    assert [ids.shape[1] for ids in element.inputs.categorical] == [2, 1, 2]
    assert [ids.dtype for ids in element.inputs.categorical] == [tf.int32, tf.int64, tf.int32]
    assert element.inputs.numerical.shape.as_list() == [None, 3]
    empty = open_rows(24, 12, rank=1, world_size=2, global_features=()).dataset()
    assert empty.element_spec.inputs.categorical == ()


def test_global_batch_of_several_generated_blocks():
    """A batch of more rows than a block of the generator (8,192)."""
    settings = {"num_samples": 40_000, "rank": 1, "world_size": 2}
    own = SyntheticDataset(small_spec(), "train", 20_000, **settings).dataset()
    loader = SyntheticDataset(small_spec(), "train", 20_000, global_features=[3], **settings)
    for batch, mine in zip(loader.dataset(), own, strict=True):
        np.testing.assert_array_equal(batch.labels, mine.labels)
        (ids,) = batch.inputs.categorical
        np.testing.assert_array_equal(ids[10_000:], mine.inputs.categorical[3])


def test_missing_files_of_other_features(copied):
    whole = list(StoredDataset(copied, "train", 8).dataset())
    for feature in (0, 1, 3):
        (copied.base_directory / f"train/cat_{feature}.bin").unlink()
    loader = StoredDataset(copied, "train", 8, rank=1, world_size=2, global_features=[2])
    for batch, expected in zip(loader.dataset(), whole, strict=True):
        np.testing.assert_array_equal(batch.inputs.categorical[0], expected.inputs.categorical[2])
    (copied.base_directory / "train/cat_2.bin").unlink()
    assert len(list(StoredDataset(copied, "train", 8, global_features=()).dataset())) == 4
    with pytest.raises(ValueError, match="file 'train/cat_2.bin' is not there"):
        StoredDataset(copied, "train", 8, global_features=[2])
    with pytest.raises(ValueError, match="file 'train/cat_0.bin' is not there"):
        StoredDataset(copied, "train", 8)


def test_files_of_unequal_length(copied):
    for file in ("cat_1", "cat_3"):
        path = copied.base_directory / f"train/{file}.bin"
        path.write_bytes(path.read_bytes()[:-4])  # one row of cat_1, two rows of cat_3
    with pytest.raises(ValueError, match=r"\(train/label.bin\) has 30 rows .* has 28"):
        StoredDataset(copied, "train", 8, global_features=[3])
    assert StoredDataset(copied, "train", 8, global_features=[2]).num_samples == 30


def test_checks_of_ids_on_their_rank(copied):
    path = copied.base_directory / "train/cat_2.bin"
    content = bytearray(path.read_bytes())
    content[7] = 99  # a row of rank 1
    path.write_bytes(content)
    settings = {"rank": 0, "world_size": 2}
    assert len(list(StoredDataset(copied, "train", 8, **settings).dataset().take(1))) == 1
    loader = StoredDataset(copied, "train", 8, global_features=[2], **settings)
    message = "feature 'cat_2': found 99 in row 7 .* ids lie in"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(loader.dataset())
    assert "found 99 in row 7" in loader.failure
    other = StoredDataset(copied, "train", 8, global_features=[0, 1, 3], rank=1, world_size=2)
    assert len(list(other.dataset())) == 4


def test_weights_of_a_padded_batch_by_hand(open_rows):
    # 13 rows in batches of 8 on 4 ranks: 5 rows in the last batch, 2 + 1 + 1 + 1 of 4 x 2 places.
    ranks = [list(open_rows(13, 8, rank=rank, world_size=4).dataset()) for rank in range(4)]
    assert [batches[0].weights.numpy().ravel().tolist() for batches in ranks] == [[1.0, 1.0]] * 4
    last = [batches[1].weights.numpy().ravel() for batches in ranks]
    weight = np.float32(8 / 5)
    np.testing.assert_array_equal(last, [[weight, weight]] + [[weight, 0]] * 3)


@pytest.mark.quick("*-29-2", "shuffled-1-2")
@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("num_samples", [24, 29, 1])
def test_rows_and_mean_over_ranks(open_rows, world_size, num_samples):
    """Side by side, the rows of ranks are those of one rank; padding is a row of the batch, of
    weight 0. The mean is equal for any value per row, here for the first numerical feature."""
    whole = list(open_rows(num_samples, 12).dataset())
    ranks = [
        list(open_rows(num_samples, 12, rank=rank, world_size=world_size).dataset())
        for rank in range(world_size)
    ]
    for index, batch in enumerate(whole):
        assert (batch.weights.numpy() == 1).all()
        parts = [theirs[index] for theirs in ranks]
        assert len({len(part.labels) for part in parts}) == 1
        for column in (lambda of: of.inputs.numerical, lambda of: of.inputs.categorical[1]):
            real = [column(part)[part.weights[:, 0] > 0] for part in parts]
            np.testing.assert_array_equal(tf.concat(real, 0), column(batch))
            padding = [column(part)[part.weights[:, 0] == 0] for part in parts]
            assert (tf.concat(padding, 0).numpy() == column(batch)[0].numpy()).all()
        means = [
            tf.reduce_mean(theirs[index].weights * theirs[index].inputs.numerical[:, :1])
            for theirs in ranks
        ]
        expected = np.mean(batch.inputs.numerical[:, 0])
        assert np.mean(means) == pytest.approx(expected, rel=1e-5, abs=1e-6)
        if len(batch.labels) % world_size == 0:
            assert all((theirs[index].weights.numpy() == 1).all() for theirs in ranks)
