"""Refusal of `tf.distribute` strategies, which a layer of sharded tables cannot follow."""

import tensorflow as tf


def check_single_replica(name: str) -> None:
    """Raises ValueError in the scope, or in a replica, of a strategy with several replicas.

    A replica would look up its own copy of the tables, or none.

    Args:
        name: of the layer, for the message.
    """
    strategy = tf.distribute.get_strategy()
    if strategy.num_replicas_in_sync > 1:
        raise ValueError(
            f"{name}: expected one process per device, got {type(strategy).__name__} with "
            f"{strategy.num_replicas_in_sync} replicas: leave the tf.distribute strategy out, "
            "take gradients with DistributedGradientTape, and start a process per device: "
            "horovodrun -np N python TRAIN.py"
        )
