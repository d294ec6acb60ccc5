import numpy as np
import pytest
import tensorflow as tf

from nn.ctr.model import CTRModel
from nn.ctr.sizes import CTRConfig
from nn.optim import optimizers
from nn.optim.learning_rate import WarmupPolynomialDecay
from nn.train.losses import binary_cross_entropy
from nn.train.trainer import Trainer


def weight_trainer(loss, start=1.0, loss_scale=1.0, learning_rate=0.5):
    """A trainer of one weight with SGD; batches are the scalars that the loss gets."""
    w = tf.Variable(start)
    group = optimizers.create("sgd", [w], learning_rate)
    return w, Trainer(w, lambda model, batch: (loss(model, batch), {}), [group], loss_scale)


def batches(*values):
    return iter(tf.data.Dataset.from_tensor_slices(tf.constant(values, tf.float32)))


def test_steps_and_progress_by_hand():
    # loss = b w, dw = b: w = 1 - 0.5 * 1 - 0.5 * 2 = -0.5
    w, trainer = weight_trainer(lambda w, b: b * w)
    iterator = batches(1.0, 2.0, 4.0)
    trainer.train_step(iterator)
    trainer.train_step(iterator)
    assert float(w) == -0.5
    progress = trainer.progress()
    assert (progress.step, progress.first_bad_step, progress.skipped_steps) == (2, 0, 0)
    assert progress.loss == pytest.approx((1 * 1 + 2 * 0.5) / 2)
    assert progress.learning_rate == 0.5
    trainer.train_step(iterator)
    assert trainer.progress().loss == pytest.approx(4 * -0.5)
    assert np.isnan(trainer.progress().loss)


def test_first_bad_step():
    _, trainer = weight_trainer(lambda w, b: b * w)
    iterator = batches(1.0, float("inf"), float("nan"), 1.0)
    for _ in range(4):
        trainer.train_step(iterator)
    assert trainer.progress().first_bad_step == 2


def test_skipped_steps():
    # 1e38 * 1024 overflows float32, the loss itself is finite.
    w, trainer = weight_trainer(lambda w, b: b * w, loss_scale=1024.0)
    iterator = batches(1e38, 1.0)
    trainer.train_step(iterator)
    assert float(w) == 1.0
    trainer.train_step(iterator)
    assert float(w) == 0.5
    progress = trainer.progress()
    assert (progress.step, progress.skipped_steps, progress.first_bad_step) == (2, 1, 0)


def test_learning_rate():
    w = tf.Variable(0.0)
    schedule = WarmupPolynomialDecay(1.0, warmup_steps=2, decay_start_step=2, decay_steps=1)
    group = optimizers.create("sgd", [w], schedule)
    trainer = Trainer(w, lambda model, batch: (model * 1.0, {}), [group])
    iterator = batches(*[0.0] * 5)
    values = []
    for _ in range(5):
        trainer.train_step(iterator)
        values.append(float(w))
    assert values == [-0.5, -1.5, -2.5, -2.5, -2.5]
    assert trainer.progress().learning_rate == 0.0


def ranking(dtype, interaction="dot_tensorflow", **options):
    config = CTRConfig(
        feature_names=("a", "b", "c"),
        cardinalities=(10, 20, 5),
        embedding_dims=(8, 4, 8) if interaction == "cross" else (8, 8, 8),
        num_numerical=3,
        bottom_mlp_dims=(16, 8),
        top_mlp_dims=(16, 1),
        interaction=interaction,
        num_cross_layers=2,
        cross_layer_projection_dim=4,
    )
    return CTRModel(config, seed=1, dtype=dtype, **options)


def random_rows(n=64):
    rng = np.random.default_rng(0)
    numerical = rng.normal(size=(n, 3)).astype("f")
    ids = tuple(rng.integers(0, rows, size=(n, 1)).astype("i") for rows in (10, 20, 5))
    return (numerical, ids), (numerical[:, :1] > 0).astype("f")


