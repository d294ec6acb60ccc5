"""Recurrent layers over histories: GRU, and AUGRU, whose update gates follow an attention.

Both are the recurrence of Cho et al. (2014) in the notation of DIEN (Zhou et al., 2019), with the
reset gate applied to the state before its product,

    r_t = sigmoid(x_t W_r + h_(t-1) U_r + b_r)          reset
    u_t = sigmoid(x_t W_u + h_(t-1) U_u + b_u)          update
    c_t = tanh(x_t W_c + (r_t * h_(t-1)) U_c + b_c)     candidate
    h_t = h_(t-1) + s_t u_t (c_t - h_(t-1)),   h_0 = 0

where the scale s_t of a step is 1 (GRU) or its attention (AUGRU), and 0 on a padded step, which so
changes neither state nor gradients.

Up to `MOST_UNROLLED` steps are unrolled: a `tf.while_loop` takes 1.5 times as long, but tracing
both passes takes about 40 ms per step. More of them, or an unknown number, run in a loop.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from distributed_embeddings.keras import keras
from distributed_embeddings.precision import precise
from distributed_embeddings.seeds import derive_seed

from nn.layers.fully_connected import affine, sum_over_batch

MOST_UNROLLED = 200


class _Gate(NamedTuple):
    """Weights of a gate or of the candidate: [dim + units, units], W above U, and [units]."""

    kernel: tf.Tensor
    bias: tf.Tensor

    def apply(self, x: tf.Tensor, activation) -> tf.Tensor:
        """Returns activation(x K + b); on a CPU the three become one operation."""
        return activation(tf.nn.bias_add(tf.matmul(x, self.kernel), self.bias))


class _LoopedGate(_Gate):
    """Gate of a loop, in float32: the loop sums gradients in the dtype of the weights outside."""

    def apply(self, x: tf.Tensor, activation) -> tf.Tensor:
        return activation(affine(x, *(tf.cast(weight, x.dtype) for weight in self)))


class _Step(NamedTuple):
    """Tensors of a step for the backward pass, each [batch, ...]; gain is scale * update."""

    state: tf.Tensor
    scale: tf.Tensor
    gain: tf.Tensor
    inputs: tf.Tensor
    reset_inputs: tf.Tensor
    reset: tf.Tensor
    update: tf.Tensor
    candidate: tf.Tensor


def _forward(x, scale, state, reset: _Gate, update: _Gate, candidate: _Gate):
    """Returns (next state [batch, units], `_Step`) of one step."""
    inputs = tf.concat([x, state], axis=1)
    r = reset.apply(inputs, tf.sigmoid)
    u = update.apply(inputs, tf.sigmoid)
    reset_inputs = tf.concat([x, r * state], axis=1)
    c = candidate.apply(reset_inputs, tf.tanh)
    gain = scale * u
    kept = _Step(state, scale, gain, inputs, reset_inputs, r, u, c)
    return state + gain * (c - state), kept


class _Backward:
    """Backward pass, from the last step to the first, for inputs x of width `dim`."""

    def __init__(self, gates: Sequence[_Gate], dim: int):
        self._of_state = [gate.kernel[dim:] for gate in gates]
        self._of_x = tf.concat([gate.kernel[:dim] for gate in gates], axis=1)
        self._parts: list[tuple[tf.Tensor, ...]] = []  # of the weights' gradients, by step

    def step(self, d_state: tf.Tensor, kept: _Step):
        """Returns the gradients of the state before a step, of its x and of its scale."""
        of_reset, of_update, of_candidate = self._of_state
        d_gain = d_state * (kept.candidate - kept.state)
        d_candidate = d_state * kept.gain
        z_candidate = tf.raw_ops.TanhGrad(y=kept.candidate, dy=d_candidate)
        d_reset_state = tf.matmul(z_candidate, of_candidate, transpose_b=True)
        z_reset = tf.raw_ops.SigmoidGrad(y=kept.reset, dy=d_reset_state * kept.state)
        z_update = tf.raw_ops.SigmoidGrad(y=kept.update, dy=d_gain * kept.scale)
        z = tf.concat([z_reset, z_update, z_candidate], axis=1)
        self._parts.append(
            (
                tf.matmul(kept.inputs, z_reset, transpose_a=True),
                tf.matmul(kept.inputs, z_update, transpose_a=True),
                tf.matmul(kept.reset_inputs, z_candidate, transpose_a=True),
                sum_over_batch(z),
            )
        )
        d_before = [
            d_state - d_candidate,
            d_reset_state * kept.reset,
            tf.matmul(z_reset, of_reset, transpose_b=True),
            tf.matmul(z_update, of_update, transpose_b=True),
        ]
        d_x = tf.matmul(z, self._of_x, transpose_b=True)
        d_scale = tf.matmul(d_gain * kept.update, tf.ones([z_update.shape[1], 1], z.dtype))
        return tf.add_n(d_before), d_x, d_scale

    def weight_gradients(self) -> list[tf.Tensor]:
        """Returns the gradients of (kernel, bias) of each gate, summed in at least float32."""
        *kernels, biases = map(_sum, zip(*self._parts, strict=True))
        biases = tf.split(biases, len(kernels))
        return [g for pair in zip(kernels, biases, strict=True) for g in pair]


def _sum(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.cast(tf.add_n([precise(part) for part in parts]), parts[0].dtype)


def _recurrence(x, scale, gates: Sequence[_Gate], all_states: bool) -> tf.Tensor:
    """Returns the states [batch, steps, units] of all steps, or the last one's [batch, units]."""
    dim, units = x.shape[2], gates[0].bias.shape[0]

    @tf.custom_gradient
    def run(x, scale, *weights):
        gates = [_Gate(*weights[i : i + 2]) for i in (0, 2, 4)]
        states = [tf.zeros([tf.shape(x)[0], units], x.dtype)]
        kept = []
        scales = tf.unstack(scale[:, :, tf.newaxis], axis=1)
        for x_t, scale_t in zip(tf.unstack(x, axis=1), scales, strict=True):
            state, step = _forward(x_t, scale_t, states[-1], *gates)
            states.append(state)
            kept.append(step)

        def gradient(d_output):
            backward = _Backward(gates, dim)
            d_states = tf.unstack(d_output, axis=1) if all_states else [d_output]
            d_state, d_x, d_scale = d_states.pop(), [], []
            for step in reversed(kept):
                d_state, d_x_t, d_scale_t = backward.step(d_state, step)
                if d_states:
                    d_state += d_states.pop()
                d_x.append(d_x_t)
                d_scale.append(d_scale_t)
            d_scale = tf.concat(d_scale[::-1], axis=1)
            return (tf.stack(d_x[::-1], axis=1), d_scale, *backward.weight_gradients())

        return (tf.stack(states[1:], axis=1) if all_states else states[-1]), gradient

    return run(x, scale, *(tensor for gate in gates for tensor in gate))


