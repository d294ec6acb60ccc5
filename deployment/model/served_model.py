"""Splits a trained model of any recipe into checks, lookups and the dense part."""

from types import ModuleType

import numpy as np
import tensorflow as tf

from dataloading.pipeline.batch import Inputs, InteractionInputs, SequenceInputs
from deployment.model import ctr, ncf, sequence
from deployment.model.serving_spec import ServingSpec
from deployment.model.trained_model import DCNV2, DLRM, NCF, SIM, TrainedModel
from deployment.serving.interface import EMBEDDINGS
from runtime import checkpoint

# What `--precision` computes the dense part in, as a Keras dtype policy; weights stay float32.
POLICIES = {"fp32": "float32", "fp16": "mixed_float16", "bf16": "mixed_bfloat16"}

# Each has `serving_spec`, `one_row_model`, `logits` and `arrays`.
_FAMILIES: dict[str, ModuleType] = {
    DLRM: ctr,
    DCNV2: ctr,
    SIM: sequence,
    NCF: ncf,
}
_FAMILY_OF_INPUTS = {
    Inputs: ctr,
    SequenceInputs: sequence,
    InteractionInputs: ncf,
}


def serving_spec_of(trained: TrainedModel) -> ServingSpec:
    """What a request of this model holds, and what is looked up for it."""
    return _FAMILIES[trained.recipe].serving_spec(trained)


def request_arrays(serving_spec: ServingSpec, inputs) -> dict[str, np.ndarray]:
    """The tensors of a request, by name, from the inputs of a batch as a loader yields them.

    Args:
        parts: of the model.
        inputs: `dataloading.pipeline.batch.Inputs`, `SequenceInputs` or `InteractionInputs` of
            TensorFlow's
            tensors or of NumPy's arrays.

    Returns:
        Arrays [batch, *dims] of the dtypes of `serving_spec.inputs`. Where a row has fewer ids than
        its feature's hotness, -1 fills the rest.
    """
    return _FAMILY_OF_INPUTS[type(inputs)].arrays(serving_spec, inputs)


class DenseModel(tf.Module):
    """A model behind its lookups: scores from vectors.

    Attributes:
        score: a `tf.function` of float32 `embeddings` [batch, width] (which a model without tables
            does not take) and the tensors `serving_spec.dense_inputs` [batch, *dims], for any batch;
            returns sigmoid(logit), computed in float32, [batch, 1].
        weights: the variables that it reads.

    Args:
        trained: the model, whose dense weights are read.
        policy: Keras dtype policy that it computes in: "float32", "mixed_float16", "mixed_bfloat16".

    Raises:
        DamagedCheckpoint: a file of the checkpoint is missing, cut or changed.
        ValueError: the checkpoint is of another model.
    """

    def __init__(self, trained: TrainedModel, policy: str = "float32"):
        super().__init__(name="dense")
        family, serving_spec = _FAMILIES[trained.recipe], serving_spec_of(trained)
        # Only its variables become attributes: of a Keras model TensorFlow would store more than
        # is served, and warn of what it cannot store.
        model = family.one_row_model(trained.shape, policy)
        dense = [w for w in model.weights_to_save() if w.name.startswith("dense/")]
        with checkpoint.suggest_previous(trained.path, "--checkpoint_dir"):
            checkpoint.restore(trained.path, dense)

        def score(*tensors: tf.Tensor) -> tf.Tensor:
            vectors, of_request = None, tensors
            if serving_spec.width:
                vectors, *of_request = tensors
            named = dict(zip(serving_spec.dense_inputs, of_request, strict=True))
            found = tf.cast(family.logits(model, vectors, named), tf.float32)
            # The sigmoid of infinity is a score like any other, and so is onnxruntime's of NaN.
            return tf.where(tf.math.is_finite(found), tf.sigmoid(found), np.nan)

        signature = [tf.TensorSpec([None, serving_spec.width], tf.float32, EMBEDDINGS)]
        signature = signature[: bool(serving_spec.width)]
        for tensor in map(serving_spec.tensor, serving_spec.dense_inputs):
            signature.append(tf.TensorSpec([None, *tensor.dims], tensor.dtype, tensor.name))
        self.score = tf.function(score, input_signature=signature, autograph=False)
        # In an order of their own: TensorFlow has them in a set.
        read = self.score.get_concrete_function().variables
        self.weights = sorted(read, key=lambda variable: variable.name)


def make_dense(trained: TrainedModel, policy: str = "float32") -> DenseModel:
    """The part of a trained model behind its lookups, see `DenseModel`."""
    return DenseModel(trained, policy)
