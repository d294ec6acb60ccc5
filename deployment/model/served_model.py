"""Splits a trained model of any recipe into checks, lookups and the dense part."""

from importlib import import_module
from types import ModuleType

import numpy as np
import tensorflow as tf

from deployment.model.trained_model import TrainedModel
from deployment.serving.interface import EMBEDDINGS, LOGITS, SCORES, Interface
from runtime import checkpoint

# Keras dtype policies of the dense part by `--precision`; weights stay float32.
POLICIES = {"fp32": "float32", "fp16": "mixed_float16", "bf16": "mixed_bfloat16"}


def serving_of(trained: TrainedModel) -> ModuleType:
    """Returns the module that splits a trained model: `Definition.serving`, or that of the family.

    It has `interface`, `one_row_model`, `logits`, `arrays` and `inputs_of`; with items to recommend
    `CANDIDATE_INPUT` and `candidates`; of a model that NVIDIA deploys `ORIGINAL_IDS`.

    Raises:
        ValueError: the recipe has no such module.
    """
    definition, family = trained.config.definition, trained.family
    module = family.own_serving if definition.build_model else family.serving
    if (module := definition.serving or module) is None:
        raise ValueError(
            f"recipe {definition.name}: expected a Definition with serving, the name of a module "
            f"that splits its model, such as {family.serving or 'deployment.model.served_ctr'}"
        )
    return import_module(module)


def interface_of(trained: TrainedModel) -> Interface:
    """Returns the interface of a trained model, with tables as in the checkpoint."""
    return serving_of(trained).interface(trained)


def original_tensors(interface: Interface, trained: TrainedModel) -> Interface:
    """Returns the interface with the tensors of NVIDIA's deployment of DLRM and DCNv2: ids are
    int32, and the answer is `LOGITS`.

    Raises:
        ValueError: NVIDIA's recipe has no deployment, or a cardinality exceeds int32.
    """
    ids = getattr(serving_of(trained), "ORIGINAL_IDS", None)
    if ids is None:
        raise ValueError(
            "--tensors nvidia: NVIDIA's deployments are of dlrm and dcnv2, the checkpoint is of "
            f"{trained.recipe}: use --tensors native"
        )
    largest = max((table.rows for table in interface.tables), default=0)
    if largest > 2**31:
        raise ValueError(
            f"--tensors nvidia: its ids are int32, and a table has {largest:,} rows: use --tensors "
            "native"
        )
    inputs = [
        tensor._replace(dtype="int32") if tensor.name == ids else tensor
        for tensor in interface.inputs
    ]
    return interface._replace(inputs=tuple(inputs), output=LOGITS)


def recommender_interface(interface: Interface, trained: TrainedModel, top: int) -> Interface:
    """Returns the interface of a model that answers the `top` items of a row, by logit.

    Raises:
        ValueError: the recipe has no items to recommend.
    """
    candidate_input = getattr(serving_of(trained), "CANDIDATE_INPUT", None)
    if candidate_input is None:
        raise ValueError(
            f"--top_items {top}: expected a checkpoint of sim or ncf, which recommend items, got "
            f"one of {trained.recipe}: leave the flag out"
        )
    return interface._replace(output=LOGITS, top=top, candidate_input=candidate_input)


def candidates_of(trained: TrainedModel) -> np.ndarray:
    """Returns the items that a recommender searches, as `--mode recommend` does: int64 [items,
    *dims] of its candidate input, by ascending item."""
    return serving_of(trained).candidates(trained)


def request_arrays(trained: TrainedModel, interface: Interface, inputs) -> dict[str, np.ndarray]:
    """Converts the inputs of a loader's batch to the tensors of a request, [batch, *dims] by name.

    Rows with fewer ids than the feature's hotness are filled with -1.
    """
    arrays: dict[str, np.ndarray] = serving_of(trained).arrays(interface, inputs)
    return arrays


class DenseModel(tf.Module):
    """Dense part of a model, in a Keras dtype policy: scores from embeddings.

    Args:
        trained: trained model.
        policy: Keras dtype policy.
        output: `SCORES`, or `LOGITS` for the logits in place of the scores.

    Attributes:
        output: see above.
        score: `tf.function` of float32 `embeddings` [batch, width] (not for a model without tables)
            and the tensors `interface.dense_inputs` [batch, *dims], for any batch size; returns
            sigmoid(logit), computed in float32, [batch, 1].
        weights: variables that it reads.

    Raises:
        DamagedCheckpoint: a file of the checkpoint is missing, cut or changed.
        ValueError: the checkpoint is of another model.
    """

    def __init__(self, trained: TrainedModel, policy: str = "float32", output: str = SCORES):
        super().__init__(name="dense")
        self.output = output
        family, interface = serving_of(trained), interface_of(trained)
        # Only its variables become attributes: TensorFlow would store more of a Keras model than
        # is served, and warn about what it cannot store.
        model = family.one_row_model(trained, policy)
        dense = [w for w in model.weights_to_save() if w.name.startswith("dense/")]
        with checkpoint.suggest_previous(trained.path, "--checkpoint_dir"):
            checkpoint.restore(trained.path, dense)

        def score(*tensors: tf.Tensor) -> tf.Tensor:
            vectors, inputs = None, tensors
            if interface.width:
                vectors, *inputs = tensors
            named = dict(zip(interface.dense_inputs, inputs, strict=True))
            logits = tf.cast(family.logits(model, vectors, named), tf.float32)
            # The sigmoid of infinity is a valid score, and so is onnxruntime's of NaN.
            answer = logits if output == LOGITS else tf.sigmoid(logits)
            return tf.where(tf.math.is_finite(logits), answer, np.nan)

        signature = [tf.TensorSpec([None, interface.width], tf.float32, EMBEDDINGS)]
        signature = signature[: bool(interface.width)]
        for tensor in map(interface.tensor, interface.dense_inputs):
            signature.append(tf.TensorSpec([None, *tensor.dims], tensor.dtype, tensor.name))
        self.score = tf.function(score, input_signature=signature, autograph=False)
        # Sorted: TensorFlow has them in a set.
        read = self.score.get_concrete_function().variables
        self.weights = sorted(read, key=lambda variable: variable.name)