def _looped(x, scale, gates: Sequence[_Gate], all_states: bool) -> tf.Tensor:
    """Returns the states of `_recurrence` for any number of steps, with TensorFlow's gradient."""
    by_step = tf.transpose(x, [1, 0, 2]), tf.transpose(scale)[:, :, tf.newaxis]
    units = gates[0].bias.shape[0]
    gates = [_LoopedGate(*map(precise, gate)) for gate in gates]
    ones = tf.ones([1, units], x.dtype)
    num_steps = x.shape[1] or tf.shape(x)[1]  # as a number where it is one, for export to ONNX
    start = tf.zeros([tf.shape(x)[0], units], x.dtype)
    states = []
    if all_states:
        states = [tf.TensorArray(x.dtype, num_steps, element_shape=start.shape)]

    def step(t, state, *states):
        # By a product, whose gradient is a sum over the units in float32.
        scale_of_units = tf.matmul(by_step[1][t], ones)
        state, _ = _forward(by_step[0][t], scale_of_units, state, *gates)
        return (t + 1, state, *(array.write(t, state) for array in states))

    _, last, *states = tf.while_loop(
        lambda t, *_: t < num_steps, step, (0, start, *states), maximum_iterations=num_steps
    )
    return tf.transpose(states[0].stack(), [1, 0, 2]) if all_states else last


class Recurrent(keras.layers.Layer):
    """Base of the recurrent layers: their weights.

    Kernels of the inputs start Glorot uniform, those of the state orthogonal, biases at zero.
    """

    bias_rows: tuple[int, ...] = ()  # leading dimensions of the biases

    def __init__(self, units: int, *, seed: int, name: str, dtype: str = "float32"):
        super().__init__(name=name, dtype=dtype)
        self.units = units
        self.kernel_seed = derive_seed(seed, name, "kernel")
        self.recurrent_seed = derive_seed(seed, name, "recurrent_kernel")

    def build(self, input_shape):
        self.kernel = self.add_weight(
            name="kernel",
            shape=[int(input_shape[-1]), 3 * self.units],
            initializer=keras.initializers.GlorotUniform(self.kernel_seed),
        )
        self.recurrent_kernel = self.add_weight(
            name="recurrent_kernel",
            shape=[self.units, 3 * self.units],
            initializer=keras.initializers.Orthogonal(seed=self.recurrent_seed),
        )
        shape = [*self.bias_rows, 3 * self.units]
        self.bias = self.add_weight(name="bias", shape=shape, initializer="zeros")
        super().build(input_shape)

    def _run(self, x, scale, mask, all_states: bool) -> tf.Tensor:
        if x.shape[1] == 0:
            shape = [tf.shape(x)[0], 0, self.units] if all_states else [tf.shape(x)[0], self.units]
            return tf.zeros(shape, x.dtype)
        # In the compute dtype; each gate has a product of its own, so that none is cut apart.
        kernel = tf.concat([self.kernel, self.recurrent_kernel], axis=0)
        bias = tf.convert_to_tensor(self.bias)
        kernels, biases = tf.split(kernel, 3, axis=1), tf.split(bias, 3)
        gates = [_Gate(*pair) for pair in zip(kernels, biases, strict=True)]
        scale = tf.where(mask, tf.cast(scale, x.dtype), tf.zeros([], x.dtype))
        run = _recurrence
        if x.shape[1] is None or x.shape[1] > MOST_UNROLLED:
            run = _looped
        return run(x, scale, gates, all_states)


class GRU(Recurrent):
    """Gated recurrent unit; padded steps carry the state over."""

    def call(self, x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the states of all steps, [batch, steps, units]; zeros up to the first real step.

        Args:
            x: [batch, steps, dim].
            mask: [batch, steps] bool, False on padded steps.
        """
        return self._run(x, tf.ones([], x.dtype), mask, all_states=True)


class AUGRU(Recurrent):
    """GRU with attentional update gate: attention a_t in [0, 1] makes it a_t u_t."""

    def call(self, x: tf.Tensor, attention: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the state after the last step, [batch, units]; zeros without a real step.

        Args:
            x: [batch, steps, dim].
            attention: [batch, steps], factors on the update gates.
            mask: [batch, steps] bool, False on padded steps.
        """
        return self._run(x, attention, mask, all_states=False)