@pytest.mark.quick("*-dot_tensorflow", "mixed_bfloat16-*")
@pytest.mark.parametrize("interaction", ["dot_tensorflow", "cross"])
@pytest.mark.parametrize(
    ("dtype", "scale"), [("float32", 1.0), ("mixed_bfloat16", 1.0), ("mixed_float16", 1024.0)]
)
def test_precisions(interaction, dtype, scale):
    model = ranking(dtype, interaction)
    rows = tf.data.Dataset.from_tensors(random_rows()).repeat()

    def loss(model, batch):
        inputs, labels = batch
        return binary_cross_entropy(labels, model(inputs), tf.ones_like(labels)), {}

    rate = WarmupPolynomialDecay(0.1)
    both = [
        optimizers.create("adagrad", model.dense_variables, rate),
        optimizers.create("lazy_adam", model.table_variables, rate),
    ]
    trainer = Trainer(model, loss, both, scale)
    iterator = iter(rows)
    for _ in range(20):
        trainer.train_step(iterator)
    progress = trainer.progress()
    assert progress.skipped_steps == progress.first_bad_step == 0
    trainer.train_step(iterator)
    assert trainer.progress().loss < 0.2


def test_logits():
    inputs, _ = random_rows(5)
    logits = ranking("mixed_bfloat16")(inputs)
    assert (logits.dtype, logits.shape) == (tf.float32, (5, 1))


def test_frozen_tables():
    model = ranking("float32", embedding_trainable=False)
    assert model.table_variables == []
    assert len(model.dense_variables) == 8
    assert {w.name for w in model.weights_to_save()} >= {"sparse/a", "dense/top_mlp.dense_1.bias"}


@pytest.mark.parametrize(("numerical", "features"), [(0, ("a", "b")), (2, ()), (2, ("a",))])
@pytest.mark.parametrize("interaction", ["dot_tensorflow", "cross"])
def test_models_without_a_feature_kind(numerical, features, interaction):
    config = CTRConfig(
        features, (5,) * len(features), (4,) * len(features), numerical, (4,), (3, 1), interaction
    )
    model = CTRModel(config)
    ids = tuple(tf.zeros([6, 1], tf.int32) for _ in features)
    assert model((tf.zeros([6, numerical]), ids)).shape == (6, 1)
    crossed = {"down_0", "up_0"} <= {layer.name for layer in model.submodules if layer.name}
    assert crossed == (interaction == "cross")


def test_invalid_sizes():
    """tests/recipes/test_entry_scripts.py and test_your_own_data.py have others."""
    names, cardinalities, mlps = ("a", "b"), (3, 3), ((4,), (1,))
    with pytest.raises(ValueError, match="neither numerical nor categorical"):
        CTRConfig((), (), (), 0, *mlps)
    with pytest.raises(ValueError, match=r"one --embedding_dim for all tables, got \[4, 8\]"):
        CTRConfig(names, cardinalities, (4, 8), 2, *mlps)


@pytest.mark.parametrize("num_rows", [12, 7, 2])
@pytest.mark.parametrize("loss_scale", [1.0, 8.0])
def test_accumulated_parts(num_rows, loss_scale):
    rng = np.random.default_rng(0)
    ids = tf.constant(rng.integers(0, 5, num_rows))
    x, y = (tf.constant(rng.normal(size=[num_rows, 3]), tf.float32) for _ in range(2))
    rows_seen = []

    def step(accumulate):
        dense, table = tf.Variable(tf.ones([3, 3])), tf.Variable(tf.ones([5, 3]))
        idle = tf.Variable(1.0)
        both = [
            optimizers.create("adagrad", variables, 0.5) for variables in ([dense, idle], [table])
        ]

        def loss(model, batch):
            ids, x, y = batch
            rows_seen.append(x.shape[0])
            error = (tf.matmul(x, dense) * tf.gather(table, ids) - y) ** 2
            return tf.reduce_mean(error), {"part": tf.reduce_mean(tf.cast(ids, tf.float32))}

        trainer = Trainer(
            *(None, loss, both, loss_scale),
            loss_terms=["part"],
            make_batch=lambda ticket: tuple(t[:num_rows] for t in ticket),
            num_parts=accumulate,
        )
        padded = [tf.concat([t, t], axis=0) for t in (ids, x, y)]
        trainer.train_step(iter(tf.data.Dataset.from_tensors(tuple(padded))))
        progress = trainer.progress()
        return dense.numpy(), table.numpy(), progress.loss, progress.loss_terms["part"]

    whole = step(1)
    assert not np.allclose(whole[1], 1.0)
    for got, expected in zip(step(3), whole, strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-6)
    assert None in rows_seen  # of parts, whose length is not known beforehand
