"""Run by every rank: what data_parallel.py does on several ranks is what one rank would do.

    horovodrun --gloo -np 2 python -m tests.ranks.data_parallel_worker [CASE ...]

Each case is checked on every rank against the same training on one, computed next to it.
"""

import functools
import itertools
import sys
import tempfile
import types

import distributed_embeddings as dmp
import numpy as np
import tensorflow as tf
from distributed_embeddings.collectives import World
from distributed_embeddings.collectives.horovod_modules import horovod_tensorflow
from distributed_embeddings.data_parallel.reduction import _poisoned
from distributed_embeddings.keras import keras

from nn.optim import optimizers
from nn.train.trainer import Trainer
from runtime.cluster import distributed

DIM, ROWS, LOCAL_BATCH, STEPS = 4, 6, 3, 3
ONE_RANK = World()


class Model(keras.Model):
    """A table in copies, a table of which each rank owns some columns, and a dense layer."""

    def __init__(self, world):
        super().__init__()
        self.world = world
        random = np.random.RandomState(7)
        width = DIM // world.size
        mine = slice(world.rank * width, (world.rank + 1) * width)

        def table(values):
            initial = keras.initializers.Constant(values)
            return dmp.Embedding(*values.shape, embeddings_initializer=initial)

        # Copies are only right on rank 0, until they are broadcast.
        off = 0.0 if world.is_chief else 5.0
        self.copied = table(random.normal(size=[ROWS, DIM]) + off)
        self.sliced = table(random.normal(size=[ROWS, DIM])[:, mine])
        self.head = keras.layers.Dense(
            1, kernel_initializer=keras.initializers.Constant(random.normal(size=[2 * DIM, 1]))
        )
        self.unused = table(np.zeros([2, 1]))
        self.unused.build()
        self.copied.build()
        self.sliced.build()
        self.head.build([None, 2 * DIM])
        if world.size > 1:
            self.sliced.embeddings.de_local = True

    def call(self, inputs):
        own_ids, all_ids = inputs
        copied = tf.reduce_sum(self.copied(own_ids), axis=1)
        sliced = self.exchange(tf.reduce_sum(self.sliced(all_ids), axis=1))
        return self.head(tf.concat([copied, sliced], axis=1))

    def exchange(self, columns):
        """My columns of all samples -> all columns of my samples."""
        world = self.world
        if world.size == 1:
            return columns

        @tf.custom_gradient
        def swap(columns):
            parts = tf.split(world.all_gather(columns, "forward"), world.size)
            mine = [tf.split(part, world.size)[world.rank] for part in parts]

            def backward(upstream):
                everything = world.all_gather(upstream, "backward")
                return tf.split(everything, world.size, axis=1)[world.rank]

            return tf.concat(mine, axis=1), backward

        return swap(columns)

    def whole(self):
        """Weights as one rank has them."""
        columns = self.sliced.embeddings
        parts = tf.split(self.world.all_gather(columns, "whole"), self.world.size)
        dense = [self.copied.embeddings, *self.head.weights]
        return [tf.concat(parts, axis=1).numpy(), *(variable.numpy() for variable in dense)]


def data(world):
    """Batches ((own ids, all ids), labels) of a rank; a row repeats within and between ranks."""
    random = np.random.RandomState(1)
    size = LOCAL_BATCH * distributed.current().size
    for _ in range(STEPS):
        ids = random.randint(0, ROWS, [size, 2])
        labels = random.normal(size=[size, 1]).astype(np.float32)
        part = slice(None)
        if world.size > 1:
            part = slice(world.rank * LOCAL_BATCH, (world.rank + 1) * LOCAL_BATCH)
        yield (tf.constant(ids[part]), tf.constant(ids)), tf.constant(labels[part])


def loss_of(model, batch):
    inputs, labels = batch
    return tf.reduce_mean(tf.square(model(inputs) - labels))


def train_one_rank(optimizer):
    model = Model(ONE_RANK)
    for batch in data(ONE_RANK):
        with tf.GradientTape() as tape:
            loss = loss_of(model, batch)
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        pairs = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
        optimizer.apply_gradients(pairs)
    return model.whole()


def train_one_rank_clipped(clip_norm, rate):
    """SGD with gradients clipped by the norm of the whole dense gradient."""
    model = Model(ONE_RANK)
    for batch in data(ONE_RANK):
        with tf.GradientTape() as tape:
            loss = loss_of(model, batch)
        variables = model.trainable_variables
        gradients = [
            None if g is None else tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)
        ]
        clipped, norm = tf.clip_by_global_norm(gradients, clip_norm)
        assert norm > 2 * clip_norm
        for gradient, variable in zip(clipped, variables, strict=True):
            if gradient is not None:
                variable.assign_sub(rate * gradient)
    return model.whole()


