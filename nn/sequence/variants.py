"""Layers and loss of each `--variant`, chosen here and nowhere else."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from distributed_embeddings.keras import keras

from nn.sequence import nvidia
from nn.sequence.attention import ActivationUnit, DotAttention
from nn.sequence.dien import InterestEvolution
from nn.sequence.long_history import LongHistory
from nn.sequence.loss import AuxiliaryLoss, auxiliary_loss, auxiliary_loss_over_steps
from nn.sequence.mlp import Classifier
from nn.sequence.sizes import DOT, NVIDIA, PAPER, UNIT


class Variant(NamedTuple):
    """Layers and loss of a variant.

    attention: DIN's layer for each value of `SequenceModelConfig.attention`.
    evolution: DIEN's block.
    long_history: SIM's search.
    classifier: MLP with one logit.
    input_order: Order of a classifier's inputs: "user", "target", "long" (what the search returns)
        "short" (attention or evolution of the short history, or the pooled long one), and "product"
        (target times mean of the history).
    averages_stages: Whether the losses of SIM's two classifiers are averaged, and not summed.
    auxiliary_loss: DIEN's auxiliary loss.
    """

    attention: dict[str, type[keras.layers.Layer]]
    evolution: Callable[..., Any]
    long_history: Callable[..., Any]
    classifier: Callable[..., Any]
    input_order: tuple[str, ...]
    averages_stages: bool
    auxiliary_loss: AuxiliaryLoss

    def side_by_side(self, **inputs: tf.Tensor) -> tf.Tensor:
        """Concatenates [batch, any] inputs of a classifier in the variant's order."""
        return tf.concat([inputs[name] for name in self.input_order if name in inputs], axis=1)


VARIANTS = {
    PAPER: Variant(
        attention={DOT: DotAttention, UNIT: ActivationUnit},
        evolution=InterestEvolution,
        long_history=LongHistory,
        classifier=Classifier,
        input_order=("user", "target", "long", "short", "product"),
        averages_stages=False,
        auxiliary_loss=auxiliary_loss,
    ),
    NVIDIA: Variant(
        attention={DOT: nvidia.PlainDotAttention, UNIT: nvidia.UnitAttention},
        evolution=nvidia.PaddedEvolution,
        long_history=nvidia.DotSearch,
        classifier=nvidia.ScoringMLP,
        input_order=("long", "target", "short", "user"),
        averages_stages=True,
        auxiliary_loss=auxiliary_loss_over_steps,
    ),
}
