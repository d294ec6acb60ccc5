import math

import numpy as np
import pytest
import tensorflow as tf

from nn.layers.dropout import DropoutPlace
from nn.sequence.attention import (
    NUM_HEADS,
    ActivationUnit,
    BilinearScores,
    DotAttention,
    TargetQueries,
    attend,
    masked_softmax,
)
from nn.sequence.dien import AuxiliaryOutputs, InterestEvolution
from nn.sequence.long_history import LongHistory, hard_search, most_recent, select_top
from nn.sequence.loss import auxiliary_loss
from nn.sequence.mlp import Classifier, PReLU

YES, NO = True, False


def normal(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).normal(size=shape), tf.float64)


def test_masked_softmax_by_hand():
    scores = tf.constant([[0.0, 50.0, math.log(3.0)], [5.0, 6.0, 7.0]])
    weights = masked_softmax(scores, tf.constant([[YES, NO, YES], [NO, NO, NO]]))
    np.testing.assert_allclose(weights, [[0.25, 0, 0.75], [0, 0, 0]], rtol=1e-6)


def test_gradient_of_masked_places():
    scores, mask = tf.constant([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]), [[YES, YES, NO], [NO] * 3]
    with tf.GradientTape() as tape:
        tape.watch(scores)
        loss = tf.reduce_sum(masked_softmax(scores, tf.constant(mask)) * [1.0, 5.0, 7.0])
    gradient = tape.gradient(loss, scores).numpy()
    weight = 1 / (1 + math.e)  # of the first place; d loss = w (1 - w) (1 - 5)
    first = weight * (1 - weight) * -4
    np.testing.assert_allclose(gradient, [[first, -first, 0], [0, 0, 0]], rtol=1e-5)


def test_masked_softmax_of_the_lowest_scores():
    """A real place whose score is as low as float32 goes still beats padding."""
    scores = tf.constant([[-3e38, 0.0]])
    np.testing.assert_array_equal(masked_softmax(scores, tf.constant([[YES, NO]])), [[1, 0]])
    np.testing.assert_array_equal(masked_softmax(-scores, tf.constant([[YES, NO]])), [[1, 0]])


def test_attention_by_hand():
    """Each query has its own choice of keys, which may depend on the scores."""
    queries = tf.constant([[[0.0, 1.0], [math.log(3.0), 0.0], [7.0, 7.0]]])
    keys = tf.constant([[[0.0, 8.0], [1.0, 4.0], [1.0, 0.0]]])
    seen = []

    def choose(scores):
        seen.append(scores.numpy())
        return tf.constant([[[NO, YES, NO], [YES, YES, NO], [NO, NO, NO]]])

    actual = attend(queries, keys, choose)
    np.testing.assert_allclose(actual, [[[1, 4], [0.75, 5], [0, 0]]], rtol=1e-6)
    third = math.log(3.0)
    np.testing.assert_allclose(seen, [[[[8, 4, 0], [0, third, third], [56, 35, 7]]]], rtol=1e-6)


def test_gradients_of_the_attention():
    """Compares the gradients with those that TensorFlow derives from separate operations."""
    rng = np.random.default_rng(2)
    queries, keys, upstream = normal(3, 2, 4), normal(3, 5, 4, seed=1), normal(3, 2, 4, seed=2)
    mask = rng.random([3, 2, 5]) < 0.6
    mask[2, 1] = NO

    def by_steps():
        scores = tf.matmul(queries, keys, transpose_b=True)
        return tf.matmul(masked_softmax(scores, tf.constant(mask)), keys)

    gradients = []
    for function in (by_steps, lambda: attend(queries, keys, lambda _: tf.constant(mask))):
        with tf.GradientTape() as tape:
            tape.watch([queries, keys])
            loss = tf.reduce_sum(function() * upstream)
        gradients.append(tape.gradient(loss, [queries, keys]))
    for expected, got in zip(*gradients, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-12)


