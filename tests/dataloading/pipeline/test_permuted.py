"""Samples with the values of one feature permuted, by hand and from files."""

import numpy as np
import pytest

from dataloading.formats.stored_dataset import StoredDataset
from dataloading.pipeline.columns import Column, Role
from dataloading.pipeline.permuted import PermutedReader
from dataloading.pipeline.ragged import Ragged
from dataloading.synthetic.dataset import synthetic_spec, write_dataset

PAIR = Column(Role.NUMERICAL, "x", np.dtype("f4"), 3, features=("x", "y", "y"))
USER = Column(Role.CATEGORICAL, "user", np.dtype("i4"), 1, 9)
ITEMS = Column(Role.CATEGORICAL, "items", np.dtype("i4"), None, 9)


class Rows:
    """Three samples of (x, y, y), user and a list of items."""

    columns, num_samples = (PAIR, USER, ITEMS), 3

    def read(self, samples, columns):
        pairs = np.array([[0, 10, 11], [1, 20, 21], [2, 30, 31]], "f4")
        lists = [[7], [], [5, 6]]
        chosen = [lists[number] for number in samples]
        values = {
            PAIR: pairs[samples],
            USER: np.array([[4], [5], [6]])[samples],
            ITEMS: Ragged(np.concatenate(chosen), np.cumsum([0, *map(len, chosen)])),
        }
        return [values[column] for column in columns]


@pytest.mark.parametrize("samples", [range(1, 3), np.array([1, 2])])
def test_values_by_hand(samples):
    order = np.array([1, 2, 0], np.int32)
    pairs, users, _ = PermutedReader(Rows(), "y", order).read(samples, Rows.columns)
    assert pairs.tolist() == [[1, 30, 31], [2, 10, 11]]
    assert users.tolist() == [[5], [6]]
    pairs, users, _ = PermutedReader(Rows(), "user", order).read(samples, Rows.columns)
    assert pairs.tolist() == [[1, 20, 21], [2, 30, 31]]
    assert users.tolist() == [[6], [4]]
    (items,) = PermutedReader(Rows(), "items", order).read(samples, [ITEMS])
    assert items.values.tolist() == [5, 6, 7] and items.row_splits.tolist() == [0, 2, 3]


def inputs_of(dataset):
    """Returns numerical features and ids of all real samples."""
    batches = []
    for batch in dataset.dataset():
        kept = batch.weights.numpy()[:, 0] > 0
        columns = (batch.inputs.numerical, *batch.inputs.categorical)
        batches.append([column.numpy()[kept] for column in columns])
    return [np.concatenate(parts) for parts in zip(*batches, strict=True)]


def test_permuted_data_set(tmp_path):
    """The values of one feature move, whatever the batch size."""
    spec = synthetic_spec([50, 20], hotness=[1, 2], num_numerical=3)
    spec = write_dataset(tmp_path / "rows", spec, {"test": 101})
    whole = StoredDataset(spec, "test", 101)
    assert whole.features == ("num_0", "num_1", "num_2", "cat_0", "cat_1")
    before, after = inputs_of(whole), inputs_of(whole.permuted("num_1", [1, 2]))
    assert (before[0][:, [0, 2]] == after[0][:, [0, 2]]).all()
    assert (np.sort(before[0][:, 1]) == np.sort(after[0][:, 1])).all()
    assert (before[0][:, 1] != after[0][:, 1]).mean() > 0.9
    after = inputs_of(whole.permuted("cat_1", 3))
    assert (before[0] == after[0]).all() and (before[1] == after[1]).all()
    pairs = [
        np.unique(values, axis=0, return_counts=True)[1].tolist()
        for values in (before[2], after[2])
    ]
    assert pairs[0] == pairs[1] and (before[2] != after[2]).any()
    batches = inputs_of(StoredDataset(spec, "test", 30).permuted("cat_1", 3))
    assert (batches[2] == after[2]).all()
    assert (inputs_of(whole.permuted("cat_1", 4))[2] != after[2]).any()
