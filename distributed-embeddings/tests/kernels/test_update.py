"""The update of a table by the gradients of its embedding bags, against float64."""

import ctypes

import numpy as np
import pytest
import tensorflow as tf
from distributed_embeddings.exchange.bag_gradients import BagGradient, look_up, record_lookups
from distributed_embeddings.ops import embedding_bag, kernels
from distributed_embeddings.ops.embedding_bag import Bags, Use

ROWS = 40
SCALARS = {"factor": 0.5, "rate": 0.1, "kept": 0.9, "epsilon": 1e-3, "beta1": 0.8, "beta2": 0.95}
NUM_SLOTS = {"sgd": 0, "adagrad": 1, "rowwise_adagrad": 1, "lazy_adam": 2, "adam": 2}
# Also with attributes: the formulas of Keras' optimizers.
KERAS = [
    ("adagrad", 1, {"epsilon_in_root": True}),
    ("momentum", 1, {}),
    ("momentum", 1, {"all_rows": True}),
    ("nesterov", 1, {"all_rows": True}),
    ("rmsprop", 1, {"all_rows": True}),
    ("rmsprop", 1, {"all_rows": True, "epsilon_in_root": True}),
    ("rmsprop", 2, {"epsilon_in_root": True}),
    ("rmsprop", 2, {"all_rows": True, "epsilon_in_root": True}),
]
DTYPES = (tf.float32, tf.float16, tf.bfloat16)
EPSILON = {tf.float32: 2.0**-20, tf.float16: 2.0**-10, tf.bfloat16: 2.0**-7}


@pytest.fixture
def generator():
    return np.random.default_rng(5)


def reference(weights, slots, optimizer, uses, all_rows=False, epsilon_in_root=False):
    """Returns the weights and slots after a step, in float64, and the rows that moved."""
    weights = np.asarray(weights, np.float64).copy()
    slots = [np.asarray(slot, np.float64).copy() for slot in slots]
    total, touched = np.zeros_like(weights), np.zeros(len(weights), bool)
    for bags, gradient in uses:
        columns, ids = bags.columns.values(), np.asarray(bags.ids)
        factors = np.ones(ids.shape) if bags.weights is None else np.asarray(bags.weights)
        gradient = np.asarray(tf.cast(gradient, tf.float64))
        gradient = gradient.reshape([-1, len(bags.hotness), weights.shape[1]])
        for sample, per_column in enumerate(gradient):
            start = 0
            for (hotness, offset, _, mean), g in zip(
                zip(*columns, strict=True), per_column, strict=True
            ):
                where = (sample, slice(start, start + hotness))
                if bags.splits is not None:
                    where = slice(bags.splits[sample], bags.splits[sample + 1])
                rows = ids[where] + offset
                scale = factors[where] / (max(len(rows), 1) if mean else 1)
                np.add.at(total, rows, scale[:, np.newaxis] * g)
                touched[rows] = True
                start += hotness
    g, s = total * SCALARS["factor"], SCALARS
    moved = np.ones_like(touched) if optimizer == "adam" or all_rows else touched

    def root(squares):
        inside, outside = (s["epsilon"], 0) if epsilon_in_root else (0, s["epsilon"])
        return np.sqrt(squares + inside) + outside

    def advance(slot, beta, values):
        slot[moved] = beta * slot[moved] + values[moved]

    if optimizer == "sgd":
        step = g
    elif optimizer in ("momentum", "nesterov"):
        advance(slots[0], s["beta1"], -s["rate"] * g)
        step = -slots[0] / s["rate"]
        if optimizer == "nesterov":
            step = s["beta1"] * step + g
    elif optimizer == "rmsprop":
        advance(slots[0], s["beta2"], (1 - s["beta2"]) * g**2)
        step = g / root(slots[0])
        if len(slots) == 2:
            advance(slots[1], s["beta1"], s["rate"] * step)
            step = slots[1] / s["rate"]
    elif "adagrad" in optimizer:
        squares = np.mean(g**2, axis=1) if optimizer == "rowwise_adagrad" else g**2
        slots[0] += squares
        divisor = root(slots[0])
        step = g / (divisor[:, np.newaxis] if divisor.ndim == 1 else divisor)
    else:
        for slot, beta, value in ((slots[0], s["beta1"], g), (slots[1], s["beta2"], g**2)):
            advance(slot, beta, (1 - beta) * value)
        step = slots[0] / root(slots[1])
    weights[moved] = s["kept"] * weights[moved] - s["rate"] * step[moved]
    return weights, slots, moved


