"""Refusal of strategies with several replicas; the layer works without one."""

import numpy as np
import pytest
import tensorflow as tf
from distributed_embeddings.layers.embedding import Embedding
from distributed_embeddings.merlin.distributed_embedding import DistributedEmbedding


class MirroredStrategy:
    """Stand-in for TensorFlow's: two devices are set up before TensorFlow starts."""

    num_replicas_in_sync = 2


@pytest.mark.parametrize("is_built", [False, True])
def test_several_replicas(is_built, monkeypatch):
    ids = tf.constant([[1, 2]])
    layer = DistributedEmbedding([Embedding(4, 3, combiner="sum")]) if is_built else None
    with monkeypatch.context() as patch:
        patch.setattr(tf.distribute, "get_strategy", MirroredStrategy)
        with pytest.raises(
            ValueError, match="MirroredStrategy with 2 replicas: leave the"
        ) as error:
            layer([ids]) if layer else DistributedEmbedding([Embedding(4, 3, combiner="sum")])
    assert "horovodrun -np N python TRAIN.py" in str(error.value)
    # The remedy: no strategy.
    layer = layer or DistributedEmbedding([Embedding(4, 3, combiner="sum")])
    (output,) = layer([ids])
    np.testing.assert_allclose(output[0], tf.reduce_sum(layer.get_weights()[0][1:3], axis=0))


def test_one_replica():
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        layer = DistributedEmbedding([Embedding(4, 3, combiner="sum")])
    (output,) = layer([tf.constant([[1, 2]])])
    assert output.shape == (1, 3)
