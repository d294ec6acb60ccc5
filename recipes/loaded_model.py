"""Model of a checkpoint as a function of batches."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from dataloading.pipeline.batch import Batch, Inputs, InteractionInputs, SequenceInputs
from deployment.model import ctr, ncf, sequence
from deployment.model.served_model import serving_spec_of
from deployment.model.trained_model import NCF, SIM, open_checkpoint, restored_recipe
from deployment.serving.interface import ServedFeature
from nn.metrics.classification import NonFiniteScores
from nn.metrics.evaluator import Scorer


class LoadedModel:
    """Model of a checkpoint: `model(batch)` are the probabilities of its samples.

    Args:
        checkpoint: a checkpoint, or a folder of them: the best one, else the newest.
        dataset_path: folder of the data set; None: where the training found it.

    Attributes:
        recipe: name of the recipe.
        features: names of the features of a batch.

    Raises:
        ValueError: the checkpoint or the data set cannot be read.
    """

    def __init__(
        self,
        checkpoint: str | os.PathLike[str],
        dataset_path: str | os.PathLike[str] | None = None,
    ):
        folder = None if dataset_path is None else os.fspath(dataset_path)
        trained = open_checkpoint(os.fspath(checkpoint), folder)
        run = trained.config.run
        batch_size = run.valid_batch_size or run.batch_size
        self.recipe = trained.recipe
        self._features: Sequence[ServedFeature] = serving_spec_of(trained).features
        self._scorer = Scorer(restored_recipe(trained, batch_size).model)

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(feature.name for feature in self._features)

    def __call__(self, batch: Batch | Any | Mapping[str, Any]) -> NDArray[np.float32]:
        """Scores samples.

        Args:
            batch: a batch of a data set or its inputs (`dataloading.pipeline.batch`); or the values
                of each feature by name, [samples] or [samples, values per sample].

        Returns:
            The probability of each sample, float32 [samples].

        Raises:
            ValueError: `batch` is something else, a feature is missing or unknown, or a value is
                invalid.
            NonFiniteScores: a logit is NaN or infinite.
        """
        if isinstance(batch, Mapping):
            inputs = self._inputs_of(batch)
        else:
            inputs = batch.inputs if isinstance(batch, Batch) else batch
            if not isinstance(inputs, Inputs | SequenceInputs | InteractionInputs):
                raise ValueError(
                    "batch: expected a dictionary with the values of the features "
                    f"{', '.join(self.features)}, a batch of a data set or its inputs, got a "
                    f"{type(batch).__name__}"
                )
        logits = tf.reshape(self._scorer.score(inputs), [-1])
        if not np.isfinite(logits).all():
            raise NonFiniteScores("a logit is NaN or infinite: the model has diverged")
        return np.asarray(tf.sigmoid(logits))

    def _inputs_of(self, batch: Mapping[str, Any]) -> Any:
        """Returns the inputs of the model from the values of each feature."""
        names = set(self.features)
        for text, wrong in (("missing", names - set(batch)), ("unknown", set(batch) - names)):
            if wrong:
                raise ValueError(
                    f"{text} feature {min(wrong)!r}: expected the features "
                    f"{', '.join(self.features)}"
                )
        columns: dict[str, list[tf.Tensor]] = {}
        sizes = set()
        for feature in self._features:
            values = _checked(feature, batch[feature.name])
            sizes.add(len(values))
            columns.setdefault(feature.input, []).append(tf.constant(values))
        if len(sizes) > 1:
            raise ValueError(f"expected equally many samples of each feature, got {sorted(sizes)}")
        if self.recipe == NCF:
            (user,), (item,) = columns[ncf.USER], columns[ncf.ITEM]
            return InteractionInputs(user[:, 0], item[:, 0])
        if self.recipe == SIM:
            parts = {name: tuple(tensors) for name, tensors in columns.items()}
            user, history = parts.get(sequence.USER, ()), parts.get(sequence.HISTORY, ())
            return SequenceInputs(user, parts[sequence.TARGET], history, ())
        numerical = columns.get(ctr.NUMERICAL) or [tf.zeros([sizes.pop(), 0])]
        return Inputs(tf.concat(numerical, axis=1), tuple(columns.get(ctr.CATEGORICAL, ())))


def _checked(feature: ServedFeature, values: Any) -> NDArray[Any]:
    """Returns the values of a feature, [samples, feature.count]; ValueError if they are invalid."""
    array = np.asarray(values)
    array = array[:, None] if array.ndim == 1 else array
    where = f"feature {feature.name!r}"
    if array.ndim != 2 or array.shape[1] != feature.count:
        raise ValueError(
            f"{where}: expected {feature.count} values per sample, got an array {array.shape}"
        )
    if feature.cardinality is None:
        if not np.isfinite(numbers := array.astype(np.float32)).all():
            raise ValueError(f"{where}: expected finite numbers, got NaN or infinity")
        return numbers
    if array.dtype.kind not in "iu":
        raise ValueError(f"{where}: expected integer ids, got {array.dtype}")
    if len(array) and not 0 <= array.min() <= array.max() < feature.cardinality:
        raise ValueError(
            f"{where}: expected ids from 0 to {feature.cardinality - 1}, got {array.min()} to "
            f"{array.max()}"
        )
    return array.astype(np.int64 if feature.cardinality > 2**31 else np.int32)
