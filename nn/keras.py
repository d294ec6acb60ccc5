"""Selects the Keras version."""

from tensorflow import keras

__all__ = ["keras"]