def train_fit(world, optimizer):
    model = Model(world)
    optimizer = dmp.DistributedOptimizer(optimizer)
    model.compile(optimizer=optimizer, loss="mse")
    shapes = ((tf.TensorSpec([None, 2], tf.int64),) * 2, tf.TensorSpec([None, 1]))
    rows = tf.data.Dataset.from_generator(lambda: data(world), output_signature=shapes)
    callback = dmp.BroadcastGlobalVariablesCallback(0)
    model.fit(rows, epochs=1, verbose=0, callbacks=[callback])
    assert callback.broadcast_done
    return model.whole()


def train_loop(world, optimizer, wrap_first=False, eager=False, **options):
    model = Model(world)
    dmp.broadcast_variables(model.variables, root_rank=0)

    def step(inputs, labels):
        if wrap_first:
            with dmp.DistributedGradientTape(tf.GradientTape(), **options) as tape:
                loss = loss_of(model, (inputs, labels))
        else:
            with tf.GradientTape(persistent=True) as tape:
                loss = loss_of(model, (inputs, labels))
            tape = dmp.DistributedGradientTape(tape, **options)
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        assert [g is None for g in gradients].count(True) == 1
        pairs = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
        optimizer.apply_gradients(pairs)

    run = step if eager else tf.function(step)
    for inputs, labels in data(world):
        run(inputs, labels)
    return model.whole()


def train_minimize(world, optimizer):
    model = Model(world)
    dmp.broadcast_variables(model.variables)
    optimizer = dmp.DistributedOptimizer(optimizer)
    for batch in data(world):
        variables = [v for v in model.trainable_variables if v is not model.unused.embeddings]
        optimizer.minimize(lambda batch=batch: loss_of(model, batch), variables)
    return model.whole()


def same(actual, expected):
    for mine, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-6)


OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.3, momentum=0.9),
    "adagrad": lambda: keras.optimizers.Adagrad(0.3),
    "adam": lambda: keras.optimizers.Adam(0.1),
    "legacy_sgd": lambda: keras.optimizers.legacy.SGD(0.3, momentum=0.9),
    "legacy_adagrad": lambda: keras.optimizers.legacy.Adagrad(0.3),
    "legacy_adam": lambda: keras.optimizers.legacy.Adam(0.1),
}


def check_optimizer(world, name):
    make = OPTIMIZERS[name]
    expected = train_one_rank(make())
    same(train_fit(world, make()), expected)
    same(train_loop(world, make()), expected)
    same(train_loop(world, dmp.DistributedOptimizer(make()), wrap_first=True), expected)


FUSED_OPTIMIZERS = {
    **OPTIMIZERS,
    "plain_sgd": lambda: keras.optimizers.SGD(0.3),
    "nesterov": lambda: keras.optimizers.SGD(0.3, momentum=0.9, nesterov=True),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.1),
    "rmsprop_momentum": lambda: keras.optimizers.RMSprop(0.1, momentum=0.5),
    "legacy_plain_sgd": lambda: keras.optimizers.legacy.SGD(0.3),
    "legacy_rmsprop": lambda: keras.optimizers.legacy.RMSprop(0.1),
    "legacy_rmsprop_momentum": lambda: keras.optimizers.legacy.RMSprop(0.1, momentum=0.5),
    "row_wise_adagrad": lambda: dmp.RowWiseAdagrad(0.3),
    "lazy_adam": lambda: dmp.LazyAdam(0.1),
}


class Tables(keras.Model):
    """Tables of each rank, a row-sliced one and a replicated one; a dense layer on their sums."""

    def __init__(self, world):
        super().__init__()
        random = np.random.RandomState(2)
        layers = []
        for rows in (7, 5, 16, 2):
            initial = keras.initializers.Constant(random.normal(size=[rows, DIM]))
            layers.append(dmp.Embedding(rows, DIM, initial, combiner="sum"))
        thresholds = {"data_parallel_threshold": 2 * DIM, "row_slice_threshold": 16 * DIM}
        self.tables = dmp.DistributedEmbedding(layers, world=world, **thresholds)
        self.head = keras.layers.Dense(1, kernel_initializer=keras.initializers.Constant(0.1))

    def call(self, ids):
        return self.head(0.2 * tf.concat(self.tables(ids), axis=1))  # small steps


