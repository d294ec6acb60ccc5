"""Models to compare with: popularity of items; logistic regression on one-hot ids, in NumPy."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet

from dataloading.formats.raw_binary import RawBinaryDataset
from dataloading.interactions.stored import (
    num_users_and_items,
    read_candidate_lists,
    read_interactions,
)
from dataloading.pipeline.columns import Role
from dataloading.spec import feature_spec as fs
from dataloading.spec.feature_spec import FeatureSpec
from nn.metrics.classification import make_metrics
from nn.ncf.hit_rate import hit_rate, ndcg, ranks_of_positives

BATCH_SIZE = 256
RATES = (0.05, 0.2)


def popularity(rows: Path) -> tuple[float, float]:
    """HR@10 and NDCG@10, on the test split, of an item's number of training interactions."""
    spec = FeatureSpec.from_yaml(rows / "feature_spec.yaml")
    num_items = num_users_and_items(spec)[1]
    counts = np.bincount(read_interactions(spec, fs.TRAIN).items, minlength=num_items)
    lists = read_candidate_lists(spec, fs.TEST)
    return popularity_of(counts, lists.items, lists.labels)


def popularity_of(counts, items, labels) -> tuple[float, float]:
    """HR@10 and NDCG@10 of `counts` of items [n, length], whose positives have label 1."""
    labels = np.broadcast_to(labels, items.shape)
    ranks = ranks_of_positives(items, labels, counts[items].astype(float))
    by_rank = np.bincount(ranks, minlength=items.shape[1])
    return hit_rate(by_rank, 10), ndcg(by_rank, 10)


def sequence_popularity(parquet: Path, split: str) -> float:
    """AUC of the number of training events of the target item."""
    columns = ["label", "item_id_trgt"]
    tables = (pyarrow.parquet.read_table(parquet / m, columns=columns) for m in ("train", split))
    (clicked, shown), (labels, items) = (
        [table[name].to_numpy() for name in columns] for table in tables
    )
    counts = np.bincount(shown[clicked == 1], minlength=1 + max(shown.max(), items.max()))
    return _auc(labels, counts[items])


class OneHotRows(NamedTuple):
    """Ids in one table of all features, inputs of the dense part, labels."""

    ids: np.ndarray
    dense: np.ndarray
    labels: np.ndarray

    def at(self, chosen) -> "OneHotRows":
        return OneHotRows(*(array[chosen] for array in self))


def samples_by_role(spec: FeatureSpec, split: str) -> dict[Role, list[np.ndarray]]:
    """The stored arrays [n, values] of a split, in the order of the channels."""
    loader, samples = RawBinaryDataset(spec, split, 1), defaultdict(list)
    arrays = loader.stored_samples(0, loader.num_samples)
    for column, array in zip(loader.columns, arrays, strict=True):
        samples[column.role].append(array.reshape(len(array), -1))
    return samples


def read_rows(spec: FeatureSpec, split: str) -> OneHotRows:
    samples = samples_by_role(spec, split)
    labels = samples[Role.LABEL][0][:, 0].astype(np.float64)
    first = np.cumsum([0, *spec.cardinalities(fs.CATEGORICAL_CHANNEL)])[:-1]
    ids = [n + array for n, array in zip(first, samples[Role.CATEGORICAL], strict=True)]
    dense = np.hstack([np.ones((len(labels), 1)), *samples[Role.NUMERICAL]])
    return OneHotRows(np.hstack([np.zeros((len(labels), 0), np.int64), *ids]), dense, labels)


def evaluate_linear_model(folder: Path) -> float:
    """Returns the AUC on the test split after Adagrad on the training split.

    The learning rate and the number of epochs are chosen on the last tenth of the training split.
    """
    spec = FeatureSpec.from_yaml(folder / "feature_spec.yaml")
    train, test = read_rows(spec, fs.TRAIN), read_rows(spec, fs.TEST)
    num_ids = sum(spec.cardinalities(fs.CATEGORICAL_CHANNEL))
    most = 1 if len(train.labels) >= 1_000_000 else 10
    cut = len(train.labels) * 9 // 10
    chosen = {}
    for rate in RATES:
        rows = train.at(slice(cut))
        for epoch, weights in enumerate(fit(rows, num_ids, rate, most), start=1):
            chosen[auc(train.at(slice(cut, None)), *weights)] = rate, epoch
    rate, epochs = chosen[max(chosen)]
    *_, weights = fit(train, num_ids, rate, epochs)
    return auc(test, *weights)


def fit(
    rows: OneHotRows, num_ids: int, rate: float, epochs: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the weights of ids and of the dense part after each epoch."""
    weights, dense = np.zeros(num_ids), np.zeros(rows.dense.shape[1])
    sums, dense_sums = np.full_like(weights, 0.1), np.full_like(dense, 0.1)
    rng = np.random.default_rng(0)
    num_rows = len(rows.labels)
    for _ in range(epochs):
        for chosen in np.array_split(rng.permutation(num_rows), -(-num_rows // BATCH_SIZE)):
            batch = rows.at(chosen)
            error = _probability(batch, weights, dense) - batch.labels
            id_errors = np.repeat(error, batch.ids.shape[1])
            gradient = np.bincount(batch.ids.ravel(), id_errors, num_ids) / BATCH_SIZE**0.5
            dense_gradient = error @ batch.dense / BATCH_SIZE**0.5
            sums += gradient**2
            dense_sums += dense_gradient**2
            weights -= rate * gradient / np.sqrt(sums)
            dense -= rate * dense_gradient / np.sqrt(dense_sums)
        yield weights.copy(), dense.copy()


def auc(rows: OneHotRows, weights: np.ndarray, dense: np.ndarray) -> float:
    return _auc(rows.labels, _probability(rows, weights, dense))


def _auc(labels: np.ndarray, scores: np.ndarray) -> float:
    metrics = make_metrics(None)
    metrics.update(labels, scores.astype(np.float32))
    return metrics.result().auc


def _probability(rows: OneHotRows, weights: np.ndarray, dense: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-(weights[rows.ids].sum(1) + rows.dense @ dense)))