def test_dot_attention_by_hand():
    """dim 4: scores are inner products over 2, here log(3) and 0."""
    target = tf.constant([[2 * math.log(3.0), 0, 0, 0]])
    keys = tf.constant([[[1.0, 4, 0, 8], [0, 0, 4, 0], [9, 9, 9, 9]]])
    result = DotAttention()(target, keys, tf.constant([[YES, YES, NO]]))
    np.testing.assert_allclose(result, [[0.75, 3, 1, 6]], rtol=1e-6)


def test_activation_unit_by_hand():
    """One column, one unit: h = 2 t + 3 k + 5 (t - k) + 7 t k + 1, PReLU 0.5, a = 10 h + 4."""
    unit = ActivationUnit(seed=0, name="unit", dim=1)
    target, keys = tf.constant([[2.0]]), tf.constant([[[1.0], [-1.0], [3.0]]])
    mask = tf.constant([[YES, YES, NO]])
    unit(target, keys, mask)
    unit.kernel.assign([[2.0], [3.0], [5.0], [7.0]])
    unit.bias.assign([1.0])
    unit.slope.assign([[0.5]])
    unit.score_kernel.assign([[10.0]])
    unit.score_bias.assign([4.0])
    # k = 1: h = 4 + 3 + 5 + 14 + 1 = 27, a = 274; k = -1: 4 - 3 + 15 - 14 + 1 = 3, a = 34.
    np.testing.assert_allclose(unit(target, keys, mask), [[274.0 - 34.0]])
    # k = -2: 4 - 6 + 20 - 28 + 1 = -9, after PReLU -4.5, a = -41.
    lone = unit(target, tf.constant([[[-2.0]]]), tf.constant([[YES]]))
    np.testing.assert_allclose(lone, [[82.0]])


def test_bilinear_scores_by_hand():
    scores = BilinearScores(seed=0, name="scores")
    target, states = tf.constant([[1.0, 2.0]]), tf.constant([[[1.0, 0, 0], [0, 1, 3]]])
    scores((target, states))
    scores.kernel.assign([[1.0, 10.0], [3.0, 0.0], [0.0, 4.0]])  # W target = (21, 3, 8)
    np.testing.assert_array_equal(scores((target, states)), [[21.0, 27.0]])