def train_tables(world, optimizer, steps, checkpoint=None, write=False):
    """Trains with a compiled step; resumes at a checkpoint of this rank, or writes it."""
    model, random = Tables(world), np.random.RandomState(4)
    ranks = distributed.current().size
    part = slice(None)
    if world.size > 1:
        part = slice(world.rank * LOCAL_BATCH, (world.rank + 1) * LOCAL_BATCH)
    saved = tf.train.Checkpoint(model=model, optimizer=optimizer)

    @tf.function
    def step(ids, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(ids) - labels))
        if world.size > 1:
            tape = dmp.DistributedGradientTape(tape)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    model([tf.zeros([1, 3], tf.int64)] * 4)  # creates the tables
    if checkpoint and not write:
        saved.read(checkpoint)
    for number in range(max(steps) + 1):
        ids = [random.randint(0, rows, [ranks * LOCAL_BATCH, 3])[part] for rows in (7, 5, 16, 2)]
        labels = random.normal(size=[ranks * LOCAL_BATCH, 1]).astype(np.float32)[part]
        batch = [tf.constant(x) for x in ids], tf.constant(labels)
        if number in steps:
            step(*batch)
    types = [op.type for op in step.get_concrete_function(*batch).graph.get_operations()]
    assert "ResourceEmbeddingBagUpdate" in types
    if write:
        saved.write(checkpoint)
    return [*model.tables.get_weights(all_ranks=True), *model.head.get_weights()]


def check_fused_optimizers(world, names):
    """Fused steps of tables of each kind, with a save and load between them."""
    for make in (FUSED_OPTIMIZERS[name] for name in names):
        expected = train_tables(ONE_RANK, make(), range(4))
        with tempfile.TemporaryDirectory() as folder:
            place = f"{folder}/checkpoint"
            train_tables(world, dmp.DistributedOptimizer(make()), range(2), place, write=True)
            resumed = train_tables(world, dmp.DistributedOptimizer(make()), range(2, 4), place)
        same(resumed, expected)


def check_eager_and_minimize(world):
    for name in ("adam", "legacy_adam"):
        make = OPTIMIZERS[name]
        expected = train_one_rank(make())
        same(train_loop(world, make(), eager=True), expected)
        same(train_minimize(world, make()), expected)


def check_loss_scaling(world):
    """State that the inner optimizer makes for a rank's own variable is the rank's own."""
    for name in ("adam", "legacy_adam"):
        make = OPTIMIZERS[name]
        scaled = keras.mixed_precision.LossScaleOptimizer(make(), dynamic=False, initial_scale=4)
        same(train_fit(world, scaled), train_one_rank(make()))


def check_saved_model_of_tables(world):
    """A Keras SavedModel of a layer whose tables are exchanged."""
    ids = [keras.Input([1], dtype=tf.int32) for _ in range(2)]
    layers = [dmp.Embedding(rows, 4, combiner="sum") for rows in (5, 7)]
    layer = dmp.DistributedEmbedding(layers)
    model = keras.Model(ids, keras.layers.Dense(1)(tf.concat(layer(ids), axis=1)))
    batch = [tf.constant([[1], [3]])] * 2
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder, save_format="tf")
        restored = keras.models.load_model(folder)
        np.testing.assert_array_equal(restored(batch), model(batch))


def check_options(world):
    hvd = horovod_tensorflow()
    make = OPTIMIZERS["adam"]
    expected = train_one_rank(make())
    same(train_loop(world, make(), sparse_as_dense=True), expected)
    same(train_loop(world, make(), gradient_predivide_factor=2.0, op=hvd.Average), expected)
    same(train_loop(world, make(), process_set=hvd.global_process_set, groups=2), expected)
    actual = train_loop(world, make(), compression=hvd.Compression.fp16)
    for mine, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0.02, atol=0.02)
    raises(
        "op is hvd.Average or hvd.Sum",
        dmp.DistributedGradientTape,
        tf.GradientTape(),
        op=hvd.Adasum,
    )
    raises(
        "gradient_predivide_factor is for op=hvd.Average",
        dmp.DistributedGradientTape,
        tf.GradientTape(),
        op=hvd.Sum,
        gradient_predivide_factor=2.0,
    )
    lonely = types.SimpleNamespace(ranks=[0])
    raises(
        "must train together", dmp.DistributedGradientTape, tf.GradientTape(), process_set=lonely
    )


