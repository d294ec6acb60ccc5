"""The peers fbgemm, Intel's extension and `torch.nn.EmbeddingBag`. Sides of `embedding_bag`.

fbgemm: table-batched embedding bags, which TorchRec uses; the backward pass updates the rows.
Intel's extension for PyTorch: merged embedding bags, whose backward pass updates the rows, too.
PyTorch: sparse gradients and `torch.optim.SGD`; it has no row-wise Adagrad for them.
"""

from pathlib import Path

import torch
from torch import nn

from benchmarks.embedding_bag import workload
from benchmarks.harness.torch_training import TorchTraining
from benchmarks.harness.worker import load


class FixedGradient(torch.autograd.Function):
    """sum(outputs * gradients) of the first samples; its gradients are `gradients`."""

    @staticmethod
    def forward(ctx, gradients, *outputs):
        ctx.gradients = gradients
        first = slice(workload.LOSS_SAMPLES)
        pairs = zip(outputs, gradients, strict=True)
        return sum((output[first] * gradient[first]).float().sum() for output, gradient in pairs)

    @staticmethod
    def backward(ctx, upstream):
        return None, *ctx.gradients  # upstream is 1


class TorchBags(nn.Module):
    """One `torch.nn.EmbeddingBag` per table; [batch, dim] each."""

    layout = "tables"

    def __init__(self, sizes, optimizer: str):
        super().__init__()
        self._sizes = sizes
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(sizes.num_rows, sizes.dim, mode="sum", sparse=True)
            for _ in range(len(sizes.hotness))
        )
        self.tables = [bag.weight for bag in self.bags]
        self.optimizers = [torch.optim.SGD(self.parameters(), lr=sizes.learning_rate)]

    def forward(self, ids: torch.Tensor) -> list[torch.Tensor]:
        by_table = workload.by_table(ids, self._sizes)
        return [bag(x) for bag, x in zip(self.bags, by_table, strict=True)]


class FbgemmBags(nn.Module):
    """All tables in one call; [batch, tables x dim]."""

    layout = "concatenated"

    def __init__(self, sizes, optimizer: str):
        from fbgemm_gpu import split_table_batched_embeddings_ops_common as common
        from fbgemm_gpu import split_table_batched_embeddings_ops_training as fbgemm
        from fbgemm_gpu.split_embedding_configs import EmbOptimType

        super().__init__()
        device = (common.EmbeddingLocation.HOST, fbgemm.ComputeDevice.CPU)
        self.bags = fbgemm.SplitTableBatchedEmbeddingBagsCodegen(
            [(sizes.num_rows, sizes.dim, *device)] * len(sizes.hotness),
            optimizer=EmbOptimType[f"EXACT_{optimizer.upper()}"],
            learning_rate=sizes.learning_rate,
            eps=sizes.epsilon,
            pooling_mode=common.PoolingMode.SUM,
            bounds_check_mode=common.BoundsCheckMode.NONE,  # as our side, whose loader checks ids
            stochastic_rounding=False,
            device=torch.device("cpu"),
        )
        lengths = torch.tensor(sizes.hotness).repeat_interleave(sizes.batch_size)
        ends = torch.cumsum(lengths, 0)
        self.offsets = torch.cat([torch.zeros(1, dtype=ends.dtype), ends])
        self.tables, self.optimizers = self.bags.split_embedding_weights(), []

    def forward(self, ids: torch.Tensor) -> list[torch.Tensor]:
        return [self.bags(ids, self.offsets)]


class IntelBags(nn.Module):
    """All tables in one call; [batch, dim] each."""

    layout = "tables"

    def __init__(self, sizes, optimizer: str):
        from intel_extension_for_pytorch.nn.modules import merged_embeddingbag as intel

        super().__init__()
        self._sizes, self.optimizers = sizes, []
        bags = [
            nn.EmbeddingBag(sizes.num_rows, sizes.dim, mode="sum", include_last_offset=True)
            for _ in range(len(sizes.hotness))
        ]
        if optimizer == "sgd":
            kind, options = intel.MergedEmbeddingBagWithSGD, {}
        else:
            kind, options = intel.MergedEmbeddingBagWithAdaGrad, {"eps": sizes.epsilon}
        self.bags = kind.from_embeddingbag_list(bags, lr=sizes.learning_rate, **options)
        self.tables = list(self.bags.weights)
        self.offsets = [torch.arange(sizes.batch_size + 1) * hotness for hotness in sizes.hotness]

    def forward(self, ids: torch.Tensor) -> list[torch.Tensor]:
        by_table = workload.by_table(ids, self._sizes)
        return list(self.bags([part.flatten() for part in by_table], self.offsets))


LIBRARIES = {"fbgemm": FbgemmBags, "intel": IntelBags, "torch": TorchBags}


def start(folder: Path, library: str, optimizer: str, layout: str) -> TorchTraining:
    rows, sizes = load(folder)
    rows = rows._replace(ids=rows.ids.astype("int64"))  # the default of both libraries
    model, dtype = LIBRARIES[library](sizes, optimizer), getattr(torch, sizes.dtype)
    with torch.no_grad():
        for t, table in enumerate(model.tables):
            table.copy_(torch.from_numpy(workload.initial_table(sizes, t)))
    gradients = workload.output_gradients(sizes, layout)
    gradients = [torch.from_numpy(x).to(dtype) for x in gradients]

    def loss(batch) -> torch.Tensor:
        outputs = [output.to(dtype) for output in model(batch.ids[0])]
        if model.layout != layout:
            concatenates = layout == "concatenated"
            outputs = [torch.cat(outputs, 1)] if concatenates else outputs[0].split(sizes.dim, 1)
        return FixedGradient.apply(gradients, *outputs)

    return TorchTraining(loss, model.optimizers, rows, batch_size=1)  # of whole batches
