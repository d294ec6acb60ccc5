"""DIEN's block: interests as states of a GRU, their evolution towards a target, and its loss."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from nn.keras import keras
from nn.precision import precise
from nn.sequence.attention import BilinearScores, masked_softmax
from nn.sequence.gru import AUGRU, GRU
from nn.sequence.mlp import Classifier
from runtime.hardware.device import derive_seed


class AuxiliaryOutputs(NamedTuple):
    """Logits of the auxiliary loss; pair t is the state after step t and an item of step t + 1.

    positive_logits: [batch, steps - 1], at least float32, that the history's own item comes next.
    negative_logits: float [batch, steps - 1], that the negative one does.
    mask: bool [batch, steps - 1], where both steps are real.
    """

    positive_logits: tf.Tensor
    negative_logits: tf.Tensor
    mask: tf.Tensor


class InterestEvolution(keras.layers.Layer):
    """DIEN (Zhou et al., 2019): GRU over a history, attention of the target, AUGRU.

        h_t = GRU(e_t);  a = softmax_t(h_t W target);  output = the last state of AUGRU(h_t, a_t)

    States are as wide as an item's vector.

    Args:
        dim: of an item's vector.
        aux_dims: hidden layers of the auxiliary classifier, which sees [h_t, e_{t+1}] and, in its
            place, the negative item; its hidden units are sigmoids, as in the authors' code.
        seed: of the initial weights.
        dtype: Keras dtype policy.
    """

    def __init__(
        self, dim: int, aux_dims: Sequence[int], *, seed: int, name: str, dtype: str = "float32"
    ):
        super().__init__(name=name, dtype=dtype)
        own_seed = derive_seed(seed, name)
        self.extractor = GRU(dim, seed=own_seed, name="gru", dtype=dtype)
        self.scores = BilinearScores(seed=own_seed, name="attention", dtype=dtype)
        self.evolution = AUGRU(dim, seed=own_seed, name="augru", dtype=dtype)
        self.auxiliary = Classifier(
            aux_dims, seed=own_seed, name="auxiliary_mlp", activation="sigmoid", dtype=dtype
        )

    def call(self, target: tf.Tensor, history: tf.Tensor, mask: tf.Tensor):
        """Args:
          target: [batch, dim].
          history: [batch, steps, dim].
          mask: bool [batch, steps].

        Returns:
            (last state of the evolution [batch, dim], zeros without a step; states of the interests
            [batch, steps, dim]).
        """
        states = self.extractor(history, mask)
        attention = masked_softmax(self.scores((target, states)), mask)
        attention = tf.cast(attention, self.compute_dtype)
        return self.evolution(states, attention, mask), states

    def compare(self, states, history, negatives, mask) -> AuxiliaryOutputs:
        """Logits of what came next and of what did not.

        Args:
            states: [batch, steps, dim], as the call returned them.
            history: [batch, steps, dim].
            negatives: [batch, steps - 1, dim], in place of the items of step 1 and later.
            mask: bool [batch, steps].
        """
        num_pairs = states.shape[1] - 1
        # Cut by tf.split, whose gradient is a concatenation: that of a slice adds up zeros.
        before, _ = tf.split(states, [num_pairs, 1], axis=1)
        _, after = tf.split(history, [1, num_pairs], axis=1)
        pairs = tf.logical_and(mask[:, :-1], mask[:, 1:])
        width = 2 * states.shape[-1]

        def logits(items):
            rows = tf.reshape(tf.concat([before, items], axis=2), [-1, width])
            return precise(tf.reshape(self.auxiliary(rows), tf.shape(pairs)))

        return AuxiliaryOutputs(logits(after), logits(negatives), pairs)