def check_gradients(world):
    """By hand: rank r's loss is (r + 1) times the sum of what it looks at."""
    r, n = world.rank, world.size
    mean = (n + 1) / 2
    hvd = horovod_tensorflow()
    copy, own, seen = tf.Variable(1.0), tf.Variable(1.0), tf.Variable(1.0)
    own.de_local = True
    table, half = tf.Variable(tf.zeros([3, 2])), tf.Variable(tf.zeros([2], tf.bfloat16))

    def gradients(**options):
        with tf.GradientTape() as tape:
            rows = tf.reduce_sum(tf.gather(table, [r, 2, 2]))
            small = tf.cast(tf.reduce_sum(half), tf.float32)
            loss = (r + 1.0) * (copy + own + seen + rows + small)
        tape = dmp.DistributedGradientTape(tape, **options)
        tape.register_local_source(seen)
        assert isinstance(tape, tf.GradientTape)
        sources = {"copy": copy, "own": [own, seen], "rows": table, "half": half}
        return tape.gradient(loss, sources)

    for run in (gradients, tf.function(gradients)):
        actual = run()
        assert float(actual["copy"]) == mean
        assert [float(g) for g in actual["own"]] == [(r + 1) / n] * 2
        assert actual["half"].dtype == tf.bfloat16 and actual["half"].numpy().tolist() == [mean] * 2
        assert isinstance(actual["rows"], tf.IndexedSlices)
        expected = np.zeros([3, 2])
        for rank in range(n):
            expected[rank] += (rank + 1) / n
            expected[2] += 2 * (rank + 1) / n
        np.testing.assert_allclose(tf.convert_to_tensor(actual["rows"]), expected, rtol=1e-6)
        actual = run(op=hvd.Sum, scale_local_gradients=False)
        assert float(actual["copy"]) == mean * n
        assert [float(g) for g in actual["own"]] == [r + 1] * 2

    with dmp.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        loss = (r + 1.0) * (copy * copy + own)
    assert float(tape.gradient(loss, copy)) == 2 * mean
    with dmp.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        loss = (r + 1.0) * (copy + own)
    (mine,), (ours,) = tape.get_local_and_global_gradients(loss, [copy, own])
    assert mine[0] is own and float(mine[1]) == (r + 1) / n
    assert ours[0] is copy and float(ours[1]) == mean

    @tf.function
    def two_in_a_step():
        with tf.GradientTape() as first:
            one = (r + 1.0) * copy
        with tf.GradientTape() as second:
            two = (r + 2.0) * copy
        first, second = map(dmp.DistributedGradientTape, (first, second))
        return first.gradient(one, copy), second.gradient(two, copy)

    assert [float(g) for g in two_in_a_step()] == [mean, mean + 1]


