"""Losses of groups by hand, against loops over groups and pairs, and on several ranks."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from embedding_testing.fake_world import TensorWorld, run_threads

from dataloading.pipeline.shuffle import padded_shares, share_of_rank
from nn.train.group_loss import LISTWISE, PAIRWISE, GroupLoss, listwise, pairwise

FUNCTIONS = {LISTWISE: listwise, PAIRWISE: pairwise}


def first(inputs, training, weights):
    """Returns the logits of a model: the first input."""
    assert training and len(weights) == len(inputs[0])
    return inputs[0]


def random_rows(num_rows=60, num_groups=12):
    """Returns groups, labels and logits; the groups are beyond int32, and not neighbors."""
    rng = np.random.default_rng(0)
    groups = rng.integers(num_groups, size=num_rows) * 2**33
    labels = (rng.random(num_rows) < 0.3).astype(np.float32)
    return groups, labels, rng.normal(size=num_rows).astype(np.float32) * 3


def expected(kind, groups, labels, logits):
    losses = []
    for group in np.unique(groups):
        own, z = labels[groups == group] > 0, np.float64(logits[groups == group])
        if not own.any() or own.all():
            continue
        if kind == LISTWISE:
            losses.append(-np.log(np.exp(z) / np.exp(z).sum())[own].sum())
        else:
            losses.append(np.log1p(np.exp(z[~own][None] - z[own][:, None])).mean())
    return np.mean(losses)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_loops_over_groups(kind):
    rows = random_rows()
    loss = tf.function(FUNCTIONS[kind])(*map(tf.constant, rows))
    assert loss.numpy() == pytest.approx(expected(kind, *rows), rel=1e-6)


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("labels", [[], [1.0], [0.0, 0.0]])
def test_batches_without_pairs(kind, labels):
    logits = tf.zeros(len(labels))
    groups = tf.zeros(len(labels), tf.int64)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = FUNCTIONS[kind](groups, tf.constant(labels, tf.float32), logits)
    assert loss.numpy() == 0 and not np.any(tf.convert_to_tensor(tape.gradient(loss, logits)))


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_large_logits(kind):
    groups, labels = tf.zeros(3, tf.int64), tf.constant([1.0, 0, 0])
    logits = tf.constant([-1e30, 1e30, 0])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = FUNCTIONS[kind](groups, labels, logits)
    gradient = tf.convert_to_tensor(tape.gradient(loss, logits))
    assert np.isfinite(loss) and np.isfinite(gradient).all()


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_loss_and_gradient_over_ranks(kind, size):
    """The mean over ranks of the loss and of its gradient are those of one rank."""
    groups, labels, logits = random_rows(num_rows=59)
    groups[:5] = 0  # they have no group
    padded = padded_shares(59, size)

    def run(world):
        begin, end, length = share_of_rank(59, world.rank, size)
        own = padded[world.rank * length : (world.rank + 1) * length]
        weights = np.arange(length)[:, None] < end - begin
        batch = SimpleNamespace(
            inputs=(tf.constant(logits[own, None]), tf.constant(groups[own, None])),
            labels=tf.constant(labels[own, None]),
            weights=tf.constant(weights, tf.float32) * 1.25,
        )
        group_loss = GroupLoss(kind, lambda inputs: inputs[1], 1, TensorWorld(world))
        with tf.GradientTape() as tape:
            tape.watch(batch.inputs[0])
            loss, terms = group_loss(first, batch)
        gradient = tape.gradient(loss, batch.inputs[0]).numpy()
        assert terms == {} and not gradient[end - begin :].any()
        return loss.numpy(), gradient[: end - begin, 0] / size

    results = run_threads(size, run)
    one = GroupLoss(kind, lambda inputs: inputs[1], 1)
    inputs = (tf.constant(logits[:, None]), tf.constant(groups[:, None]))
    batch = SimpleNamespace(
        inputs=inputs, labels=tf.constant(labels[:, None]), weights=tf.ones([59, 1])
    )
    with tf.GradientTape() as tape:
        tape.watch(inputs[0])
        loss, _ = one(first, batch)
    gradient = tape.gradient(loss, inputs[0]).numpy()[:, 0]
    has_group = groups > 0
    rows = (groups[has_group], labels[has_group], logits[has_group])
    assert loss.numpy() == pytest.approx(expected(kind, *rows), rel=1e-6)
    assert [value for value, _ in results] == pytest.approx([loss.numpy()] * size, rel=1e-6)
    actual = np.concatenate([own for _, own in results])
    np.testing.assert_allclose(actual, gradient, rtol=1e-5, atol=1e-7)
