"""Keras' optimizers on tables: their fused steps are those that they take of plain Keras layers."""

import distributed_embeddings as dmp
import numpy as np
import pytest
import tensorflow as tf
from distributed_embeddings.keras import keras
from distributed_embeddings.ops import kernels
from distributed_embeddings.optimizers import fused_steps
from embedding_testing.fake_world import FakeWorld

new, legacy = keras.optimizers, keras.optimizers.legacy
SCHEDULE = keras.optimizers.schedules.PolynomialDecay(0.3, 5, 0.05)
OPTIMIZERS = {
    "sgd": lambda: new.SGD(0.3),
    "momentum": lambda: new.SGD(0.3, momentum=0.9),
    "nesterov": lambda: new.SGD(0.3, momentum=0.8, nesterov=True),
    "adagrad": lambda: new.Adagrad(0.3, epsilon=1e-2),
    "adam": lambda: new.Adam(0.05),
    "adamw": lambda: new.AdamW(0.05, weight_decay=0.1),
    "rmsprop": lambda: new.RMSprop(0.05, epsilon=1e-2),
    "rmsprop_momentum": lambda: new.RMSprop(0.05, momentum=0.7, epsilon=1e-2),
    "schedule": lambda: new.Adam(SCHEDULE),
    "averages": lambda: new.SGD(0.3, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
    "legacy_sgd": lambda: legacy.SGD(0.3),
    "legacy_momentum": lambda: legacy.SGD(0.3, momentum=0.9),
    "legacy_nesterov": lambda: legacy.SGD(0.3, momentum=0.8, nesterov=True),
    "legacy_adagrad": lambda: legacy.Adagrad(0.3, epsilon=1e-2),
    "legacy_adam": lambda: legacy.Adam(0.05),
    "legacy_rmsprop": lambda: legacy.RMSprop(0.05, epsilon=1e-2),
    "legacy_rmsprop_momentum": lambda: legacy.RMSprop(0.05, momentum=0.7, epsilon=1e-2),
    "legacy_schedule": lambda: legacy.Adagrad(SCHEDULE),
    "legacy_decay": lambda: legacy.SGD(0.3, decay=0.5),
}
UNFUSED = {
    "amsgrad": lambda: new.Adam(0.05, amsgrad=True),
    "centered": lambda: new.RMSprop(0.05, centered=True),
    "adadelta": lambda: new.Adadelta(0.5),
    "legacy_amsgrad": lambda: legacy.Adam(0.05, amsgrad=True),
    "legacy_centered": lambda: legacy.RMSprop(0.05, centered=True),
}
SIZES, HOTNESS, DIM, BATCH, STEPS = ((9, 7), (3, 1), 4, 6, 4)
UPDATE = "ResourceEmbeddingBagUpdate"


@pytest.fixture(autouse=True)
def _compiled():
    reason = kernels.reason_for_fallback()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def fused_kinds(monkeypatch):
    """Kinds of the fused steps that are taken or traced."""
    kinds, take = [], fused_steps.Step.take

    def recorded(self, *args):
        kinds.append(self.kind)
        return take(self, *args)

    monkeypatch.setattr(fused_steps.Step, "take", recorded)
    return kinds


def initial_values():
    random = np.random.default_rng(3)
    tables = [random.normal(size=[rows, DIM]).astype(np.float32) for rows in SIZES]
    return tables, random.normal(size=[len(SIZES) * DIM, 1]).astype(np.float32)


class Plain(keras.Model):
    """Keras' own layers; a dense layer on the sums of their rows."""

    def __init__(self):
        super().__init__()
        tables, kernel = initial_values()
        self.tables = [
            keras.layers.Embedding(*table.shape, embeddings_initializer=constant(table))
            for table in tables
        ]
        self.dense = keras.layers.Dense(1, kernel_initializer=constant(kernel))

    def call(self, ids):
        vectors = [layer(x) for layer, x in zip(self.tables, ids, strict=True)]
        return self.dense(tf.concat([tf.reduce_sum(v, axis=1) for v in vectors], axis=1))

    def whole(self):
        return [*(layer.embeddings.numpy() for layer in self.tables), *self.dense.get_weights()]


class Fused(keras.Model):
    """This package's tables in one variable; the same dense layer."""

    def __init__(self, **options):
        super().__init__()
        tables, kernel = initial_values()
        layers = [
            dmp.Embedding(*table.shape, embeddings_initializer=constant(table), combiner="sum")
            for table in tables
        ]
        self.tables = dmp.DistributedEmbedding(layers, **options)
        self.dense = keras.layers.Dense(1, kernel_initializer=constant(kernel))

    def call(self, ids):
        return self.dense(tf.concat(self.tables(list(ids)), axis=1))

    def whole(self):
        return [*self.tables.get_weights(), *self.dense.get_weights()]


def constant(values):
    return keras.initializers.Constant(values)


def batches(repeats: bool = True):
    """Batches ((ids of each table), labels); rows without an id in every one."""
    random = np.random.default_rng(1)
    for _ in range(STEPS):
        if repeats:
            ids = [
                random.integers(0, rows, [BATCH, h]) for rows, h in zip(SIZES, HOTNESS, strict=True)
            ]
        else:
            ids = [
                random.permutation(rows)[:h].reshape([1, h])
                for rows, h in zip(SIZES, HOTNESS, strict=True)
            ]
        labels = random.normal(size=[len(ids[0]), 1]).astype(np.float32)
        yield tuple(tf.constant(x) for x in ids), tf.constant(labels)


def train_tape(model, optimizer, eager=False, repeats=True, wrap=lambda tape: tape):
    """Trains with a tape; returns the types of the operations of a step."""

    def step(ids, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(ids) - labels))
        variables = model.trainable_variables
        gradients = wrap(tape).gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))

    run = step if eager else tf.function(step)
    for batch in batches(repeats):
        run(*batch)
    if eager:
        return []
    return [op.type for op in run.get_concrete_function(*batch).graph.get_operations()]