def raises(match, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except ValueError as error:
        assert match in str(error), str(error)
    else:
        raise AssertionError(f"no error: {match}")


def check_unreduced(world):
    """apply_gradients of gradients that were not averaged must not pass."""
    for name in ("sgd", "legacy_sgd"):
        plain = OPTIMIZERS[name]()
        optimizer = dmp.DistributedOptimizer(plain)
        assert optimizer is plain
        assert dmp.DistributedOptimizer(optimizer) is optimizer
        variable = tf.Variable([1.0])

        def step(optimizer=optimizer, variable=variable):
            with tf.GradientTape() as tape:
                loss = 3.0 * variable
            optimizer.apply_gradients(zip(tape.gradient(loss, [variable]), [variable], strict=True))

        message = "were not averaged over the 2 ranks"
        raises(message, step)
        raises(message, tf.function(step))
        optimizer.minimize(lambda variable=variable: 3.0 * variable, [variable])
        raises(message, step)  # minimize() has reduced its own gradients, not these
        raises(message, tf.function(step))
        with dmp.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = 3.0 * variable
        optimizer.apply_gradients([(tape.gradient(loss, variable) * 0.5, variable)])
        raises("has state already", dmp.DistributedOptimizer, with_state(OPTIMIZERS[name]()))
    raises(
        "backward_passes_per_step=2", dmp.DistributedOptimizer, plain, backward_passes_per_step=2
    )


def check_horovods_tape(world):
    """apply_gradients takes what Horovod's own tape has averaged, eager and in a graph."""
    hvd = horovod_tensorflow()
    for name, compiled in itertools.product(("sgd", "legacy_sgd"), (False, True)):
        optimizer = dmp.DistributedOptimizer(OPTIMIZERS[name]())
        variable = tf.Variable([1.0])

        def step(reduces, optimizer=optimizer, variable=variable):
            with tf.GradientTape() as tape:
                loss = (world.rank + 1.0) * variable
            tape = hvd.DistributedGradientTape(tape) if reduces else tape
            optimizer.apply_gradients(zip(tape.gradient(loss, [variable]), [variable], strict=True))

        raises("were not averaged", tf.function(step) if compiled else step, False)
        (tf.function(step) if compiled else step)(True)
        same([variable], [[1.0 - 0.3 * 1.5]])


def with_state(optimizer):
    variable = tf.Variable([1.0])
    optimizer.apply_gradients([(tf.constant([1.0]), variable)])
    return optimizer


def check_state_of_own_variables(world):
    """The optimizer's state of a rank's own variable is not broadcast."""
    for name in ("adam", "legacy_adam"):
        optimizer = dmp.DistributedOptimizer(OPTIMIZERS[name]())
        copy = tf.Variable([1.0], name="copy")
        own = tf.Variable([1.0], name="own")
        listed = tf.Variable([1.0], name="listed")
        own.de_local = True
        optimizer.register_local_var(listed)

        def loss(own=own, copy=copy, listed=listed):
            return (world.rank + 1.0) * (own + copy + listed)

        variables = [copy, own, listed]
        optimizer.minimize(loss, variables)
        marked = [v for v in optimizer.variables() if getattr(v, "de_local", False)]
        assert len(marked) == 4, [v.name for v in marked]
        before = [v.numpy() for v in marked]
        for variable in optimizer.variables():
            if not getattr(variable, "de_local", False) and variable.dtype.is_floating:
                variable.assign(tf.fill(variable.shape, tf.cast(world.rank, variable.dtype)))
        dmp.broadcast_variables(optimizer.variables(), root_rank=1)
        for variable in optimizer.variables():
            if not getattr(variable, "de_local", False) and variable.dtype.is_floating:
                assert np.all(variable.numpy() == 1), variable
        for variable, value in zip(marked, before, strict=True):
            np.testing.assert_array_equal(variable, value)


def check_broadcast(world):
    r = world.rank
    variables = [tf.Variable([1.0 + r, 2.0]), tf.Variable(r, dtype=tf.int64)]
    variables.append(tf.Variable([r, 1.0], dtype=tf.bfloat16))
    own = tf.Variable(tf.fill([r + 1], float(r)))
    own.de_local = True
    dmp.broadcast_variables([own, *variables], root_rank=1)
    assert variables[0].numpy().tolist() == [2.0, 2.0]
    assert variables[1].numpy() == 1 and variables[2].numpy().tolist() == [1.0, 1.0]
    assert own.numpy().tolist() == [r] * (r + 1)
    variables[1].assign(r + 10)

    @tf.function
    def within():
        dmp.broadcast_variables(variables)
        dmp.broadcast_variables(variables[:1])

    within()
    assert variables[1].numpy() == 10
    raises("one of the 2 ranks, got 2", dmp.broadcast_variables, variables, root_rank=2)
    different = [tf.Variable(tf.zeros([2 + r]))]
    raises("variable 0 is", dmp.broadcast_variables, different)


def check_float16(world):
    """A gradient of rank 1's own variable overflows: every rank skips the step.

    Rank 0 owns nothing, or an anchor without elements and a table without lookups.
    """
    keras.mixed_precision.set_global_policy("mixed_float16")
    wraps = [
        functools.partial(keras.mixed_precision.LossScaleOptimizer, initial_scale=4.0),
        dmp.DistributedOptimizer,
    ]
    for make, (inner, outer), is_table in itertools.product(
        (keras.optimizers.SGD, keras.optimizers.legacy.SGD), (wraps, wraps[::-1]), (False, True)
    ):
        optimizer = outer(inner(make(1.0)))
        anchor, own, copy = tf.Variable(tf.zeros([0])), tf.Variable([[1.0]]), tf.Variable(1.0)
        anchor.de_local = own.de_local = True
        variables = [anchor, own, copy] if is_table else [own, copy][1 - world.rank :]

        @tf.function
        def step(factor, ids, is_table=is_table, all_=(anchor, own, copy), optimizer=optimizer,
                 variables=variables):  # fmt: skip
            anchor, own, copy = all_
            optimizer.minimize(
                lambda: (
                    tf.reduce_sum(tf.gather(own, ids) if is_table else own) * factor
                    + copy
                    + tf.reduce_sum(anchor)
                ),
                variables,
            )

        for overflows in (True, False):
            factor = np.inf if overflows and world.rank == 1 else 1.0
            step(tf.constant(factor), tf.constant([0] * world.rank, tf.int32))
            assert copy.numpy() == (1.0 if overflows else 0.0), overflows
            moves = world.rank == 1 and not overflows
            assert own.numpy()[0, 0] == (1.0 - 1.0 / world.size if moves else 1.0), overflows
            assert float(optimizer.loss_scale) == 2.0
    keras.mixed_precision.set_global_policy("float32")
    poison = tf.constant(np.nan)
    empty = tf.IndexedSlices(tf.zeros([0, 2]), tf.zeros([0], tf.int32), tf.constant([3, 2]))
    assert np.isnan(_poisoned(empty, poison).values.numpy()).all()
    assert _poisoned(empty, poison).values.shape == [1, 2]
    assert _poisoned(empty, tf.constant(0.0)).values.shape == [0, 2]


def check_global_clipnorm(world):
    """The norm is that of all ranks' gradients, in compiled functions and in eager mode."""
    clip_norm, rate = 0.5, 0.3
    expected = train_one_rank_clipped(clip_norm, rate)
    for kind in (keras.optimizers.SGD, keras.optimizers.legacy.SGD):

        def make(kind=kind):
            return kind(rate, global_clipnorm=clip_norm)

        same(train_fit(world, make()), expected)
        same(train_loop(world, dmp.DistributedOptimizer(make())), expected)
        same(train_minimize(world, make()), expected)
        scaled = keras.mixed_precision.LossScaleOptimizer(make(), dynamic=False, initial_scale=8)
        same(train_fit(world, scaled), expected)
        raises(
            "clipnorm=0.5: expected no clipping by variable, got",
            train_fit,
            world,
            kind(rate, clipnorm=clip_norm),
        )


def check_dynamic_loss_scale(world):
    """The overflow of rank 1's own table halves the scale of both, which skip the step."""
    own, copied = tf.Variable(1.0), tf.Variable(1.0)
    own.de_local = True
    both = [optimizers.create("sgd", [v], 0.5) for v in (copied, own)]
    trainer = Trainer(
        None, lambda _, batch: (batch * own + copied, {}), both, "dynamic", world=world
    )
    iterator = iter(tf.data.Dataset.from_tensor_slices([1.0 + 1e38 * world.rank, 1.0]))
    for weights in ((1.0, 1.0), (0.75, 0.5)):
        trainer.train_step(iterator)
        assert (own.numpy(), copied.numpy()) == weights
        progress = trainer.progress()
        assert (progress.loss_scale, progress.skipped_steps) == (2.0**14, 1)


def check_saved_model(world):
    """A model that was compiled with the wrapped optimizer is saved as one with the plain one."""
    model = keras.Sequential([keras.layers.Dense(1, input_shape=[2])])
    model.compile(optimizer=dmp.DistributedOptimizer(keras.optimizers.Adam(0.5)), loss="mse")
    model.fit(tf.ones([2, 2]), tf.ones([2, 1]), verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        loaded = keras.models.load_model(f"{folder}/model.keras")
    assert type(loaded.optimizer) is keras.optimizers.Adam
    same(
        [v.numpy() for v in loaded.optimizer.variables],
        [v.numpy() for v in model.optimizer.variables],
    )


CASES = {
    "gradients": check_gradients,
    "horovods_tape": check_horovods_tape,
    "eager_and_minimize": check_eager_and_minimize,
    "fused_optimizers": functools.partial(
        check_fused_optimizers, names=("nesterov", "rmsprop_momentum", "row_wise_adagrad")
    ),
    "all_fused_optimizers": functools.partial(check_fused_optimizers, names=FUSED_OPTIMIZERS),
    "options": check_options,
    "unreduced": check_unreduced,
    "state_of_own_variables": check_state_of_own_variables,
    "broadcast": check_broadcast,
    "float16": check_float16,
    "dynamic_loss_scale": check_dynamic_loss_scale,
    "global_clipnorm": check_global_clipnorm,
    "saved_model": check_saved_model,
    "loss_scaling": check_loss_scaling,
    "saved_model_of_tables": check_saved_model_of_tables,
    **{name: lambda world, name=name: check_optimizer(world, name) for name in OPTIMIZERS},
}


def main(names):
    world = distributed.connect(timeout_s=60)
    for name in names or CASES:
        CASES[name](world)
        print(f"rank {world.rank} of {world.size}: {name} ok", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
