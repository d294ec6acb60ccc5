"""DIEN's block: interests as states of a GRU, their evolution towards a target, and its loss."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from distributed_embeddings.keras import keras
from distributed_embeddings.precision import precise
from distributed_embeddings.seeds import derive_seed

from nn.sequence.attention import BilinearScores, masked_softmax
from nn.sequence.gru import AUGRU, GRU
from nn.sequence.mlp import Classifier


class AuxiliaryOutputs(NamedTuple):
    """Logits of the auxiliary loss; pair t is the state after step t and an item of step t + 1.

    positive_logits: [batch, steps - 1], at least float32, of the history's own item.
    negative_logits: [batch, steps - 1], at least float32, of the negative item.
    mask: bool [batch, steps - 1], pairs that count.
    """

    positive_logits: tf.Tensor
    negative_logits: tf.Tensor
    mask: tf.Tensor


class InterestEvolution(keras.layers.Layer):
    """DIEN (Zhou et al., 2019): GRU over a history, attention of the target, AUGRU.

        h_t = GRU(e_t);  a = softmax_t(h_t W target);  output = the last state of AUGRU(h_t, a_t)

    Args:
        dim: Width of an item's vector, and of the states.
        aux_dims: Hidden layers of the auxiliary classifier of [h_t, e_{t+1}], sigmoid units as in
            the authors' code.
        dropout: (rate, seed) of the auxiliary classifier, for variants whose `compare` uses it.
    """

    extractor_type, evolution_type, auxiliary_type = GRU, AUGRU, Classifier

    def __init__(
        self,
        dim: int,
        aux_dims: Sequence[int],
        *,
        seed: int,
        name: str,
        dropout: tuple[float, int] | None = None,
        dtype: str = "float32",
    ):
        super().__init__(name=name, dtype=dtype)
        options = {"seed": derive_seed(seed, name), "dtype": dtype}
        self.extractor = self.extractor_type(dim, name="gru", **options)
        self.scores = self.make_scores(dim, **options)
        self.evolution = self.evolution_type(dim, name="augru", **options)
        self.auxiliary = self.auxiliary_type(
            aux_dims, name="auxiliary_mlp", activation="sigmoid", dropout=dropout, **options
        )

    def make_scores(self, units: int, **options) -> keras.layers.Layer:
        """Returns the layer that scores the states for a target."""
        return BilinearScores(name="attention", **options)

    def call(self, target: tf.Tensor, history: tf.Tensor, mask: tf.Tensor):
        """Maps [batch, dim], [batch, steps, dim], bool [batch, steps] to states.

        Returns:
            (last state of the evolution [batch, dim], zeros without a step; states of the interests
            [batch, steps, dim]).
        """
        states = self.interests(history, mask)
        return self.evolve(target, states, mask), states

    def interests(self, history: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the states of the interests, which do not depend on the target."""
        return self.extractor(history, mask)

    def evolve(self, target: tf.Tensor, states: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the last state of the evolution towards a target, from the states."""
        attention = masked_softmax(self.scores((target, states)), mask)
        attention = tf.cast(attention, self.compute_dtype)
        return self.evolution(states, attention, mask)

    def compare(self, states, history, negatives, mask, place=None) -> AuxiliaryOutputs:
        """Returns logits of the next items, and of `negatives` [batch, steps - 1, dim].

        `place`, that of dropout, is not read.
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
