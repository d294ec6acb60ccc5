"""Layers of `--variant nvidia`: the arithmetic of NVIDIA's SIM recipe, where it differs.

Kernels start Glorot uniform and biases at zero, as in Keras, unless a layer states otherwise.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf
from distributed_embeddings.keras import keras
from distributed_embeddings.precision import precise
from distributed_embeddings.seeds import derive_seed

from nn.layers.fully_connected import Dense, affine
from nn.sequence.attention import masked_softmax
from nn.sequence.dien import AuxiliaryOutputs, InterestEvolution
from nn.sequence.gru import Recurrent
from nn.sequence.long_history import select_top
from nn.sequence.mlp import Classifier, PReLU, SigmoidDense
from nn.sequence.sizes import HARD

INITIAL_SLOPE = 0.1
UNIT_DIMS = (80, 40)  # hidden layers of the attention units


class UniformDense(Dense):
    """y = x W + b; W starts Glorot uniform, b at zero."""

    def build(self, input_shape):
        shape = [int(input_shape[-1]), self.dim]
        start = keras.initializers.GlorotUniform(self.kernel_seed)
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer=start)
        self.bias = self.add_weight(name="bias", shape=[self.dim], initializer="zeros")
        keras.layers.Layer.build(self, input_shape)


class UniformSigmoidDense(UniformDense, SigmoidDense):
    """y = sigmoid(x W + b), with the weights of `UniformDense`."""

    call = SigmoidDense.call


class ScoringMLP(Classifier):
    """Classifier with one dropout, before the logit.

        x -> (affine, activation) for each of `dims` -> dropout -> affine -> logit

    PReLU slopes start at 0.1.
    """

    dense, sigmoid_dense, initial_slope = UniformDense, UniformSigmoidDense, INITIAL_SLOPE
    has_one_dropout = True


class PlainDotAttention(keras.layers.Layer):
    """sum_j softmax_j(<target, key_j>) key_j; has no weights, `seed` is not read."""

    def __init__(self, *, seed: int, name: str, dtype: str = "float32"):
        super().__init__(name=name, dtype=dtype)

    def call(self, target: tf.Tensor, keys: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Maps [batch, dim], [batch, n, dim], bool [batch, n] to [batch, dim]; 0 without a key."""
        return weighted_sum(masked_softmax(inner_products(target, keys), mask), keys)


