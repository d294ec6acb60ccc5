"""The peer: NeuMF as a practitioner writes it in plain PyTorch. A side of `ncf_training`.

`nn.Embedding`, `nn.Linear`, ReLU, dropout, binary cross-entropy of logits.
"""

from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from benchmarks.harness.torch_training import (
    TorchTraining,
    adam_optimizers,
    copy_linears,
    load_weights,
)
from benchmarks.harness.worker import load


class NeuMF(nn.Module):
    """He et al., "Neural Collaborative Filtering", 2017, with dropout."""

    def __init__(self, sizes, sparse: bool, dropout: float):
        super().__init__()
        half = sizes.layers[0] // 2
        self.mf_user = nn.Embedding(sizes.users, sizes.factors, sparse=sparse)
        self.mf_item = nn.Embedding(sizes.items, sizes.factors, sparse=sparse)
        self.mlp_user = nn.Embedding(sizes.users, half, sparse=sparse)
        self.mlp_item = nn.Embedding(sizes.items, half, sparse=sparse)
        layers = []
        for fan_in, fan_out in pairwise(sizes.layers):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU(inplace=True)]
            if dropout:
                layers.append(nn.Dropout(dropout))
        self.mlp = nn.Sequential(*layers)
        self.final = nn.Linear(sizes.factors + sizes.layers[-1], 1)

    def forward(self, rows) -> torch.Tensor:
        """The loss of a batch of tensors."""
        gmf = self.mf_user(rows.user) * self.mf_item(rows.item)
        hidden = self.mlp(torch.cat([self.mlp_user(rows.user), self.mlp_item(rows.item)], dim=1))
        logits = self.final(torch.cat([gmf, hidden], dim=1))
        return functional.binary_cross_entropy_with_logits(logits, rows.labels)

    @torch.no_grad()
    def load(self, weights: dict[str, torch.Tensor]) -> None:
        for name in ("mf_user", "mf_item", "mlp_user", "mlp_item"):
            getattr(self, name).weight.copy_(weights[name])
        copy_linears(self.mlp, weights, "mlp")
        parts = [weights[f"output.{branch}_kernel"] for branch in ("gmf", "mlp")]
        self.final.weight.copy_(torch.cat(parts).T)
        self.final.bias.copy_(weights["output.bias"])


def start(folder: Path, tables: str, dropout: float) -> TorchTraining:
    rows, sizes = load(folder)
    model = NeuMF(sizes, tables == "lazy", dropout)
    model.load(load_weights(folder))
    options = {"lr": sizes.learning_rate, "betas": sizes.betas}
    optimizers = adam_optimizers(model, tables, sizes.epsilon, sizes.epsilon, **options)
    return TorchTraining(model, optimizers, rows, sizes.batch_size)