def train_fit(model, optimizer):
    model.compile(optimizer, "mse")
    data = list(batches())
    ids = [np.concatenate([batch[0][t] for batch in data]) for t in range(len(SIZES))]
    labels = np.concatenate([batch[1] for batch in data])
    model.fit(tuple(ids), labels, batch_size=BATCH, shuffle=False, verbose=0)


def same(actual, expected, tolerance=2e-5):
    for mine, theirs in zip(actual.whole(), expected.whole(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


# Others: a formula of these without momentum, decay or schedule; more of them in tests below.
@pytest.mark.quick(
    *("nesterov", "adagrad", "adamw", "rmsprop_momentum", "schedule", "averages"),
    *("legacy_nesterov", "legacy_adam", "legacy_rmsprop_momentum", "legacy_schedule"),
    "legacy_decay",
)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_tape(name):
    expected, actual = Plain(), Fused()
    plain, fused = OPTIMIZERS[name](), OPTIMIZERS[name]()
    train_tape(expected, plain)
    operations = train_tape(actual, fused)
    same(actual, expected)
    assert operations.count(UPDATE) == 1
    if name not in ("sgd", "averages"):  # of new SGD without momentum the slot stays zero
        check_state(fused, plain)


def check_state(actual, expected):
    """The slots of a variable of two tables are those of the tables' variables."""
    mine = [v.numpy() for v in actual.variables() if v.shape.rank == 2]
    theirs = [v.numpy() for v in expected.variables() if v.shape.rank == 2]

    def parts(arrays, rows):
        return sorted((a for a in arrays if len(a) == rows), key=lambda a: a.sum())

    split = [part for a in mine if len(a) == sum(SIZES) for part in np.split(a, [SIZES[0]])]
    for rows in SIZES:
        for one, other in zip(parts(split, rows), parts(theirs, rows), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.quick("adam-*", "averages-<lambda>", "legacy_adagrad-DistributedOptimizer")
@pytest.mark.parametrize("wrap", [lambda optimizer: optimizer, dmp.DistributedOptimizer])
@pytest.mark.parametrize("name", ["adam", "averages", "legacy_adagrad"])
def test_fit(name, wrap, fused_kinds):
    expected, actual = Plain(), Fused()
    train_fit(expected, OPTIMIZERS[name]())
    train_fit(actual, wrap(OPTIMIZERS[name]()))
    same(actual, expected)
    assert fused_kinds


@pytest.mark.parametrize("name", ["nesterov", "rmsprop", "legacy_adam"])
def test_eager(name, fused_kinds):
    expected, actual = Plain(), Fused()
    train_tape(expected, OPTIMIZERS[name](), eager=True)
    train_tape(actual, OPTIMIZERS[name](), eager=True, wrap=dmp.DistributedGradientTape)
    same(actual, expected)
    assert fused_kinds


@pytest.mark.parametrize("name", UNFUSED)
def test_unfused_optimizers(name):
    expected, actual = Plain(), Fused()
    train_tape(expected, UNFUSED[name]())
    assert UPDATE not in train_tape(actual, UNFUSED[name]())
    same(actual, expected)


def test_subclass_with_its_own_formula():
    class Doubled(new.SGD):
        def update_step(self, gradient, variable):
            variable.assign_sub(2 * self.learning_rate * tf.convert_to_tensor(gradient))

    expected, actual = Plain(), Fused()
    train_tape(expected, Doubled(0.1))
    assert UPDATE not in train_tape(actual, Doubled(0.1))
    same(actual, expected)


def test_tables_without_compiled_operations():
    model = Fused(use_custom_kernel=False)
    assert UPDATE not in train_tape(model, new.SGD(0.3))


@pytest.mark.parametrize("kind", [new.Adagrad, legacy.Adagrad])
@pytest.mark.parametrize(
    "clipping", [{"clipvalue": 0.02}, {"clipnorm": 0.1}, {"global_clipnorm": 0.1}]
)
def test_clipping(kind, clipping):
    """Ids are distinct: Keras clips the gradients of a row that occurs twice one by one."""
    expected, actual = Plain(), Fused()
    if "clipnorm" in clipping:  # by variable: two tables in one are another variable
        expected, actual = (Alone(layer) for layer in (keras.layers.Embedding, dmp.Embedding))
    train_tape(expected, kind(0.3, **clipping), repeats=False)
    assert UPDATE in train_tape(actual, kind(0.3, **clipping), repeats=False)
    same(actual, expected)


class Alone(keras.Model):
    """One layer of a class, without combiner."""

    def __init__(self, layer):
        super().__init__()
        self.table = layer(SIZES[0], DIM, embeddings_initializer=constant(initial_values()[0][0]))

    def call(self, ids):
        return tf.reduce_sum(self.table(ids[0]), axis=[1, 2])[:, tf.newaxis]

    def whole(self):
        return self.table.get_weights()


@pytest.mark.parametrize("name", ["adam", "legacy_momentum"])
def test_layer_without_combiner(name):
    """Repeated rows, which the update adds up in place of Keras."""
    expected, actual = (Alone(layer) for layer in (keras.layers.Embedding, dmp.Embedding))
    train_tape(expected, OPTIMIZERS[name]())
    assert UPDATE in train_tape(actual, OPTIMIZERS[name]())
    same(actual, expected)


@pytest.mark.parametrize("name", ["adam", "legacy_adagrad"])
def test_several_lookups(name):
    """A layer that is called twice in a step has one gradient of two lookups."""

    def twice(base):
        class Twice(base):
            def call(self, ids):
                return super().call(ids) + super().call([(x + 1) % 7 for x in ids])

        return Twice()

    expected, actual = twice(Plain), twice(Fused)
    train_tape(expected, OPTIMIZERS[name]())
    assert UPDATE in train_tape(actual, OPTIMIZERS[name]())
    same(actual, expected)


@pytest.mark.parametrize("name", ["adam", "legacy_rmsprop"])
def test_loss_scaling(name, fused_kinds):
    def scaled():
        optimizer = OPTIMIZERS[name]()
        return keras.mixed_precision.LossScaleOptimizer(optimizer, initial_scale=64)

    expected, actual = Plain(), Fused()
    train_fit(expected, scaled())
    train_fit(actual, scaled())
    same(actual, expected)
    assert fused_kinds


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("rmsprop", "model.keras"),  # with Keras, that has no state of legacy optimizers
        ("adam", "checkpoint"),
        ("legacy_rmsprop_momentum", "checkpoint"),
    ],
)
def test_saved_training(tmp_path, name, file):
    """A training that is saved and loaded resumes with the optimizer's state."""

    def functional():
        ids = [keras.Input([hotness], dtype=tf.int64) for hotness in HOTNESS]
        layers = [dmp.Embedding(rows, DIM, "ones", combiner="sum") for rows in SIZES]
        vectors = keras.layers.Concatenate()(dmp.DistributedEmbedding(layers)(ids))
        return keras.Model(ids, keras.layers.Dense(1, kernel_initializer="ones")(vectors))

    whole, first = functional(), functional()
    train_fit(whole, optimizer := OPTIMIZERS[name]())
    whole.compile(optimizer, "mse")
    train_fit(whole, optimizer)
    train_fit(first, optimizer := OPTIMIZERS[name]())
    if file == "model.keras":
        first.save(tmp_path / file)
        second = keras.models.load_model(tmp_path / file)
        train_fit(second, second.optimizer)
    else:
        tf.train.Checkpoint(model=first, optimizer=optimizer).write(tmp_path / file)
        second, optimizer = functional(), OPTIMIZERS[name]()
        status = tf.train.Checkpoint(model=second, optimizer=optimizer).read(tmp_path / file)
        train_fit(second, optimizer)
        status.assert_consumed()
    for mine, theirs in zip(second.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)


# ---- the package's own optimizers ----------------------------------------------------------------


@pytest.mark.parametrize("compiled", [True, False])
def test_row_wise_adagrad(compiled):
    table = dmp.Embedding(5, 2, "ones", use_custom_kernel=compiled, combiner="sum")
    table.build()
    optimizer, weight = dmp.RowWiseAdagrad(0.5, 0.25, epsilon=0.5), tf.Variable([[1.0, 1.0]])
    variables = [table.embeddings, weight]

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            vectors = table(tf.constant([[1, 1], [3, 1]]))
            loss = tf.reduce_sum(vectors * [[1.0, 2.0], [3.0, 4.0]]) + tf.reduce_sum(weight * 2.0)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    step()
    gradients = {1: np.array([5.0, 8.0]), 3: np.array([3.0, 4.0])}
    expected, sums = np.ones([5, 2]), np.full(5, 0.25)
    for row, g in gradients.items():
        sums[row] += np.mean(g**2)
        expected[row] -= 0.5 * g / (np.sqrt(sums[row]) + 0.5)
    np.testing.assert_allclose(table.embeddings, expected, rtol=1e-6)
    np.testing.assert_allclose(optimizer._accumulators[0], sums, rtol=1e-6)
    np.testing.assert_allclose(
        weight, np.full([1, 2], 1 - 0.5 * 2 / np.sqrt(4.25 + 0.5)), rtol=1e-6
    )


@pytest.mark.parametrize("compiled", [True, False])
def test_lazy_adam(compiled):
    """A row moves as with Adam, in the steps in which it occurs; others stay."""
    model = Fused(use_custom_kernel=compiled)
    model([tf.zeros([1, h], tf.int64) for h in HOTNESS])
    before = model.tables.get_weights()
    one = ((tf.constant([[1, 1, 2]]), tf.constant([[3]])), tf.constant([[0.5]]))
    lazy, adam = dmp.LazyAdam(0.05), Plain()
    model.compile(lazy, "mse")
    model.train_on_batch(*one)
    adam.compile(new.Adam(0.05), "mse")
    adam.train_on_batch(*one)
    same(model, adam)
    first = [table.copy() for table in model.tables.get_weights()]
    model.train_on_batch((tf.constant([[5, 5, 2]]), tf.constant([[3]])), tf.constant([[0.5]]))
    after = model.tables.get_weights()
    moved = [
        np.flatnonzero((a != b).any(axis=1)).tolist() for a, b in zip(after, first, strict=True)
    ]
    assert moved == [[2, 5], [3]]
    np.testing.assert_array_equal(*(np.delete(w[0], [1, 2, 5], axis=0) for w in (after, before)))


def test_own_optimizers_in_a_saved_model(tmp_path):
    for optimizer in (dmp.RowWiseAdagrad(0.1), dmp.LazyAdam(0.1)):
        ids = keras.Input([2], dtype=tf.int64)
        model = keras.Model(
            ids, dmp.DistributedEmbedding([dmp.Embedding(5, 1, combiner="sum")])(ids)
        )
        model.compile(optimizer, "mse")
        model.fit(tf.constant([[1, 2]]), tf.constant([[1.0]]), verbose=0)
        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        assert type(loaded.optimizer) is type(optimizer)
        for mine, theirs in zip(loaded.optimizer.variables(), optimizer.variables(), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_errors():
    with pytest.raises(ValueError, match="expected amsgrad=False"):
        dmp.LazyAdam(amsgrad=True)
    layer = dmp.DistributedEmbedding(
        [dmp.Embedding(8, 4)], column_slice_threshold=16, world=FakeWorld(0, 2, None)
    )
    layer.build(None)
    with pytest.raises(ValueError, match="expected tables of whole rows"):
        dmp.RowWiseAdagrad().build(layer.trainable_variables)
