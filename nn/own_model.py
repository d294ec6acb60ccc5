"""Models of one's own, which may lack what those of the toolkit ensure."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from distributed_embeddings.keras import keras

Loss = Callable[[Any, Any], tuple[tf.Tensor, Mapping[str, tf.Tensor]]]


def seed_initializers(seed: int) -> None:
    """Makes initializers that have no seed of their own depend on `--seed`."""
    keras.utils.set_random_seed(seed % 2**32)


def checked_loss(loss: Loss) -> Loss:
    """Returns the loss, which raises ValueError if the model creates weights in its first step."""

    def checked(model: Any, batch: Any) -> tuple[tf.Tensor, Mapping[str, tf.Tensor]]:
        known = {variable.ref() for variable in model.trainable_variables}
        result = loss(model, batch)
        new = [v.name for v in model.trainable_variables if v.ref() not in known]
        if new:
            raise ValueError(
                f"{model.name}: expected all weights before the first step, got new ones in it, "
                f"which are neither trained nor stored: {', '.join(new)}; call each layer once in "
                "the constructor of the model"
            )
        return result

    return checked