def make_uses(generator, dim: int, kind: str, dtype=tf.float32) -> list[Use]:
    """Lookups of one step: repeated ids, rows without any, empty bags."""

    def use(bags):
        samples = len(bags.ids) if bags.splits is None else len(bags.splits) - 1
        shape = [samples, len(bags.hotness) * dim]
        return bags, tf.cast(generator.normal(size=shape), dtype)

    two_tables = ((3, 1, 2), (0, 0, 25), (25, 25, 15), (False, False, False))
    low, high = generator.integers(0, 20, [60, 4]), generator.integers(0, 12, [60, 2])
    fixed = use(Bags(tf.constant(np.concatenate([low, high], axis=1)), *two_tables))
    if kind == "fixed":
        return [fixed]
    splits = tf.constant([0, 0, 5, 6, 6, 90, 90], tf.int64)
    ids = tf.constant(generator.integers(0, ROWS - 3, 90))
    ragged = use(Bags.single(ids, ROWS, True, splits))
    factors = tf.constant(generator.normal(size=90), tf.float32)
    ids = tf.constant(generator.integers(0, 3, 90))
    weighted = use(Bags.single(ids, ROWS, splits=splits)._replace(weights=factors))
    return [ragged, fixed, weighted]


@pytest.mark.parametrize("dim", [1, 8, 16, 17, 128, 200])
@pytest.mark.parametrize("kind", ["fixed", "several"])
@pytest.mark.parametrize("optimizer", NUM_SLOTS)
def test_optimizers(isa, generator, optimizer, kind, dim):
    check_update(generator, optimizer, kind, dim, tf.float32, tf.float32)


