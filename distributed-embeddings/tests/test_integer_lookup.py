"""IntegerLookup: a vocabulary that grows."""

import distributed_embeddings as dmp
import numpy as np
import pytest
import tensorflow as tf
from distributed_embeddings.keras import keras
from distributed_embeddings.layers import integer_lookup


def lookup(max_tokens=4, **kwargs) -> dmp.IntegerLookup:
    return dmp.IntegerLookup(max_tokens, use_gpu=False, **kwargs)


@pytest.fixture(params=[False, True], ids=["eager", "graph"])
def wrap(request):
    """A layer as it is, or in a `tf.function`."""
    function = tf.function(reduce_retracing=True)
    return (lambda layer: function(layer.__call__)) if request.param else (lambda layer: layer)


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.uint8])
def test_order_of_indices(wrap, dtype):
    layer = lookup()
    call = wrap(layer)
    first = call(tf.constant([12, 36, 12, 138, 42, 36], dtype))
    assert first.dtype == tf.int64
    assert first.numpy().tolist() == [1, 2, 1, 3, 4, 2]
    second = call(tf.constant([[12, 138, 42], [42, 100, 36]], dtype))
    assert second.numpy().tolist() == [[1, 3, 4], [4, 0, 2]]
    assert layer.get_vocabulary() == [-1, 12, 36, 138, 42]
    assert layer.capacity == 5


def test_range_of_keys(wrap):
    layer = lookup(5)
    keys = [-1, 0, -2, -3, 2**63 - 1, -(2**63)]
    assert wrap(layer)(tf.constant(keys, tf.int64)).numpy().tolist() == [0, 1, 2, 3, 4, 5]
    assert layer.get_vocabulary() == keys


@pytest.mark.parametrize("shape", [[0], [0, 3], []])
def test_odd_shapes(wrap, shape):
    layer = lookup()
    keys = tf.fill(shape, tf.constant(9, tf.int64))
    assert wrap(layer)(keys).numpy().tolist() == np.ones(shape).tolist()
    assert layer.get_vocabulary() == ([-1] if 0 in shape else [-1, 9])


def test_ragged_and_sparse_keys(wrap):
    call = wrap(lookup())
    assert call(tf.ragged.constant([[5, 6], [], [5]])).to_list() == [[1, 2], [], [1]]
    actual = call(tf.SparseTensor([[0, 3], [1, 0]], [6, 7], [2, 4]))
    assert actual.values.numpy().tolist() == [2, 3] and actual.shape == [2, 4]


def test_against_a_dictionary(wrap):
    """Random keys in batches of random sizes."""
    random = np.random.RandomState(3)
    layer, known = lookup(50), {}
    call = wrap(layer)
    for _ in range(12):
        keys = random.randint(0, 90, random.randint(1, 30))
        expected = []
        for key in keys.tolist():
            if key not in known and len(known) < 50:
                known[key] = len(known) + 1
            expected.append(known.get(key, 0))
        assert call(tf.constant(keys)).numpy().tolist() == expected
    assert layer.get_vocabulary() == [-1, *known]


def grown() -> dmp.IntegerLookup:
    layer = lookup()
    layer(tf.constant([12, 36]))
    return layer


def test_replaced_vocabulary(wrap):
    """Weights replace a vocabulary, also in a function that was traced before."""
    layer = lookup()
    call = wrap(layer)
    call(tf.constant([1, 2]))
    layer.set_weights(grown().get_weights())
    assert call(tf.constant([36, 1, 12, 2])).numpy().tolist() == [2, 3, 1, 4]
    assert layer.get_vocabulary() == [-1, 12, 36, 1, 2]
    layer.set_weights(lookup().get_weights())
    assert call(tf.constant([36])).numpy().tolist() == [1]


def test_checkpoint(tmp_path, wrap):
    path = tf.train.Checkpoint(layer=grown()).save(tmp_path / "checkpoint")
    layer = lookup()
    call = wrap(layer)
    call(tf.constant([1, 2, 3]))
    tf.train.Checkpoint(layer=layer).restore(path).assert_consumed()
    assert call(tf.constant([5, 36, 1])).numpy().tolist() == [3, 2, 4]


def test_saved_model(tmp_path):
    keys = keras.Input([None], dtype=tf.int64)
    model = keras.Model(keys, dmp.Embedding(5, 2)(grown()(keys)))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    batch = tf.constant([[36, 5, 12]], tf.int64)
    np.testing.assert_array_equal(loaded(batch), model(batch))


def test_in_fit():
    """The vocabulary grows while the model learns."""
    layer = lookup()
    model = keras.Sequential([layer, dmp.Embedding(5, 1, combiner="sum")])
    model.compile("sgd", "mse")
    model.fit(tf.constant([[3], [9], [3]]), tf.ones([3, 1]), batch_size=1, verbose=0, shuffle=False)
    assert layer.get_vocabulary() == [-1, 3, 9]


def test_note_of_use_gpu(caplog):
    integer_lookup._warn_once.cache_clear()
    first, second = dmp.IntegerLookup(4), dmp.IntegerLookup(4)
    assert second(tf.constant([9])).numpy().tolist() == [1] and first.use_gpu
    assert caplog.text.count("looked up in host memory") == 1


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: lookup(0), "max_tokens must be at least 1, got 0"),
        (lambda: lookup()(tf.constant([1.0])), "keys must be integers, got float32"),
    ],
)
def test_errors(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_frequencies_of_keys():
    layer = lookup(2)
    layer(tf.constant([[7, 7], [5, 9]]))
    layer(tf.constant([5, 7, -1]))
    assert layer.get_vocabulary() == [-1, 7, 5]
    assert layer.count.numpy().tolist() == [2, 3, 2]