@pytest.mark.parametrize("num_heads", [1, 2])
def test_queries_against_a_loop(num_heads):
    """dim 5: one head projects to 5 columns, two to 3 each."""
    layer = TargetQueries(seed=1, name="queries", num_heads=num_heads, dtype="float64")
    target, key = normal(3, 5), normal(5, seed=1)
    queries = layer(target).numpy()
    assert queries.shape == (3, num_heads, 5)
    width = -(-5 // num_heads)
    of_keys, of_query = layer.of_keys.numpy(), layer.of_query.numpy()
    for b in range(3):
        for head in range(num_heads):
            columns = slice(width * head, width * (head + 1))
            projected = target[b].numpy() @ of_query[:, columns], key.numpy() @ of_keys[:, columns]
            expected = projected[0] @ projected[1] / math.sqrt(width)
            assert queries[b, head] @ key.numpy() == pytest.approx(expected)


def test_initial_queries():
    target = normal(3, 4)
    layer = TargetQueries(seed=1, name="queries", num_heads=1, identity=True, dtype="float64")
    np.testing.assert_allclose(layer(target)[:, 0], target / 2)


@pytest.mark.parametrize(
    ("k", "expected"),
    [
        (1, [[NO, NO, YES, NO, NO], [NO, NO, NO, NO, YES], [NO] * 5]),
        (2, [[YES, NO, YES, NO, NO], [NO, NO, NO, YES, YES], [NO] * 5]),
        (3, [[YES, NO, YES, NO, YES], [NO, NO, YES, YES, YES], [NO] * 5]),
        (9, [[YES, NO, YES, YES, YES], [NO, NO, YES, YES, YES], [NO] * 5]),
    ],
)
def test_selection_of_highest_scores(k, expected):
    """Padding is never selected; of equal scores the most recent places are."""
    scores = tf.constant([[3.0, 9.0, 4.0, 1.0, 2.0], [8.0, 8.0, 1.0, 1.0, 1.0], [1.0] * 5])
    mask = tf.constant([[YES, NO, YES, YES, YES], [NO, NO, YES, YES, YES], [NO] * 5])
    np.testing.assert_array_equal(select_top(scores, mask, k), expected)


def test_selection_against_sorting():
    rng = np.random.default_rng(5)
    scores = rng.integers(0, 6, [200, 12]).astype("f")  # many are equal
    mask = rng.random([200, 12]) < 0.7
    selected = select_top(tf.constant(scores), tf.constant(mask), 4).numpy()
    for row, real, got in zip(scores, mask, selected, strict=True):
        order = sorted(np.flatnonzero(real), key=lambda j, row=row: (row[j], j), reverse=True)
        assert set(np.flatnonzero(got)) == set(order[:4])


@pytest.mark.parametrize("gsu", ["soft", "hard"])
def test_long_history_by_hand(gsu):
    """One item is selected, so that every head is that item; all items are pooled."""
    layer = LongHistory(gsu, 1, seed=0, name="long")
    target = tf.constant([[2 * math.log(3.0), 0, 0, 0]])
    keys = tf.constant([[[1.0, 4, 0, 8], [0, 0, 4, 0], [9, 9, 9, 9]]])
    mask = tf.constant([[YES, YES, NO]])
    categories = tf.constant([[5]]), tf.constant([[4, 5, 5]])
    with tf.GradientTape() as tape:
        heads, pooled = layer(target, keys, mask, categories)
        loss = tf.reduce_sum(heads if pooled is None else pooled)
    assert heads.shape == (1, 4 * NUM_HEADS)
    nearest = {"soft": 0, "hard": 1}[gsu]
    np.testing.assert_allclose(heads, np.tile(keys[0, nearest], NUM_HEADS)[np.newaxis], rtol=1e-6)
    if gsu == "hard":
        assert pooled is None
        return
    np.testing.assert_allclose(pooled, [[0.75, 3, 1, 6]], rtol=1e-6)
    assert all(np.any(g) for g in tape.gradient(loss, layer.search.trainable_variables))
    # With these, scores are 2 t_0 (k_0 + 5 k_2) / 2: the second key is the nearer one.
    layer.search.of_query.assign(2 * np.eye(4))
    layer.search.of_keys.assign(np.eye(4) + 5 * np.eye(4, k=-2))
    np.testing.assert_allclose(layer(target, keys, mask, categories)[0][0, :4], keys[0, 1])


def test_hard_search_by_hand():
    categories = tf.constant([[0, 7, 7, 3, 7], [0, 0, 0, 0, 2], [7, 7, 7, 7, 7]])
    mask = tf.constant([[NO, YES, YES, YES, YES], [NO] * 4 + [YES], [YES] * 5])
    target = tf.constant([[7], [0], [7]], tf.int64)
    np.testing.assert_array_equal(
        hard_search(target, categories, mask, 2),
        [[NO, NO, YES, NO, YES], [NO] * 5, [NO, NO, NO, YES, YES]],
    )


def test_most_recent():
    mask = tf.constant([[YES, YES, NO, YES]])
    np.testing.assert_array_equal(most_recent(mask, 2), [[NO, YES, NO, YES]])
    np.testing.assert_array_equal(most_recent(mask, 4), mask)


def test_prelu_by_hand():
    layer = PReLU(name="prelu")
    x = tf.constant([[-4.0, 2.0], [-1.0, -2.0]])
    np.testing.assert_array_equal(layer(x), [[-1.0, 2.0], [-0.25, -0.5]])
    layer.slope.assign([0.5, 0.1])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x)
        loss = tf.reduce_sum(y * [[1.0, 10.0], [100.0, 1000.0]])
    np.testing.assert_allclose(y, [[-2.0, 2.0], [-0.5, -0.2]])
    of_x, of_slope = tape.gradient(loss, [x, layer.slope])
    np.testing.assert_allclose(of_x, [[0.5, 10.0], [50.0, 100.0]])
    np.testing.assert_allclose(of_slope, [-4.0 - 100.0, -2000.0])


