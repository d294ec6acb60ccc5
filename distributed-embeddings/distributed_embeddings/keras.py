"""Selects Keras 2: a part of TensorFlow up to 2.15, the package `tf_keras` from 2.16 on."""

import tensorflow as tf

if tuple(map(int, tf.__version__.split(".")[:2])) < (2, 16):
    from tensorflow import keras
else:
    import tf_keras as keras

__all__ = ["check_keras_2", "keras"]


def check_keras_2(value: object, kinds: tuple[type, ...], description: str) -> None:
    """Raises ValueError for a layer or optimizer of Keras 3, whose weights would not be trained."""
    if isinstance(value, kinds):
        return
    kind = type(value)
    raise ValueError(
        f"{description}: expected one of Keras 2 ({kinds[0].__module__}), got "
        f"{kind.__module__}.{kind.__qualname__}. Import distributed_embeddings before the program "
        "first uses tf.keras, or set the environment variable TF_USE_LEGACY_KERAS=1"
    )
