"""The one place that says which Keras the models are built with."""

from tensorflow import keras

__all__ = ["keras"]