@pytest.mark.parametrize("optimizer", NUM_SLOTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("gradient_dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_dtypes(isa, generator, optimizer, dtype, gradient_dtype):
    check_update(generator, optimizer, "several", 20, dtype, gradient_dtype)


@pytest.mark.parametrize(("optimizer", "num_slots", "attributes"), KERAS)
@pytest.mark.parametrize("dim", [8, 17])
def test_formulas_of_keras(isa, generator, optimizer, num_slots, attributes, dim):
    arguments = (optimizer, "several", dim, tf.float32, tf.float32, num_slots)
    check_update(generator, *arguments, **attributes)


@pytest.mark.parametrize("kept", [0.9, 1.0])
def test_rows_without_ids_of_rmsprop(isa, generator, monkeypatch, kept):
    """Without weight decay only the slot is written."""
    monkeypatch.setitem(SCALARS, "kept", kept)
    arguments = ("rmsprop", "several", 17, tf.float32, tf.float32, 1)
    check_update(generator, *arguments, all_rows=True)


def check_update(
    generator, optimizer, kind, dim, dtype, gradient_dtype, num_slots=None, **attributes
):
    table = tf.Variable(tf.cast(generator.normal(size=[ROWS, dim]), dtype))
    shape = [ROWS] if optimizer == "rowwise_adagrad" else [ROWS, dim]
    num_slots = NUM_SLOTS[optimizer] if num_slots is None else num_slots
    slots = [tf.Variable(generator.random(shape), dtype=tf.float32) for _ in range(num_slots)]
    uses = make_uses(generator, dim, kind, gradient_dtype)
    before = table.numpy()
    exact = tf.cast(table, tf.float64)
    expected, expected_slots, moved = reference(exact, slots, optimizer, uses, **attributes)
    scalars = tf.constant(list(SCALARS.values()))
    embedding_bag.update(table, slots, optimizer, scalars, uses, **attributes)
    assert moved.all() == (optimizer == "adam" or attributes.get("all_rows", False))
    np.testing.assert_array_equal(table.numpy()[~moved], before[~moved])
    error = np.abs(tf.cast(table, tf.float64) - expected)
    assert np.all(error <= EPSILON[dtype] * (np.abs(expected) + 2))
    for slot, wanted in zip(slots, expected_slots, strict=True):
        np.testing.assert_allclose(slot, wanted, rtol=1e-5, atol=1e-6)


RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


class Threads(ctypes.Structure):
    """embedding_bag_threads: tasks run one after the other, in a random order."""

    _fields_ = [("run", RUN), ("pool", ctypes.c_void_p), ("num_threads", ctypes.c_int64)]

    def __init__(self, num_threads: int):
        def run(_, num_tasks, task, argument):
            for number in np.random.default_rng(num_threads).permutation(num_tasks):
                TASK(task)(argument, int(number))

        super().__init__(RUN(run), None, num_threads)


POINTER, LONG, INT, FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_float


class Table(ctypes.Structure):
    _fields_ = [("values", POINTER), ("rows", LONG), ("dim", LONG), ("dtype", INT)]


class Column(ctypes.Structure):
    _fields_ = [("hotness", LONG), ("row_offset", LONG), ("num_rows", LONG), ("mean", INT)]


class RawUse(ctypes.Structure):
    _fields_ = [
        *[("ids", POINTER), ("id_bytes", INT), ("num_ids", LONG), ("num_samples", LONG)],
        *[("splits", POINTER), ("weights", POINTER), ("columns", ctypes.POINTER(Column))],
        *[("num_columns", LONG), ("gradient", POINTER)],
    ]


class RawOptimizer(ctypes.Structure):
    _fields_ = [
        *[("kind", INT), ("slots", POINTER * 2), ("gradient_factor", FLOAT), ("rate", FLOAT)],
        *[("kept", FLOAT), ("epsilon", FLOAT), ("beta1", FLOAT), ("beta2", FLOAT)],
        *[("all_rows", INT), ("epsilon_in_root", INT)],
    ]


def raw_update(library, table, ids, gradient, num_threads: int) -> None:
    """Plain gradient descent by the C interface, one id per bag."""
    threads = Threads(num_threads)
    column = Column(1, 0, len(table), 0)
    use = RawUse(
        *(ids.ctypes.data, 8, ids.size, ids.size, None, None, ctypes.pointer(column), 1),
        gradient.ctypes.data,
    )
    raw_table = Table(table.ctypes.data, *table.shape, 0)
    optimizer = RawOptimizer(0, (None, None), 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0, 0)
    library.embedding_bag_cpu_workspace.restype = ctypes.c_int64
    size = library.embedding_bag_cpu_workspace(
        ctypes.byref(use), ctypes.c_int64(1), ctypes.byref(threads)
    )
    workspace = np.zeros(size // 8 + 1, np.int64)
    error = library.embedding_bag_cpu_update(
        ctypes.byref(raw_table),
        ctypes.byref(use),
        ctypes.c_int64(1),
        0,
        ctypes.byref(optimizer),
        ctypes.c_void_p(workspace.ctypes.data),
        ctypes.byref(threads),
    )
    assert error == 0


def test_same_bits_with_any_number_of_threads(library, generator):
    ids = np.floor(np.exp(generator.random(60_000) * np.log(5_000))).astype(np.int64)
    gradient = generator.normal(size=[len(ids), 24]).astype(np.float32)
    start = generator.normal(size=[5_001, 24]).astype(np.float32)
    results = []
    for num_threads in (1, 2, 3, 16):
        table = start.copy()
        raw_update(library, table, ids, gradient, num_threads)
        results.append(table)
    expected = start.astype(np.float64)
    np.subtract.at(expected, ids, gradient)
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-3)
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_more_than_2_31_elements(library):
    """Pages of zeros that are never touched take no memory."""
    rows = 2**31 // 16 + 1000
    table = np.zeros([rows, 16], np.float32)
    ids = np.array([rows - 1, 5, rows - 1, rows - 500], np.int64)
    raw_update(library, table, ids, np.ones([4, 16], np.float32), 2)
    expected = {rows - 1: -2, 5: -1, rows - 500: -1, rows - 2: 0, 4: 0}
    for row, value in expected.items():
        np.testing.assert_array_equal(table[row], np.full(16, value))


def test_tensors_read_before(library):
    """A tensor that was read from a variable keeps its values."""
    table, slot = tf.Variable(tf.ones([4, 2])), tf.Variable(tf.ones([4, 2]))
    read = [table.read_value(), slot.read_value()]
    use = (Bags.single(tf.constant([[1]]), 4), tf.ones([1, 2]))
    embedding_bag.update(table, [slot], "adagrad", tf.ones([6]), [use])
    for tensor, variable in zip(read, (table, slot), strict=True):
        np.testing.assert_array_equal(tensor, np.ones([4, 2]))
        assert not np.array_equal(variable[1], [1, 1])


def test_bad_id_leaves_table(library):
    table = tf.Variable(tf.ones([4, 2]))
    use = (Bags.single(tf.constant([[1], [4]]), 4), tf.ones([2, 2]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="not in .0, rows of its table"):
        embedding_bag.update(table, [], "sgd", tf.ones([6]), [use])
    np.testing.assert_array_equal(table, np.ones([4, 2]))


@pytest.mark.parametrize("slots", [[], [[4, 3]], [[4]]])
def test_slots_that_do_not_fit(library, slots):
    table = tf.Variable(tf.ones([4, 2]))
    variables = [tf.Variable(tf.ones(shape)) for shape in slots]
    use = (Bags.single(tf.constant([[1]]), 4), tf.ones([1, 2]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="slot"):
        embedding_bag.update(table, variables, "adagrad", tf.ones([6]), [use])


@pytest.mark.parametrize("in_graph", [False, True])
def test_recorded_lookups(library, in_graph):
    """Two lookups and a gather of one variable are one gradient; another variable has its own."""
    table, other = tf.Variable(tf.ones([5, 2])), tf.Variable(tf.ones([3, 2]))
    bags = [Bags.single(tf.constant(ids), 5) for ids in ([[1], [2]], [[2], [4]])]

    def step():
        with (
            tf.GradientTape(watch_accessed_variables=False) as tape,
            record_lookups(tape, [table]) as lookups,
        ):
            tape.watch([table, other])
            outputs = [look_up(table, b, tf.float32) for b in bags]
            outputs += [
                tf.gather(table, [0, 0]),
                look_up(other, Bags.single(tf.constant([[2]]), 3), tf.float32),
            ]
            loss = tf.add_n([tf.reduce_sum(output) for output in outputs])
        gradients = lookups.gradient(loss, [table, other])
        assert isinstance(gradients[0], BagGradient) and len(gradients[0].uses) == 3
        summed = gradients[0].scaled(2.0).summed()
        gradients[0].update("sgd", [], 0.5, 1.0, 0.0, 0.0, 0.0)
        return summed, gradients[1]

    summed, own = (tf.function(step) if in_graph else step)()
    np.testing.assert_array_equal(summed.indices, [0, 1, 2, 4])
    np.testing.assert_array_equal(summed.values[:, 0], [4, 2, 4, 2])
    np.testing.assert_array_equal(table[:, 0], [0, 0.5, 0, 1, 0.5])
    np.testing.assert_array_equal(own.indices, [2])


def test_lookup_of_a_table_with_a_penalty(library):
    """The gradient of a function of the whole table is added."""
    table = tf.Variable(tf.ones([3, 2]))
    with tf.GradientTape() as tape, record_lookups(tape, [table]) as lookups:
        output = look_up(table, Bags.single(tf.constant([[1]]), 3), tf.float32)
        loss = tf.reduce_sum(output) + tf.reduce_sum(table**2)
    (gradient,) = lookups.gradient(loss, [table])
    np.testing.assert_array_equal(gradient.summed().values, [[2, 2], [3, 3], [2, 2]])


def test_lookup_in_another_graph(library):
    """A lookup in a function of its own is differentiated there."""
    table = tf.Variable(tf.ones([5, 2]))
    bags = Bags.single(tf.constant([[1], [1]]), 5)
    inner = tf.function(lambda: look_up(table, bags, tf.float32))
    with tf.GradientTape() as tape, record_lookups(tape, [table]) as lookups:
        loss = tf.reduce_sum(inner())
    (gradient,) = lookups.gradient(loss, [table])
    assert isinstance(gradient, tf.IndexedSlices)
    np.testing.assert_array_equal(gradient.values, [[2, 2]])


def test_disabled(library):
    table = tf.Variable(tf.ones([5, 2]))
    assert kernels.support(table)
    with kernels.disabled():
        assert not kernels.support(table)
        graph = tf.function(
            lambda: look_up(
                table, Bags(tf.constant([[1, 1]]), (2,), (0,), (5,), (True,)), tf.float32
            )
        ).get_concrete_function()
    assert "ResourceEmbeddingBag" not in {op.type for op in graph.graph.get_operations()}
    assert kernels.support(table)
