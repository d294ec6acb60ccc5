"""Drop-in for `DistributedEmbedding` of NVIDIA Merlin's distributed-embeddings."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from nn.embedding.layer import DistributedEmbedding
from nn.embedding.merlin_api.attributes import strategy_attributes
from nn.keras import keras


class MerlinDistributedEmbedding(DistributedEmbedding):
    """`DistributedEmbedding` with the attributes of Merlin's strategy.

    Attributes:
        strategy: See `strategy_attributes`; also the strategy, the thresholds, and the configs of
            all tables (`global_configs`).
    """

    def __init__(self, embeddings: Sequence[keras.layers.Layer], *args: Any, **kwargs: Any):
        super().__init__(embeddings, *args, **kwargs)
        self.strategy = SimpleNamespace(
            **vars(strategy_attributes(self.plan)),
            strategy=self.plan.strategy,
            column_slice_threshold=self.column_slice_threshold,
            row_slice_threshold=self.row_slice_threshold,
            data_parallel_threshold=self.data_parallel_threshold,
            global_configs=[layer.get_config() for layer in embeddings],
        )
