"""Selects Keras 2: a part of TensorFlow up to 2.15, the package `tf_keras` from 2.16 on."""

import tensorflow as tf

if tuple(map(int, tf.__version__.split(".")[:2])) < (2, 16):
    from tensorflow import keras
else:
    import tf_keras as keras

__all__ = ["keras"]