def test_float32_sums_over_batch():
    """8,191 has 13 bits, of which bfloat16 keeps 8."""
    prelu = PReLU(name="prelu", dtype="mixed_bfloat16")
    assert gradient_of(prelu, "slope", -tf.ones([8191, 1], tf.bfloat16)) == -8191
    unit = ActivationUnit(seed=0, name="unit", dim=1, dtype="mixed_bfloat16")
    target, keys = tf.zeros([8191, 1], tf.bfloat16), tf.ones([8191, 1, 1], tf.bfloat16)
    inputs = target, keys, tf.ones([8191, 1], tf.bool)
    unit(*inputs)
    unit.score_kernel.assign([[1.0]])
    unit.slope.assign([[1.0]])
    assert gradient_of(unit, "bias", *inputs) == 8191
    assert gradient_of(unit, "score_bias", *inputs) == 8191


def gradient_of(layer, weight: str, *inputs) -> float:
    """The gradient of the sum of a layer's output to a weight of one element."""
    layer(*inputs)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.cast(layer(*inputs), tf.float32))
    return float(tape.gradient(loss, getattr(layer, weight))[0])


def test_classifier_by_hand():
    x = tf.constant([[1.0, -1.0]])
    for activation, expected in (("prelu", 3 * 3 - 0.5), ("sigmoid", None)):
        layer = Classifier([2], seed=0, name="mlp", activation=activation)
        layer(x)
        hidden, last = layer.affine
        hidden.kernel.assign([[1.0, -1.0], [-1.0, 1.0]])
        hidden.bias.assign([1.0, 0.0])  # (3, -2)
        last.kernel.assign([[3.0], [1.0]])
        last.bias.assign([0.0])
        if expected is None:
            expected = 3 / (1 + math.exp(-3)) + 1 / (1 + math.exp(2))
        np.testing.assert_allclose(layer(x), [[expected]], rtol=1e-6)


def test_classifier_without_hidden_layers():
    layer = Classifier([], seed=0, name="mlp", dropout=(0.5, 0))
    place = DropoutPlace(*map(tf.constant, (np.int64(1), np.int64(0), np.int32(3))))
    assert layer(tf.ones([3, 2]), place).shape == (3, 1)
    assert len(layer.trainable_variables) == 2


def test_auxiliary_loss_by_hand():
    """log(1 + e^0) = log 2 for each logit of 0; the first sample has 2 pairs, the second 1."""
    big = 100.0  # padding, whose value has no effect
    aux = AuxiliaryOutputs(
        tf.constant([[0.0, math.log(3.0)], [big, 0.0], [big, big], [1.0, 1.0]]),
        tf.constant([[0.0, 0.0], [big, 0.0], [big, big], [1.0, 1.0]]),
        tf.constant([[YES, YES], [NO, YES], [NO, NO], [YES, YES]]),
    )
    first = (2 * math.log(2) + math.log(4 / 3) + math.log(2)) / 2
    second = 2 * math.log(2)
    weights = tf.constant([[1.0], [2.0], [1.0], [0.0]])
    loss = auxiliary_loss(aux, weights)
    assert float(loss) == pytest.approx((first + 2 * second) / 4)


def test_pairs_of_the_auxiliary_loss():
    """State t meets the item of step t + 1, where both steps are real."""
    layer = InterestEvolution(2, [], seed=0, name="dien")
    target, history = tf.zeros([1, 2]), tf.constant([[[9.0, 9.0], [1.0, 2.0], [3.0, 4.0]]])
    mask = tf.constant([[NO, YES, YES]])
    _, states = layer(target, history, mask)
    negatives = tf.constant([[[5.0, 6.0], [7.0, 8.0]]])
    layer.compare(states, history, negatives, mask)
    layer.auxiliary.affine[0].kernel.assign([[1000.0], [0.0], [10.0], [1.0]])
    layer.auxiliary.affine[0].bias.assign([0.0])
    aux = layer.compare(states, history, negatives, mask)
    of_states = 1000 * states.numpy()[0, :-1, 0]
    np.testing.assert_allclose(aux.positive_logits[0], of_states + [12.0, 34.0], rtol=1e-5)
    np.testing.assert_allclose(aux.negative_logits[0], of_states + [56.0, 78.0], rtol=1e-5)
    np.testing.assert_array_equal(aux.mask, [[NO, YES]])
    assert not states.numpy()[0, 0].any()
