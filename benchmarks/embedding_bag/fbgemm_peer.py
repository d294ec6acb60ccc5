"""The peer fbgemm. A worker of `embedding_bag`.

Table-batched embedding bags, which TorchRec uses; the backward pass updates the rows.
"""

from importlib import metadata

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import (
    BoundsCheckMode,
    EmbeddingLocation,
    PoolingMode,
)
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)
from torch import nn

from benchmarks.embedding_bag import workload
from benchmarks.embedding_bag.torch_peer import serve_bags

OPTIMIZERS = {
    "sgd": EmbOptimType.EXACT_SGD,
    "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
}


class FbgemmBags(nn.Module):
    """All tables in one call; [batch, tables x dim]."""

    def __init__(self, sizes: workload.BagSizes, optimizer: str):
        super().__init__()
        table = (sizes.num_rows, sizes.dim, EmbeddingLocation.HOST, ComputeDevice.CPU)
        self.bags = SplitTableBatchedEmbeddingBagsCodegen(
            [table] * sizes.num_tables,
            optimizer=OPTIMIZERS[optimizer],
            learning_rate=workload.LEARNING_RATE,
            eps=workload.EPSILON,
            pooling_mode=PoolingMode.SUM,
            bounds_check_mode=BoundsCheckMode.NONE,  # as our side, whose loader checks the ids
            stochastic_rounding=False,
            device=torch.device("cpu"),
        )
        lengths = torch.tensor(sizes.hotness).repeat_interleave(sizes.batch_size)
        ends = torch.cumsum(lengths, 0)
        self.offsets = torch.cat([torch.zeros(1, dtype=ends.dtype), ends])

    def forward(self, ids: torch.Tensor) -> list[torch.Tensor]:
        return [self.bags(ids, self.offsets)]

    def gradients(self, whole: torch.Tensor) -> list[torch.Tensor]:
        """Returns the gradient of the output from [batch, tables, dim]."""
        return [whole.flatten(1)]

    def tables(self) -> list[torch.Tensor]:
        return self.bags.split_embedding_weights()

    def optimizers(self) -> list[torch.optim.Optimizer]:
        return []


def main() -> None:
    version = f"{metadata.version('fbgemm-gpu-cpu')} with torch {torch.__version__}"
    serve_bags(__doc__, version, FbgemmBags)


if __name__ == "__main__":
    main()
