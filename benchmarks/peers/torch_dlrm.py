"""The peer: DLRM as a practitioner writes it in plain PyTorch. A side of `dlrm_training`.

One concatenated embedding table with sparse gradients, `nn.Linear`, `torch.bmm` and
`torch.tril_indices`, `torch.optim.SGD`, `torch.autocast`.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.harness.torch_training import TorchTraining, copy_linears, load_weights
from benchmarks.harness.worker import load

NUM_NUMERICAL = 13


class DLRM(nn.Module):
    """Bottom MLP, embeddings, dot interaction, top MLP (Naumov et al., 2019)."""

    def __init__(self, sizes):
        super().__init__()
        rows, features = np.asarray(sizes.table_rows), len(sizes.table_rows) + 1
        self.register_buffer("offsets", torch.from_numpy(np.cumsum(rows) - rows))
        self.table = nn.Embedding(int(rows.sum()), sizes.embedding_dim, sparse=True)
        self.bottom = mlp(NUM_NUMERICAL, sizes.bottom_mlp_dims, last_relu=True)
        width = sizes.embedding_dim + features * (features - 1) // 2
        self.top = mlp(width, sizes.top_mlp_dims, last_relu=False)
        self.register_buffer("pairs", torch.tril_indices(features, features, offset=-1))

    def forward(self, numerical, ids):
        """numerical [batch, 13], ids [batch, 26] -> logits [batch, 1]."""
        bottom = self.bottom(numerical)
        rows = self.table(ids + self.offsets).to(bottom.dtype)
        features = torch.cat([bottom.unsqueeze(1), rows], dim=1)
        gram = torch.bmm(features, features.transpose(1, 2))
        dots = gram[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([bottom, dots], dim=1))

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


def start(folder: Path, precision: str) -> TorchTraining:
    rows, sizes = load(folder)
    model, cross_entropy = DLRM(sizes), nn.BCEWithLogitsLoss()
    model.load(load_weights(folder))

    def loss(batch) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
            logits = model(batch.numerical, batch.ids)
        return cross_entropy(logits.float(), batch.labels)

    optimizer = torch.optim.SGD(model.parameters(), lr=sizes.learning_rate)
    return TorchTraining(loss, [optimizer], rows, sizes.batch_size)
