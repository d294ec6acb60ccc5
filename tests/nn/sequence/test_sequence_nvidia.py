"""Formulas of `--variant nvidia` against NumPy and Keras, on equal weights."""

import numpy as np
import pytest
import tensorflow as tf
from distributed_embeddings.keras import keras

from nn.layers.dropout import DropoutPlace
from nn.optim.optimizers import create
from nn.sequence import nvidia
from nn.sequence.dien import AuxiliaryOutputs
from nn.sequence.loss import auxiliary_loss_over_steps, sequence_loss
from tests.nn.model_checks import check_gradients
from tests.nn.sequence.nvidia_reference import NvidiaReference
from tests.nn.sequence.sequence_reference import log_loss, sigmoid
from tests.nn.sequence.sequence_rows import a_config, a_model, reference_of, rows, vectors_of

LENGTHS = (9, 3, 5, 0, 1, 7)
KINDS = ("sim", "dien", "din", "din unit")
NVIDIA = {"variant": "nvidia"}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(0, 0.7, shape)


def with_weights(layer, *inputs, seed=3):
    """Calls the layer, and again with random weights; returns (output, weights by short name)."""
    layer(*inputs)
    weights = {}
    for i, variable in enumerate(layer.weights):
        variable.assign(normal(*variable.shape, seed=seed + i))
        weights[variable.name.split(":")[0].replace("/", ".")] = np.array(variable)
    return layer(*inputs), weights


def expected_of(model, inputs):
    """The reference's values for each sample of a batch."""
    block = "interest_evolution."
    weights = {
        name.replace("auxiliary_mlp", block + "auxiliary_mlp"): value
        for name, value in reference_of(model).weights.items()
    }
    reference = NvidiaReference(model.config, weights)
    columns = (*vectors_of(model, inputs), np.array(inputs.positive[0]) != 0)
    return [reference.score(*sample) for sample in zip(*columns, strict=True)]


@pytest.mark.parametrize("kind", KINDS)
def test_models_of_nvidia(kind):
    """Logits and each term of the loss, of samples with every amount of padding."""
    model, batch = a_model(kind, changes=NVIDIA), rows(LENGTHS)
    total, parts = sequence_loss(model, batch)
    expected = expected_of(model, batch.inputs)
    logits = model.forward(batch.inputs, training=False).logits[:, 0]
    np.testing.assert_allclose(logits, [values["logit"] for values in expected], rtol=1e-9)
    labels = np.array(batch.labels)[:, 0]

    def mean_loss(name):
        pairs = zip(labels, expected, strict=True)
        return np.mean([log_loss(label, values[name]) for label, values in pairs])

    classification = mean_loss("logit")
    if kind == "sim":
        classification = 0.5 * (mean_loss("gsu") + classification)
    np.testing.assert_allclose(parts["classification_loss"], classification, rtol=1e-9)
    if "din" in kind:
        assert set(parts) == {"classification_loss"}
        np.testing.assert_allclose(total, classification, rtol=1e-9)
        return
    assert set(parts) == {"classification_loss", "dien_aux_loss"}
    aux = np.mean([values["aux"] for values in expected])
    np.testing.assert_allclose(parts["dien_aux_loss"], aux, rtol=1e-5)  # 1e-6 within its logs
    np.testing.assert_allclose(total, classification + parts["dien_aux_loss"], rtol=1e-9)


@pytest.mark.quick("dien", "din*")
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_nvidia(kind):
    model, batch = a_model(kind, changes=NVIDIA), rows(LENGTHS)
    check_gradients(lambda: sequence_loss(model, batch)[0], model.dense_variables)


def test_gru_of_keras():
    """Keras's default GRU without a mask: reset after the product, padding is a step."""
    x = tf.constant(normal(3, 6, 4).astype("f"))
    states, weights = with_weights(nvidia.ResetAfterGRU(5, seed=1, name="gru"), x)
    peer = keras.layers.GRU(5, return_sequences=True)
    peer.build(x.shape)
    peer.set_weights([weights[f"gru.{n}"] for n in ("kernel", "recurrent_kernel", "bias")])
    np.testing.assert_allclose(states, peer(x), atol=2e-6)


def test_augru_start():
    layer = nvidia.ComplementAUGRU(30, seed=1, name="augru")
    layer(tf.zeros([1, 2, 50]), tf.zeros([1, 2]))
    np.testing.assert_array_equal(layer.gate_bias, np.ones(60))
    np.testing.assert_array_equal(layer.candidate_bias, np.zeros(30))
    for kernel, columns in ((layer.gate_kernel, 60), (layer.candidate_kernel, 30)):
        limit = np.sqrt(6 / (80 + columns))
        assert 0.97 * limit < np.abs(kernel).max() <= limit


def test_search_leaves_underflow_out():
    """An item whose softmax is 0 is not selected: top 2, count 1."""
    keys = tf.constant([[[1.0], [1000.0]]])
    layer = nvidia.DotSearch("soft", 2, seed=0, name="search")
    output, _ = layer(tf.constant([[1.0]]), keys, tf.constant([[True, True]]), None)
    np.testing.assert_allclose(output, [[1000.0, 500.0]])