class UnitScores(keras.layers.Layer):
    """Scores of keys by a small network of target and key.

    score_j = MLP([t, k_j, t - k_j, t * k_j]), two hidden sigmoid layers of 80 and 40 units
    """

    def __init__(self, *, seed: int, name: str, dtype: str = "float32"):
        super().__init__(name=name, dtype=dtype)
        options = {"seed": derive_seed(seed, name), "name": "mlp", "dtype": dtype}
        self.network = ScoringMLP(UNIT_DIMS, activation="sigmoid", **options)

    def call(self, target: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """Maps [batch, dim], [batch, n, dim] to [batch, n], at least float32."""
        target = tf.broadcast_to(target[:, tf.newaxis, :], tf.shape(keys))
        pairs = tf.concat([target, keys, target - keys, target * keys], axis=2)
        scores = self.network(tf.reshape(pairs, [-1, 4 * keys.shape[-1]]))
        return precise(tf.reshape(scores, tf.shape(keys)[:2]))


class UnitAttention(keras.layers.Layer):
    """sum_j softmax_j(score_j) key_j with the scores of `UnitScores`."""

    def __init__(self, *, seed: int, name: str, dtype: str = "float32"):
        super().__init__(name=name, dtype=dtype)
        self.scores = UnitScores(seed=derive_seed(seed, name), name="scores", dtype=dtype)

    def call(self, target: tf.Tensor, keys: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Maps [batch, dim], [batch, n, dim], bool [batch, n] to [batch, dim]; 0 without a key."""
        return weighted_sum(masked_softmax(self.scores(target, keys), mask), keys)


class DotSearch(keras.layers.Layer):
    """Long history of SIM without weights: a soft search, then an attention and a mean.

        a = softmax(<target, key>);  pooled = sum_j a_j key_j
        selected: the k items of highest a, those whose a is 0 in float32 left out
        output = [sum_j softmax_j in selected(<target, key_j>) key_j,
                  sum_j in selected key_j / (number of selected + 1)]

    Args:
        gsu: "soft".
        top_k: Items to select.
        seed: Not read.
    """

    def __init__(self, gsu: str, top_k: int, *, seed: int, name: str, dtype: str = "float32"):
        super().__init__(name=name, dtype=dtype)
        assert gsu != HARD
        self.top_k = top_k

    def call(self, target: tf.Tensor, keys: tf.Tensor, mask: tf.Tensor, categories):
        """Searches the history [batch, n, dim] for the target [batch, dim].

        `categories` is not read.

        Returns:
            (attention and mean side by side [batch, 2 * dim]; pooled history [batch, dim]), zeros
            where there is no item.
        """
        scores = inner_products(target, keys)
        weights = masked_softmax(scores, mask)
        selected = tf.logical_and(select_top(weights, mask, self.top_k), weights > 0)
        attention = weighted_sum(masked_softmax(scores, selected), keys)
        ones = tf.cast(selected, scores.dtype)
        mean = weighted_sum(ones / (tf.reduce_sum(ones, axis=1, keepdims=True) + 1), keys)
        return tf.concat([attention, mean], axis=1), weighted_sum(weights, keys)


class ResetAfterGRU(Recurrent):
    """Gated recurrent unit, Keras's default, over all steps; padded ones are steps as others.

        u = sigmoid(x W_u + h U_u + b_u);  r = sigmoid(x W_r + h U_r + b_r)
        c = tanh(x W_c + b_c + r (h U_c + d_c));  h' = u h + (1 - u) c

    Weights as in Keras: `kernel` and `recurrent_kernel` hold u, r, c side by side; `bias` [2, 3 *
    units] has a row for x and one for h.
    """

    bias_rows = (2,)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Maps [batch, steps, dim] to the states of all steps, [batch, steps, units]."""
        input_bias, state_bias = tf.unstack(tf.convert_to_tensor(self.bias))
        recurrent = precise(tf.convert_to_tensor(self.recurrent_kernel)), precise(state_bias)

        def step(state, fixed):
            of_state = affine(state, *(tf.cast(weight, state.dtype) for weight in recurrent))
            x_u, x_r, x_c = tf.split(fixed, 3, axis=1)
            h_u, h_r, h_c = tf.split(of_state, 3, axis=1)
            update, reset = tf.sigmoid(x_u + h_u), tf.sigmoid(x_r + h_r)
            return update * state + (1 - update) * tf.tanh(x_c + reset * h_c)

        fixed = _affine_of_steps(x, tf.convert_to_tensor(self.kernel), input_bias)
        return run_steps(step, [fixed], self.units)


class ComplementAUGRU(keras.layers.Layer):
    """GRU whose update gate has the factor 1 - attention, over all steps.

        [r, u] = sigmoid([x, h] W_g + b_g);  c = tanh([x, r h] W_c + b_c)
        u' = (1 - a) u;  h' = u' h + (1 - u') c

    b_g starts at 1.
    """

    def __init__(self, units: int, *, seed: int, name: str, dtype: str = "float32"):
        super().__init__(name=name, dtype=dtype)
        self.units = units
        self.seeds = [derive_seed(seed, name, kind) for kind in ("gates", "candidate")]

    def build(self, input_shape):
        rows, units = int(input_shape[-1]) + self.units, self.units
        of_gates, of_candidate = (keras.initializers.GlorotUniform(seed) for seed in self.seeds)
        self.gate_kernel = self.add_weight(
            name="gate_kernel", shape=[rows, 2 * units], initializer=of_gates
        )
        self.gate_bias = self.add_weight(name="gate_bias", shape=[2 * units], initializer="ones")
        self.candidate_kernel = self.add_weight(
            name="candidate_kernel", shape=[rows, units], initializer=of_candidate
        )
        self.candidate_bias = self.add_weight(
            name="candidate_bias", shape=[units], initializer="zeros"
        )
        super().build(input_shape)

    def call(self, x: tf.Tensor, attention: tf.Tensor) -> tf.Tensor:
        """Maps [batch, steps, dim], [batch, steps] to the last state, [batch, units]."""
        sizes = [x.shape[-1], self.units]
        of_x, of_state = tf.split(tf.convert_to_tensor(self.gate_kernel), sizes)
        candidate_of_x, candidate_of_state = tf.split(
            tf.convert_to_tensor(self.candidate_kernel), sizes
        )
        recurrent = precise(of_state), precise(candidate_of_state)

        def step(state, x_gates, x_candidate, attention):
            of_gates, of_candidate = (tf.cast(kernel, state.dtype) for kernel in recurrent)
            gates = tf.sigmoid(x_gates + tf.matmul(state, of_gates))
            reset, update = tf.split(gates, 2, axis=1)
            candidate = tf.tanh(x_candidate + tf.matmul(reset * state, of_candidate))
            update = (1 - attention) * update
            return update * state + (1 - update) * candidate

        fixed = [
            _affine_of_steps(x, of_x, tf.convert_to_tensor(self.gate_bias)),
            _affine_of_steps(x, candidate_of_x, tf.convert_to_tensor(self.candidate_bias)),
            attention[:, :, tf.newaxis],
        ]
        return run_steps(step, fixed, self.units)[:, -1, :]


class PaddedEvolution(InterestEvolution):
    """DIEN's block over a padded history, whose padded items are zero vectors.

        h_t = GRU(e_t);  a = softmax_t(score(PReLU(target W + b), h_t))
        output = the last state of AUGRU(h_t, a_t)

    The softmax leaves padded steps out, unless all are; the recurrences do not. The auxiliary
    classifier has dropout.
    """

    extractor_type, evolution_type = ResetAfterGRU, ComplementAUGRU
    auxiliary_type = ScoringMLP

    def make_scores(self, units: int, **options) -> UnitScores:
        self.target_dense = UniformDense(units, name="target_dense", **options)
        self.target_prelu = PReLU(INITIAL_SLOPE, name="target_prelu", dtype=options["dtype"])
        return UnitScores(name="attention", **options)

    def interests(self, history: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the states of the interests, which do not depend on the target."""
        return self.extractor(_masked(history, mask))

    def evolve(self, target: tf.Tensor, states: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the last state of the evolution towards a target, from the states."""
        query = self.target_prelu(self.target_dense(target))
        scores = self.scores(query, states)
        attention = tf.nn.softmax(tf.where(mask, scores, scores.dtype.min))
        return self.evolution(states, tf.cast(attention, self.compute_dtype))

    def compare(self, states, history, negatives, mask, place=None) -> AuxiliaryOutputs:
        """Returns logits of the next items, and of `negatives` [batch, steps - 1, dim]."""
        before, after = states[:, :-1], _masked(history, mask)[:, 1:]
        pairs = mask[:, 1:]
        items = tf.stack([after, _masked(negatives, pairs)])
        both = tf.concat([tf.stack([before, before]), items], axis=3)
        logits = self.auxiliary(tf.reshape(both, [-1, both.shape[-1]]), place, num_blocks=2)
        shape = tf.concat([[2], tf.shape(pairs)], axis=0)
        positive, negative = tf.unstack(precise(tf.reshape(logits, shape)))
        return AuxiliaryOutputs(positive, negative, pairs)


def inner_products(target: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Returns <target, key_j>, [batch, n] of at least float32."""
    return precise(tf.squeeze(tf.matmul(keys, target[:, :, tf.newaxis]), axis=2))


def weighted_sum(weights: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Returns sum_j weights_j key_j, [batch, dim] in the dtype of keys."""
    weights = tf.cast(weights, keys.dtype)
    return tf.squeeze(tf.matmul(weights[:, tf.newaxis, :], keys), axis=1)


def run_steps(step: Callable[..., tf.Tensor], inputs: Sequence[tf.Tensor], units: int) -> tf.Tensor:
    """Returns the states [batch, steps, units] of state = step(state, *inputs of the step).

    Weights that `step` reads from outside must be in float32: the loop sums their gradients in
    their dtype.

    Args:
        step: Maps a state [batch, units] and the inputs of a step to the next state.
        inputs: Tensors [batch, steps, any] in the dtype of the states, which start at zero.
    """
    by_step = [tf.transpose(x, [1, 0, 2]) for x in inputs]
    dtype, num_steps = inputs[0].dtype, inputs[0].shape[1]
    start = tf.zeros([tf.shape(inputs[0])[0], units], dtype)
    states = tf.TensorArray(dtype, num_steps, element_shape=start.shape)

    def body(t, state, states):
        state = step(state, *(x[t] for x in by_step))
        return t + 1, state, states.write(t, state)

    _, _, states = tf.while_loop(
        lambda t, *_: t < num_steps, body, (0, start, states), maximum_iterations=num_steps
    )
    return tf.transpose(states.stack(), [1, 0, 2])


def _affine_of_steps(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Returns x W + b for [batch, steps, dim]."""
    y = affine(tf.reshape(x, [-1, x.shape[-1]]), kernel, bias)
    return tf.reshape(y, [-1, x.shape[1], kernel.shape[1]])


def _masked(vectors: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns vectors [batch, n, dim], zeros where `mask` is False."""
    return vectors * tf.cast(mask, vectors.dtype)[:, :, tf.newaxis]
