import numpy as np
import pytest
import tensorflow as tf
from distributed_embeddings.exchange.gradients import sum_duplicates

from config.sections.optimizer import OPTIMIZERS, OptimizerConfig
from nn.optim import optimizers

LR = 0.5


def slices(values, rows):
    return tf.IndexedSlices(tf.constant(values, tf.float32), tf.constant(rows), None)


def variable():
    return tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


# Row 0 does not occur, row 1 occurs once, row 2 twice: its gradient is the sum, (3, -4).
SPARSE = ([[1.0, 2.0], [2.0, -1.0], [1.0, -3.0]], [1, 2, 2])
DENSE = np.array([[0.0, 0.0], [1.0, 2.0], [3.0, -4.0]])
START = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def moved(name, gradient, steps=1, **options):
    v = variable()
    optimizer = optimizers.create(name, [v], LR, **options)
    for _ in range(steps):
        optimizer.apply([gradient], 0)
    return v.numpy()


@pytest.mark.parametrize("gradient", [slices(*SPARSE), tf.constant(DENSE, tf.float32)])
def test_adagrad_by_hand(gradient):
    expected, total = START.copy(), np.full([3, 2], 0.1)
    for _ in range(2):
        total += DENSE**2
        expected -= 0.5 * DENSE / (np.sqrt(total) + 1e-7)
    np.testing.assert_allclose(moved("adagrad", gradient, steps=2), expected, rtol=1e-6)


def test_rowwise_adagrad_by_hand():
    # Row 1: mean(1, 4) = 2.5; row 2: mean(9, 16) = 12.5.
    expected = START.copy()
    expected[1] -= 0.5 * np.array([1, 2]) / np.sqrt(0.1 + 2.5)
    expected[2] -= 0.5 * np.array([3, -4]) / np.sqrt(0.1 + 12.5)
    np.testing.assert_allclose(moved("rowwise_adagrad", slices(*SPARSE)), expected, rtol=1e-6)


def adam_by_hand(gradients, rows_move):
    """Kingma and Ba, with epsilon outside of the bias correction."""
    w, m, v = START.copy(), np.zeros([3, 2]), np.zeros([3, 2])
    for t, g in enumerate(gradients, start=1):
        for r in range(3):
            if not rows_move(g, r):
                continue
            m[r] = 0.9 * m[r] + 0.1 * g[r]
            v[r] = 0.99 * v[r] + 0.01 * g[r] ** 2
            rate = 0.5 * np.sqrt(1 - 0.99**t) / (1 - 0.9**t)
            w[r] -= rate * m[r] / (np.sqrt(v[r]) + 1e-3)
    return w