def test_auxiliary_loss_over_padded_steps():
    """(1/2) sum of samples (1/3) sum of steps; the second sample has one real pair."""
    positive, negative = normal(2, 3), normal(2, 3, seed=1)
    mask = np.array([[True] * 3, [False, False, True]])
    aux = AuxiliaryOutputs(*map(tf.constant, (positive, negative, mask)))
    losses = -np.log(sigmoid(positive)) - np.log(1 - sigmoid(negative))
    loss = auxiliary_loss_over_steps(aux, tf.ones([2, 1], tf.float64))
    np.testing.assert_allclose(loss, np.sum(losses * mask) / 6, rtol=1e-12)
    huge = AuxiliaryOutputs(tf.constant([[-90.0]]), tf.constant([[90.0]]), tf.constant([[True]]))
    assert np.isfinite(auxiliary_loss_over_steps(huge, tf.ones([1, 1])))


def test_width_of_dien():
    """States have 6 * embedding_dim units, not an item's width."""
    model = a_model("dien", changes=NVIDIA)
    shapes = {w.name: w.shape for w in model.weights_to_save() if "kernel" in w.name}
    assert shapes["dense/interest_evolution.gru.recurrent_kernel"] == (18, 54)
    assert a_config("dien").state_dim == 6 and a_config("dien", **NVIDIA).state_dim == 18


def test_classifier_start():
    """PReLU slopes 0.1, kernels Glorot uniform, biases zero."""
    layer = nvidia.ScoringMLP((40, 30), seed=1, name="mlp")
    layer(tf.zeros([1, 50]))
    assert len(layer.weights) == 8
    for variable in layer.weights:
        name, values = variable.name, np.array(variable)
        if "slope" in name:
            np.testing.assert_array_equal(values, np.full(values.shape, np.float32(0.1)))
        elif "bias" in name:
            np.testing.assert_array_equal(values, np.zeros(values.shape))
        else:
            limit = np.sqrt(6 / sum(values.shape))
            assert 0.8 * limit < np.abs(values).max() <= limit
            assert abs(values.std() / (limit / np.sqrt(3)) - 1) < 0.15


def test_dropout_once():
    """Dropout acts on the last hidden layer only, and on no layer in an evaluation."""
    layer = nvidia.ScoringMLP((4, 1000), seed=1, name="mlp", dropout=(0.25, 9))
    x, one = tf.ones([1, 3]), tf.constant(1, tf.int64)
    place = DropoutPlace(one, 0 * one, tf.constant(1))
    whole = layer(x)
    hidden = x
    *parts, last = layer.affine
    for part, activation in zip(parts, layer.activations, strict=True):
        hidden = activation(part(hidden))
    (dropout,) = layer.dropouts
    dropped = dropout(hidden, place)
    assert 0.2 < np.mean(np.array(dropped) == 0) < 0.3
    np.testing.assert_allclose(layer(x, place), last(dropped))
    np.testing.assert_array_equal(layer(x), whole)


@pytest.mark.parametrize("kind", ["adam", "lazy_adam", "sgd"])
def test_weight_decay_without_the_rate(kind):
    """w -= 0.1 w in all rows, whatever the rate; else w -= rate 0.1 w."""
    for independent, share in ((True, 0.9), (False, 0.999)):
        dense, table = tf.Variable([1.0]), tf.Variable([[1.0], [1.0]])
        optimizer = create(
            kind, [dense, table], 0.01, weight_decay=0.1, independent_decay=independent
        )
        zero = tf.IndexedSlices(tf.constant([[0.0]]), tf.constant([1]), tf.constant([2, 1]))
        optimizer.apply([tf.constant([0.0]), zero], 0)
        np.testing.assert_allclose(dense, [share], rtol=1e-6)
        others = share if independent or kind == "adam" else 1.0
        np.testing.assert_allclose(table, [[others], [share]], rtol=1e-6)


@pytest.mark.long
def test_low_precision():
    """bfloat16 is near float32, forward and backward, in a compiled graph too."""
    batch, gradients = rows(LENGTHS), []
    for dtype in ("float32", "mixed_bfloat16"):
        model = a_model("sim", dtype, changes=NVIDIA)

        @tf.function
        def step(model=model):
            with tf.GradientTape() as tape:
                total, _ = sequence_loss(model, batch)
            return total, tape.gradient(total, model.dense_variables)

        total, of_weights = step()
        gradients.append(np.concatenate([[total], *(np.ravel(g) for g in of_weights)]))
    assert np.linalg.norm(gradients[0] - gradients[1]) < 0.05 * np.linalg.norm(gradients[0])


def test_hard_search_is_refused():
    with pytest.raises(ValueError, match="variant nvidia has soft search only, got gsu 'hard'"):
        a_config("sim hard", **NVIDIA)
