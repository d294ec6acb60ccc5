"""The peer: DLRM as a practitioner writes it in plain PyTorch. A worker of `dlrm_training`.

One concatenated embedding table with sparse gradients, `nn.Linear`, `torch.bmm` and
`torch.tril_indices`, `torch.optim.SGD`, `torch.autocast`.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.dlrm_training import workload
from benchmarks.harness.torch_training import TorchTraining, copy_linears, load_weights
from benchmarks.harness.worker import Started, load


class DLRM(nn.Module):
    """Bottom MLP, embeddings, dot interaction, top MLP (Naumov et al., 2019)."""

    def __init__(self, sizes: workload.DLRMSizes):
        super().__init__()
        rows, features = np.asarray(sizes.table_rows), sizes.num_features
        self.register_buffer("offsets", torch.from_numpy(np.cumsum(rows) - rows))
        self.table = nn.Embedding(int(rows.sum()), sizes.embedding_dim, sparse=True)
        self.bottom = mlp(workload.NUM_NUMERICAL, sizes.bottom_mlp_dims, last_relu=True)
        width = sizes.embedding_dim + features * (features - 1) // 2
        self.top = mlp(width, sizes.top_mlp_dims, last_relu=False)
        self.register_buffer("pairs", torch.tril_indices(features, features, offset=-1))

    def forward(self, numerical, ids):
        """numerical [batch, 13], ids [batch, 26] -> logits [batch, 1]."""
        return self.top(self.interact(self.bottom(numerical), ids))

    def interact(self, bottom, ids):
        rows = self.table(ids + self.offsets).to(bottom.dtype)
        features = torch.cat([bottom.unsqueeze(1), rows], dim=1)
        gram = torch.bmm(features, features.transpose(1, 2))
        dots = gram[:, self.pairs[0], self.pairs[1]]
        return torch.cat([bottom, dots], dim=1)

    @torch.no_grad()
    def load(self, weights: dict[str, torch.Tensor]) -> None:
        tables = [weights[f"table_{t}"] for t in range(len(self.offsets))]
        self.table.weight.copy_(torch.cat(tables))
        copy_linears(self.bottom, weights, "bottom_mlp")
        copy_linears(self.top, weights, "top_mlp")


def mlp(inputs: int, dims: tuple[int, ...], last_relu: bool) -> nn.Sequential:
    layers = []
    for dim in dims:
        layers += [nn.Linear(inputs, dim), nn.ReLU(inplace=True)]
        inputs = dim
    return nn.Sequential(*layers if last_relu else layers[:-1])


def side(folder: Path, threads: int) -> Started:
    torch.set_num_threads(threads)
    rows, sizes = load(folder, workload.DLRMRows, workload.DLRMSizes)

    def start(amp: bool) -> TorchTraining:
        model = DLRM(sizes)
        model.load(load_weights(folder))
        cross_entropy = nn.BCEWithLogitsLoss()

        def loss(batch: workload.DLRMRows) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
                logits = model(batch.numerical, batch.ids)
            return cross_entropy(logits.float(), batch.labels)

        optimizer = torch.optim.SGD(model.parameters(), lr=workload.LEARNING_RATE)
        return TorchTraining(loss, [optimizer], rows, sizes.batch_size)

    return f"torch {torch.__version__}", start
