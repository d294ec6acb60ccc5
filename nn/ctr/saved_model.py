"""Ranking model that is loaded from a SavedModel."""

import os
from collections.abc import Sequence

import tensorflow as tf

# Scores in float32 are at least this far from 0 and 1, so that their logits are finite.
_MARGIN = 1e-7


class SavedRankingModel:
    """SavedModel that `deployment.export` wrote: numerical features and ids -> scores.

    Args:
        folder: The SavedModel.
        hotness: Ids per sample of each categorical feature; samples with fewer are filled with -1.

    Raises:
        ValueError: The folder has no SavedModel, or not that of a ranking model.
    """

    def __init__(self, folder: str, hotness: Sequence[int]):
        if not os.path.isfile(os.path.join(folder, "saved_model.pb")):
            raise ValueError(
                f"--saved_model_input_path {folder}: expected the folder of a SavedModel, which "
                "has a file saved_model.pb; write one with --saved_model_output_path"
            )
        self._loaded = tf.saved_model.load(folder)  # keeps the variables of the signature
        signature = self._loaded.signatures.get("serving_default")
        self._inputs = set(signature.structured_input_signature[1]) if signature else set()
        outputs = signature.structured_outputs if signature else {}
        known = {"numerical_features", "categorical_features"}
        if not self._inputs or not self._inputs <= known or "scores" not in outputs:
            raise ValueError(
                f"--saved_model_input_path {folder}: expected the inputs {sorted(known)} and the "
                f"output scores, got {sorted(self._inputs)} and {sorted(outputs)}; write it with "
                "--saved_model_output_path"
            )
        self._signature, self._hotness = signature, hotness
        self.num_parameters = sum(v.shape.num_elements() for v in signature.variables)

    def __call__(self, inputs: Sequence) -> tf.Tensor:
        """Returns logits [batch, 1] float32 of inputs as `nn.ctr.model.CTRModel.call` takes."""
        numerical, ids = inputs
        tensors = {"numerical_features": tf.cast(numerical, tf.float32)}
        if ids:
            columns = [self._dense(*pair) for pair in zip(ids, self._hotness, strict=True)]
            tensors["categorical_features"] = tf.concat(columns, axis=1)
        scores = self._signature(**{name: tensors[name] for name in self._inputs})["scores"]
        scores = tf.clip_by_value(scores, _MARGIN, 1 - _MARGIN)
        return tf.math.log(scores) - tf.math.log1p(-scores)

    @staticmethod
    def _dense(ids, hotness: int) -> tf.Tensor:
        """Returns ids int64 [batch, hotness], of a tensor or of (values, row splits)."""
        if isinstance(ids, tuple):
            ids = tf.RaggedTensor.from_row_splits(*ids, validate=False).to_tensor(
                -1, [None, hotness]
            )
        return tf.cast(ids, tf.int64)
