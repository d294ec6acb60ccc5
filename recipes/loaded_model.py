"""Model of a checkpoint as a function of batches."""

from __future__ import annotations

import functools
import os
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from config.family import Definition
from dataloading.pipeline.batch import Batch, Inputs, InteractionInputs, SequenceInputs
from deployment.model.served_model import interface_of, serving_of
from deployment.model.trained_model import open_checkpoint, restored_model
from deployment.serving.interface import ServedFeature, history_features
from nn.metrics.classification import NonFiniteScores
from nn.metrics.evaluator import Scorer
from preproc.encoding.encoder import Encoder, EncodingError
from preproc.encoding.row_forms import is_scalar, is_single_row, num_rows, part_of


class LoadedModel:
    """Model of a checkpoint: `model.predict(rows)` are the probabilities of raw rows, and
    `model(batch)` those of encoded samples.

    Args:
        checkpoint: a checkpoint, or a folder of them: the best one, else the newest.
        dataset_path: folder of the data set; None: where the training found it, or what the
            checkpoint has of it.
        recipe: the recipe of the checkpoint, see `recipes.registry.definition_of`; None: a
            built-in one.

    Attributes:
        recipe: name of the recipe.
        features: names of the features of a batch.

    Raises:
        ValueError: the checkpoint or the data set cannot be read.

    Example:
        >>> model.predict(pandas.read_csv("new_orders.csv"))  # float32 [rows]
        >>> model.predict({"city": "Bern", "price": 12.5})    # a number
        >>> model.decode("city", [1, 2]).to_pylist()
    """

    def __init__(
        self,
        checkpoint: str | os.PathLike[str],
        dataset_path: str | os.PathLike[str] | None = None,
        recipe: str | Definition | None = None,
    ):
        folder = None if dataset_path is None else os.fspath(dataset_path)
        trained = open_checkpoint(os.fspath(checkpoint), folder, recipe)
        run = trained.config.run
        # Equal batches have bit for bit the scores of `--mode predict`.
        self._batch_size = run.valid_batch_size or run.batch_size
        self.recipe, self._trained = trained.recipe, trained
        interface = interface_of(trained)
        self._features, self._histories = interface.features, history_features(interface)
        self._scorer = Scorer(restored_model(trained))

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(feature.name for feature in self._features)

    @property
    def encoder(self) -> Encoder:
        """Encoder of raw rows, read when it is first used.

        Raises:
            ValueError: the training's data set had none, or its files are damaged.
        """
        encoder = self._trained.encoder
        if encoder is None:
            raise ValueError(
                f"checkpoint {self._trained.path} has no encoder, because the data set of its "
                "training has none: pass encoded values to model(batch), or train on a data set of "
                "preproc.transcode"
            )
        return encoder

    @functools.cached_property
    def _encoded(self) -> tuple[str, ...]:
        """Features, with the names of their encodings, that are not histories."""
        encodings, histories = self.encoder.features, self._histories
        wanted = set(self.features) - set(histories)
        missing = wanted.difference(*(encoding.features for encoding in encodings))
        if missing:
            raise ValueError(
                f"expected an encoder with all features of the model, got one without "
                f"{', '.join(sorted(missing))}: pass encoded values to model(batch)"
            )
        return tuple(e.name for e in encodings if wanted.intersection(e.features))

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of raw rows that `predict` reads; see `Encoder.history_columns`."""
        names = [self.encoder[name].column for name in self._encoded]
        names += self.encoder.history_columns(self._histories).values()
        return tuple(dict.fromkeys(names))

    def predict(self, rows: Any) -> NDArray[np.float32] | float:
        """Scores raw rows, with the values that the file of the training had.

        Of a list that is longer than those of the training, the first values count; a warning has
        the number of such lists.

        Args:
            rows: a pandas frame, an Arrow table or record batch, or a dictionary of lists, with
                the columns `columns`, in batches of bounded memory; others are ignored. Histories
                are lists of original values, oldest first. A dictionary of single values is one
                row.

        Returns:
            The probability of each row in their order, float32 [rows]; a number for one row.

        Raises:
            ValueError: there is no encoder; `EncodingError`: a column is missing, or a value cannot
                be encoded.
            NonFiniteScores: a logit is NaN or infinite.
        """
        if not is_single_row(rows, self.columns):
            return self._predict(rows)
        for encoding in map(self.encoder.__getitem__, self._encoded):
            value: Any = rows.get(encoding.column)
            if encoding.hotness == 1 and not is_scalar(value):
                rule = "one value, as of other columns (many rows: a list for each column)"
                place = (encoding.name, encoding.column, None)
                raise EncodingError(*place, f"a list of {len(value)}", rule)
        (score,) = self._predict({name: [value] for name, value in rows.items()})
        return float(score)

    def _predict(self, rows: Any) -> NDArray[np.float32]:
        columns, scores = self.columns, [np.zeros(0, np.float32)]
        number, long_lists = num_rows(rows, columns), Counter[str]()
        if not number:
            self._encode(rows, long_lists)  # the errors of absent columns
        for start in range(0, number, self._batch_size):
            part = part_of(rows, columns, start, start + self._batch_size)
            try:
                scores.append(self(self._encode(part, long_lists)))
            except EncodingError as error:
                index = None if error.row is None else start + error.row
                place = (error.feature, error.column, index)
                raise EncodingError(*place, error.found, error.rule) from None
        if long_lists:
            counts = ", ".join(f"{name} {count:,}" for name, count in long_lists.items())
            warnings.warn(
                f"truncated lists: {counts}: they are longer than those of the training, and only "
                "their first values count",
                stacklevel=3,
            )
        return np.concatenate(scores)

    def _encode(self, rows: Any, long_lists: Counter[str]) -> dict[str, NDArray[Any]]:
        values = self.encoder.encode(rows, self._encoded, long_lists)
        if histories := self._histories:
            length = next(f.count for f in self._features if f.name in histories)
            values |= self.encoder.encode_histories(rows, histories, length)
        return {name: values[name] for name in self.features}

    def decode(self, feature: str, ids: Any) -> Any:
        """Returns the original values of encoded ones as an Arrow array; null for ids without one.

        Raises:
            ValueError: the feature is unknown, an id is out of range, or the encoding does not keep
                the values.
        """
        if feature not in self.features:
            raise ValueError(
                f"unknown feature {feature!r}: expected one of {', '.join(self.features)}"
            )
        return self.encoder.decode(self._histories.get(feature, feature), ids)

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
        return serving_of(self._trained).inputs_of(columns, sizes.pop())


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