OTHER = np.array([[2.0, 1.0], [0.0, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize("name", ["adam", "lazy_adam"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_adam_by_hand(name, kind):
    v = variable()
    optimizer = optimizers.create(name, [v], LR, beta2=0.99, epsilon=1e-3)
    if kind == "dense":
        steps = [tf.constant(DENSE, tf.float32), tf.constant(OTHER, tf.float32)]
    else:
        steps = [slices(*SPARSE), slices([[2.0, 1.0]], [0])]
    for gradient in [*steps, steps[0]]:
        optimizer.apply([gradient], 0)
    lazy = name == "lazy_adam" and kind == "sparse"
    expected = adam_by_hand([DENSE, OTHER, DENSE], lambda g, r: g[r].any() if lazy else True)
    np.testing.assert_allclose(v, expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["sgd", "adagrad", "rowwise_adagrad", "adam", "lazy_adam"])
def test_empty_batch_and_missing_gradient(name):
    v = variable()
    optimizer = optimizers.create(name, [v], LR)
    optimizer.apply([slices(np.zeros([0, 2]), np.zeros([0], "i"))], 0)
    optimizer.apply([None], 0)
    np.testing.assert_array_equal(v, START)


def test_unknown_name():
    with pytest.raises(ValueError, match="unknown optimizer 'lamb': choose one of sgd"):
        optimizers.create("lamb", [], LR)


@pytest.mark.parametrize("dense", ["sgd", "adagrad", "adam"])
def test_dense_and_sparse_names(dense):
    options = OptimizerConfig(optimizer=dense, learning_rate=3.0, embedding_learning_rate=2.0)
    of_dense, of_tables = optimizers.create_optimizers(options, [variable()], [variable()])
    assert type(of_dense) is type(optimizers.create(dense, [], LR))
    assert type(of_tables) is type(optimizers.create(options.sparse_optimizer, [], LR))
    late = tf.constant(10_000, tf.int64)
    assert [float(o.learning_rate(late)) for o in (of_dense, of_tables)] == [3.0, 2.0]


@pytest.mark.parametrize("devices", [[], ["a GPU"]])
def test_duplicate_ids(devices, monkeypatch):
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: devices)
    summed = sum_duplicates(slices(*SPARSE))
    np.testing.assert_array_equal(summed.indices, [1, 2])
    np.testing.assert_allclose(summed.values, DENSE[1:])
    empty = sum_duplicates(slices(np.zeros([0, 2]), np.zeros([0], np.int32)))
    assert empty.values.shape == (0, 2)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("gradient", [slices(*SPARSE), tf.constant(DENSE, tf.float32)])
def test_sgd_by_hand(gradient, decay):
    """Decoupled: w (1 - lr * decay), then the step; rows without a gradient stay."""
    expected = START * (1 - 0.5 * decay) - 0.5 * DENSE
    if isinstance(gradient, tf.IndexedSlices):
        expected[0] = START[0]
    np.testing.assert_allclose(moved("sgd", gradient, weight_decay=decay), expected, rtol=1e-6)


@pytest.mark.parametrize(("name", "row_0"), [("lazy_adam", 1), ("adam", 0.95)])
def test_weight_decay_of_adam(name, row_0):
    after = moved(name, slices(*SPARSE), weight_decay=0.1)
    np.testing.assert_allclose(after[0], START[0] * row_0, rtol=1e-6)
    # A first step of Adam is the learning rate in the direction of the gradient.
    np.testing.assert_allclose(after[1], START[1] * 0.95 - 0.5, rtol=1e-4)


def test_weight_decay_with_means_of_other_ranks():
    def means(variables, rows, sums):
        return [total / 2 for total in sums]

    plain, decayed = (
        moved("rowwise_adagrad", slices(*SPARSE), row_means=means, weight_decay=decay)
        for decay in (0.0, 0.1)
    )
    np.testing.assert_allclose(decayed[1:], plain[1:] - START[1:] * 0.05, rtol=1e-5)
    np.testing.assert_allclose(decayed[0], START[0])


def test_weight_decay_flag():
    options = OptimizerConfig(optimizer="adam", weight_decay=0.25)
    both = optimizers.create_optimizers(options, [variable()], [variable()])
    assert [o.weight_decay for o in both] == [0.25, 0.25]
    options = OptimizerConfig(optimizer="adam", weight_decay=0.25, embedding_weight_decay=0.5)
    both = optimizers.create_optimizers(options, [variable()], [variable()])
    assert [o.weight_decay for o in both] == [0.25, 0.5]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_of_the_plan(name):
    """Flags and plans know the class: its options, and the bytes of its state of a table."""
    kind, table = OPTIMIZERS[name], tf.Variable(tf.zeros([5, 3]))
    options = OptimizerConfig(epsilon=0.25).options_of(name)
    optimizer = optimizers.create(name, [table], 0.1, **options)
    assert options == {} or optimizer.epsilon == 0.25
    sizes = [state.shape.num_elements() * 4 for (state,) in optimizer.state.values()]
    assert sum(sizes) == 15 * kind.state_bytes_per_element + 5 * kind.state_bytes_per_row
    if not kind.is_of_dense:
        with pytest.raises(ValueError, match="for embedding tables"):
            optimizer.apply([tf.ones([5, 3])], tf.constant(0))
    assert set(optimizers.KINDS) == set(OPTIMIZERS)
