"""GRU and AUGRU: against a NumPy loop, numeric gradients, and the effect of padded steps."""

import numpy as np
import pytest
import tensorflow as tf

from nn.sequence import gru
from nn.sequence.gru import AUGRU, GRU
from tests.nn.sequence.sequence_reference import Reference

LAYERS = {"gru": GRU, "augru": AUGRU}


def loop(x, scale, kernel, recurrent_kernel, bias):
    """The states [batch, steps, units] of the recurrence in nn/sequence/gru.py, row by row."""
    weights = {"gru.kernel": kernel, "gru.recurrent_kernel": recurrent_kernel, "gru.bias": bias}
    states = [
        Reference(None, weights).recurrence("gru", *row) for row in zip(x, scale, strict=True)
    ]
    return np.reshape(states, [*x.shape[:2], recurrent_kernel.shape[0]])


class Case:
    """A layer with weights, a batch for it, and the output of the slow loop."""

    def __init__(self, kind: str, batch=4, steps=5, dim=3, units=2, dtype="float64"):
        random = np.random.default_rng(7)
        self.kind = kind
        self.layer = LAYERS[kind](units, seed=1, name=kind, dtype=dtype)
        self.x = random.normal(size=[batch, steps, dim])
        self.mask = np.ones([batch, steps], bool)
        for i in range(batch):  # as histories are padded, in front; the last row is all padding
            self.mask[i, : steps * i // max(batch - 1, 1)] = False
        self.attention = random.random([batch, steps])
        self.layer.build([None, steps, dim])
        self.weights = [0.7 * random.normal(size=w.shape) for w in self.layer.get_weights()]
        self.layer.set_weights(self.weights)
        self.pull = random.normal(size=self.expected(*self.arguments).shape)

    @property
    def arguments(self) -> list[np.ndarray]:
        """Returns the tensors that gradients are computed for: x, attention and the weights."""
        return [self.x, self.attention, *self.weights]

    def expected(self, x, attention, *weights) -> np.ndarray:
        """The layer's output by the slow loop."""
        scale = self.mask * (attention if self.kind == "augru" else 1.0)
        states = loop(x, scale, *weights)
        return states if self.kind == "gru" else states[:, -1]

    def __call__(self, x=None, attention=None, mask=None) -> tf.Tensor:
        dtype = self.layer.compute_dtype
        x = tf.cast(self.x if x is None else x, dtype)
        attention = tf.cast(self.attention if attention is None else attention, dtype)
        mask = tf.constant(self.mask if mask is None else mask)
        return self.layer(x, mask) if self.kind == "gru" else self.layer(x, attention, mask)

    def gradients(self) -> list[np.ndarray | None]:
        """Returns the gradients of sum(pull * output) to x, attention and the weights."""
        variables = [tf.constant(self.x), tf.constant(self.attention)]
        with tf.GradientTape() as tape:
            tape.watch(variables)
            output = self(*variables)
            loss = tf.reduce_sum(tf.cast(self.pull, output.dtype) * output)
        actual = tape.gradient(loss, [*variables, *self.layer.trainable_variables])
        return [None if g is None else g.numpy() for g in actual]


@pytest.mark.parametrize("batch", [0, 1, 4])
@pytest.mark.parametrize("kind", LAYERS)
def test_states_of_reference_loop(kind, batch):
    case = Case(kind, batch=batch)
    np.testing.assert_allclose(case(), case.expected(*case.arguments), rtol=1e-12)


@pytest.mark.parametrize("kind", LAYERS)
def test_numeric_gradients(kind):
    case, step = Case(kind), 1e-6
    arguments = case.arguments
    for number, actual in enumerate(case.gradients()):
        if kind == "gru" and number == 1:
            assert actual is None  # it gets no attention
            continue
        expected = np.zeros_like(arguments[number])
        for place in np.ndindex(expected.shape):
            values = []
            for moved in (step, -step):
                inputs = [argument.copy() for argument in arguments]
                inputs[number][place] += moved
                values.append(np.sum(case.pull * case.expected(*inputs)))
            expected[place] = (values[0] - values[1]) / (2 * step)
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-9)
        if number < 2:
            assert not actual[~case.mask].any()  # exactly: padded steps have no gradient


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("kind", LAYERS)
def test_low_precision(kind, dtype):
    exact = Case(kind, batch=64, steps=12)
    case = Case(kind, batch=64, steps=12, dtype=dtype)
    output = case()
    assert output.dtype == case.layer.compute_dtype
    epsilon = {"float32": 1e-6, "float16": 2**-9, "bfloat16": 2**-6}[output.dtype.name]
    np.testing.assert_allclose(tf.cast(output, tf.float64), exact(), atol=epsilon)
    pairs = zip(case.gradients(), exact.gradients(), strict=True)
    for actual, expected in pairs:
        if expected is not None:
            assert np.isfinite(actual.astype("f8")).all()
            error = np.abs(actual.astype("f8") - expected).max()
            assert error <= 4 * epsilon * np.abs(expected).max()


