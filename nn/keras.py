"""Keras 2, by the name under which the models import it."""

from distributed_embeddings.keras import keras

__all__ = ["keras"]
