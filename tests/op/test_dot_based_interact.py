"""The TensorFlow op against a float64 reference, numeric gradients and the plain version."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_dot_based_interact.python.ops import reference
from tensorflow_dot_based_interact.python.ops.dot_based_interact_ops import (
    dot_based_interact,
    library,
)

LOW_PRECISION = ["float16", "bfloat16"]
SIZES = [
    *itertools.product([1, 2, 3, 16, 27, 33], [1, 2, 7, 16, 33, 128]),
    *((features, 16) for features in (8, 15, 17, 31, 32, 63, 64, 65, 100, 127, 128, 129)),
    *((5, dim) for dim in (3, 8, 15, 17, 31, 63, 64, 127, 129, 255, 512, 1000, 1024, 1025)),
    *((129, 1), (1, 1025), (129, 1025), (2, 1024)),
]


def make(batch, features, dim, dtype="float32", seed=0):
    """(input, bottom, upstream) as tensors of `dtype`."""
    rng = np.random.default_rng([seed, batch, features, dim])
    width = reference.dot_based_interact(tf.zeros([1, features, dim]), tf.zeros([1, dim])).shape[1]
    shapes = [(batch, features, dim), (batch, dim), (batch, width)]
    return [tf.cast(rng.normal(size=shape).astype(np.float32), dtype) for shape in shapes]


def exact(input, bottom, upstream, layout="joined"):
    """Output and gradients to input and bottom in float64, from the definition."""
    x, b, g = (t.numpy().astype(np.float64) for t in (input, bottom, upstream))
    if layout == "separate":
        x = np.concatenate([b[:, None], x], axis=1)
    head = 0 if layout == "pairs" else x.shape[2]
    rows, columns = np.tril_indices(x.shape[1], k=-1)
    output = np.zeros_like(g)
    output[:, :head] = b
    end = head + len(rows)
    output[:, head:end] = np.einsum("npd,npd->np", x[:, rows], x[:, columns])
    symmetric = np.zeros([len(x), x.shape[1], x.shape[1]])
    symmetric[:, rows, columns] = symmetric[:, columns, rows] = g[:, head:end]
    of_x, of_b = symmetric @ x, g[:, :head]
    if layout == "separate":
        of_x, of_b = of_x[:, 1:], of_b + of_x[:, 0]
    return output, of_x, of_b


def run(function, input, bottom, upstream, **options):
    """Output and gradients to input and bottom of `function`, in float64."""
    with tf.GradientTape() as tape:
        tape.watch([input, bottom])
        output = function(input, bottom, **options)
    gradients = tape.gradient(
        output, [input, bottom], upstream, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    return [tensor.numpy().astype(np.float64) for tensor in (output, *gradients)]


def errors(actual, expected):
    """The largest error of each, relative to its largest number."""
    return [
        np.abs(f - e).max(initial=0) / max(np.abs(e).max(initial=0), 1e-30)
        for f, e in zip(actual, expected, strict=True)
    ]


@pytest.mark.parametrize("features", [1, 2, 5, 9])
@pytest.mark.parametrize("layout", ["joined", "separate", "pairs"])
def test_numeric_gradients(features, layout):
    input, bottom, _ = make(3, features, 4)
    bottom = bottom[:, :0] if layout == "pairs" else bottom

    def both(input, bottom):
        return dot_based_interact(input, bottom, layout=layout)

    theory, numeric = tf.test.compute_gradient(both, [input, bottom], delta=1e-2)
    for a, b in zip(theory, numeric, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3)


@pytest.mark.quick("joined-*", "*-float32")
@pytest.mark.parametrize("dtype", ["float32", *LOW_PRECISION])
@pytest.mark.parametrize("layout", ["joined", "separate", "pairs"])
def test_layouts_against_plain_version(layout, dtype):
    for features, dim in SIZES[::2] if layout == "joined" else SIZES[::8]:
        input, bottom, _ = make(5, features, dim, dtype)
        bottom = bottom[:, :0] if layout == "pairs" else bottom
        plain = reference.dot_based_interact(input, bottom, layout=layout)
        upstream = tf.cast(tf.random.stateless_normal(plain.shape, [1, 2]), dtype)
        tensors, expected = (input, bottom, upstream), exact(input, bottom, upstream, layout)
        limits = errors(run(reference.dot_based_interact, *tensors, layout=layout), expected)
        actual = errors(run(dot_based_interact, *tensors, layout=layout), expected)
        rounding = {"float32": 6e-7, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
        for error, limit, factor in zip(actual, limits, (2, 3, 3), strict=True):
            # Half a unit in the last place is what any result of this dtype may be off.
            assert error <= max(factor * limit, rounding), (features, dim, error, limit)


def test_no_bottom_mlp():
    input = tf.constant([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])
    np.testing.assert_array_equal(
        dot_based_interact(input, None, layout="pairs"), [[11, 17, 39, 0, 0, 0, 0, 0]]
    )
    with pytest.raises(ValueError, match="'joined' needs bottom_mlp_output"):
        dot_based_interact(input, None)


@pytest.mark.parametrize("function", [dot_based_interact, reference.dot_based_interact])
def test_three_features_by_hand(function):
    input = tf.constant([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])
    # The output begins with the second argument, whatever row 0 of the first is.
    for bottom in (tf.constant([[7.0, 8.0]]), tf.constant([[[7.0, 8.0]]])):
        output = function(input, bottom)
        np.testing.assert_array_equal(output, [[7, 8, 11, 17, 39, 0, 0, 0]])


def test_gradient_of_bottom_of_rank_3():
    input, bottom, upstream = make(4, 3, 8)
    actual = run(dot_based_interact, input, bottom[:, tf.newaxis], upstream)
    assert actual[2].shape == (4, 1, 8)
    np.testing.assert_array_equal(actual[2][:, 0], upstream[:, :8])


def test_zero_dimension():
    output = dot_based_interact(tf.zeros([2, 3, 0]), tf.zeros([2, 0]))
    np.testing.assert_array_equal(output, np.zeros([2, 8]))


# Each message names the wrong argument and its value.
BAD = [
    ([2, 3], [2, 4], "joined", r"input.*\[2,3\]"),
    ([2, 3, 4, 1], [2, 4], "joined", r"input.*\[2,3,4,1\]"),
    ([2, 3, 4], [4], "joined", r"bottom_mlp_output.*\[4\]"),
    ([2, 3, 4], [2, 2, 4], "joined", r"bottom_mlp_output.*\[2,2,4\]"),
    ([2, 3, 4], [1, 4], "joined", r"bottom_mlp_output.*\[1,4\]"),
    ([2, 3, 4], [2, 5], "joined", r"input.*\[2,3,4\].*\[2,5\]"),
    ([2, 0, 4], [2, 4], "joined", r"input.*\[2,0,4\]"),
    ([2, 3, 4], [2, 4], "pairs", "layout 'pairs'"),
    ([2, 3, 4], [2, 4], "upside", "layout.*upside"),
]


@pytest.mark.parametrize("mode", ["eager", "graph", "without shapes"])
@pytest.mark.parametrize(("input", "bottom", "layout", "message"), BAD)
def test_bad_sizes(input, bottom, layout, message, mode):
    def call(input, bottom):
        return dot_based_interact(input, bottom, layout=layout)

    if mode != "eager":
        shapes = (input, bottom) if mode == "graph" else (None, None)
        call = tf.function(call, input_signature=[tf.TensorSpec(shape) for shape in shapes])
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message):
        call(tf.zeros(input), tf.zeros(bottom))


def test_bad_dtypes():
    with pytest.raises(tf.errors.InvalidArgumentError, match="double.*not in the list"):
        dot_based_interact(tf.zeros([2, 3, 4], tf.float64), tf.zeros([2, 4], tf.float64))
    with pytest.raises(tf.errors.InvalidArgumentError, match="half"):
        dot_based_interact(tf.zeros([2, 3, 4]), tf.zeros([2, 4], tf.float16))


def test_bad_upstream_gradients():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"upstream.*\[2,8\].*\[2,9\]"):
        library().dot_based_interact_grad(tf.zeros([2, 3, 4]), tf.zeros([2, 4]), tf.zeros([2, 9]))


@pytest.mark.parametrize(
    ("input", "bottom", "layout", "expected"),
    [
        ([8, 27, 128], [8, 128], "joined", [8, 480]),
        ([None, 27, 128], [None, 128], "joined", [None, 480]),
        ([None, 27, 128], [8, 1, 128], "joined", [8, 480]),
        ([None, 27, None], [None, 128], "joined", [None, 480]),
        ([None, None, 128], [None, 128], "joined", [None, None]),
        ([None, 26, 128], None, "separate", [None, 480]),
        ([None, 26, 128], [None, 128], "separate", [None, 480]),
        ([5, 26, None], [None, None], "pairs", [5, 328]),
        ([5, 26, None], [None, None], "joined", [5, None]),
        (None, None, "joined", [None, None]),
    ],
)
def test_inferred_shapes(input, bottom, layout, expected):
    with tf.Graph().as_default():
        input = tf.compat.v1.placeholder(tf.float32, input)
        bottom = tf.compat.v1.placeholder(tf.float32, bottom)
        output = dot_based_interact(input, bottom, layout=layout)
        assert output.shape.as_list() == expected
        gradients = tf.gradients(output, [input, bottom])
        for gradient, tensor in zip(gradients, (input, bottom), strict=True):
            assert gradient.shape.rank == tensor.shape.rank or tensor.shape.rank is None
            assert gradient.shape.is_compatible_with(tensor.shape)


def test_inferred_shapes_of_gradients():
    with tf.Graph().as_default():
        input = tf.compat.v1.placeholder(tf.float32, [None, 27, None])
        bottom = tf.compat.v1.placeholder(tf.float32, [8, 128])
        gradients = library().dot_based_interact_grad(
            input, bottom, tf.compat.v1.placeholder(tf.float32)
        )
        assert [g.shape.as_list() for g in gradients] == [[8, 27, 128], [8, 128]]


@pytest.mark.long
def test_unaligned_memory(run_script):
    """Memory of another library, without a copy; in a process of its own, which may crash."""
    done = run_script(
        "-c",
        "import numpy as np, tensorflow as tf\n"
        "from tensorflow_dot_based_interact.python.ops import dot_based_interact_ops, reference\n"
        "numbers = np.random.default_rng(1).normal(size=1 + 3 * 5 * 8).astype(np.float32)\n"
        "x = numbers[1:].reshape(3, 5, 8)\n"
        "view = tf.experimental.dlpack.from_dlpack(x.__dlpack__())\n"
        "found = dot_based_interact_ops.dot_based_interact(view, x[:, 0])\n"
        "expected = reference.dot_based_interact(tf.constant(x), x[:, 0])\n"
        "np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)",
    )
    assert done.returncode == 0, done.stderr


def test_parts_of_batch():
    input, bottom, upstream = make(64, 27, 40)
    whole = run(dot_based_interact, input, bottom, upstream)
    for n in (0, 1, 31, 63):
        one = run(dot_based_interact, input[n : n + 1], bottom[n : n + 1], upstream[n : n + 1])
        for a, b in zip(whole, one, strict=True):
            np.testing.assert_array_equal(a[n : n + 1], b)