def test_any_batch_size_in_one_graph():
    case = Case("gru", dtype="float32")
    traced = tf.function(case.layer.call, autograph=False).get_concrete_function(
        tf.TensorSpec([None, 5, 3]), tf.TensorSpec([None, 5], tf.bool)
    )
    x = case.x.astype("f4")
    for count in (4, 1, 0):
        actual = traced(tf.constant(x[:count]), tf.constant(case.mask[:count]))
        np.testing.assert_allclose(actual, case()[:count], atol=1e-6)


def test_history_without_steps():
    gru, augru = GRU(2, seed=0, name="gru"), AUGRU(2, seed=0, name="augru")
    x, mask = tf.zeros([3, 0, 4]), tf.zeros([3, 0], tf.bool)
    assert gru(x, mask).shape == [3, 0, 2]
    np.testing.assert_array_equal(augru(x, tf.zeros([3, 0]), mask), np.zeros([3, 2]))


@pytest.mark.quick("augru")
@pytest.mark.parametrize("kind", LAYERS)
def test_loop_over_many_steps(kind, monkeypatch):
    """Compares the loop with unrolled steps; its graph does not grow with the number of steps."""
    case = Case(kind, steps=7)
    arguments = [tf.constant(value) for value in (case.x, case.attention, case.mask)]

    def values_and_gradients():
        @tf.function(autograph=False)
        def run(x, attention, mask):
            with tf.GradientTape() as tape:
                tape.watch([x, attention])
                scale = [attention] if kind == "augru" else []
                states = case.layer(x, *scale, mask)
            wanted = [x, *scale, *case.layer.trainable_variables]
            return states, tape.gradient(states, wanted, output_gradients=tf.constant(case.pull))

        graph = run.get_concrete_function(*arguments).graph
        return tf.nest.flatten(run(*arguments)), len(graph.get_operations())

    unrolled, _ = values_and_gradients()
    monkeypatch.setattr(gru, "MOST_UNROLLED", 6)
    looped, size = values_and_gradients()
    for one, other in zip(unrolled, looped, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)
    monkeypatch.setattr(gru, "MOST_UNROLLED", 0)
    arguments = [tf.concat([value, value], axis=1) for value in arguments]
    case.pull = np.concatenate([case.pull, case.pull], 1) if kind == "gru" else case.pull
    assert values_and_gradients()[1] == size


@pytest.mark.parametrize("kind", LAYERS)
def test_unknown_number_of_steps(kind):
    case = Case(kind)
    floats = tf.TensorSpec([None, None], tf.float64)
    signature = [tf.TensorSpec([None, None, 3], tf.float64), floats]
    signature = signature[: 1 + (kind == "augru")] + [tf.TensorSpec([None, None], tf.bool)]
    call = tf.function(case.layer.call, input_signature=signature, autograph=False)
    scale = [case.attention] if kind == "augru" else []
    np.testing.assert_allclose(
        call(case.x, *scale, case.mask), case.expected(*case.arguments), rtol=1e-9, atol=1e-12
    )
