"""The peer: NeuMF as a practitioner writes it in plain PyTorch.

A worker of `ncf_training`. `nn.Embedding`, `nn.Linear`, ReLU, dropout, `BCEWithLogitsLoss`;
autograd, eager, no compiler, no extension. Tables have sparse gradients and `SparseAdam` ("lazy"),
or dense ones and one fused `Adam` for everything ("dense").
"""

from itertools import pairwise

import numpy as np
import torch
from torch import nn

from benchmarks.harness.training_worker import parser_of, serve_training
from benchmarks.harness.workload_files import load
from benchmarks.ncf_training import workload
from benchmarks.ncf_training.workload import timed_in_turn

BETAS = (workload.BETA1, workload.BETA2)


class NeuMF(nn.Module):
    """He et al., "Neural Collaborative Filtering", 2017, with dropout."""

    def __init__(self, sizes: workload.Sizes, sparse: bool):
        super().__init__()
        half = sizes.layers[0] // 2
        self.mf_user = nn.Embedding(sizes.users, sizes.factors, sparse=sparse)
        self.mf_item = nn.Embedding(sizes.items, sizes.factors, sparse=sparse)
        self.mlp_user = nn.Embedding(sizes.users, half, sparse=sparse)
        self.mlp_item = nn.Embedding(sizes.items, half, sparse=sparse)
        layers = []
        for fan_in, fan_out in pairwise(sizes.layers):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU(inplace=True)]
            if sizes.dropout:
                layers.append(nn.Dropout(sizes.dropout))
        self.mlp = nn.Sequential(*layers)
        self.final = nn.Linear(sizes.factors + sizes.layers[-1], 1)

    def forward(self, user, item):
        """[batch] each -> logits [batch, 1]."""
        gmf = self.mf_user(user) * self.mf_item(item)
        hidden = self.mlp(torch.cat([self.mlp_user(user), self.mlp_item(item)], dim=1))
        return self.final(torch.cat([gmf, hidden], dim=1))

    @torch.no_grad()
    def load(self, weights: dict[str, np.ndarray]) -> None:
        """Takes the weights of the other side."""
        for name in ("mf_user", "mf_item", "mlp_user", "mlp_item"):
            getattr(self, name).weight.copy_(torch.from_numpy(weights[name]))
        linears = [layer for layer in self.mlp if isinstance(layer, nn.Linear)]
        for i, linear in enumerate(linears):
            linear.weight.copy_(torch.from_numpy(weights[f"mlp.dense_{i}.kernel"].T))
            linear.bias.copy_(torch.from_numpy(weights[f"mlp.dense_{i}.bias"]))
        parts = [weights[f"output.{branch}_kernel"] for branch in ("gmf", "mlp")]
        self.final.weight.copy_(torch.from_numpy(np.concatenate(parts).T))
        self.final.bias.copy_(torch.from_numpy(weights["output.bias"]))


class Training:
    """A model, its optimizers, and where it is in the rows."""

    def __init__(self, rows: workload.Rows, sizes: workload.Sizes, tables: str, weights):
        tensors = [torch.from_numpy(column) for column in rows]
        self.batches = list(zip(*(t.split(sizes.batch_size) for t in tensors), strict=True))
        self.model = NeuMF(sizes, sparse=tables == "lazy")
        self.model.load(weights)
        self.loss = nn.BCEWithLogitsLoss()
        embeddings = [m for m in self.model.modules() if isinstance(m, nn.Embedding)]
        lazy = [m.weight for m in embeddings] if tables == "lazy" else []
        ids = {id(table) for table in lazy}
        others = [p for p in self.model.parameters() if id(p) not in ids]
        options = {"lr": workload.LEARNING_RATE, "betas": BETAS, "eps": workload.EPSILON}
        self.optimizers = [torch.optim.Adam(others, **options, fused=True)]
        if lazy:
            self.optimizers.append(torch.optim.SparseAdam(lazy, **options))
        self.steps = 0

    def step(self) -> float:
        """One training step; its loss."""
        loss = self.forward()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return float(loss)

    def forward(self):
        """The loss of the next batch; gradients of the one before are gone."""
        user, item, labels = self.batches[self.steps % len(self.batches)]
        self.steps += 1
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        return self.loss(self.model(user, item), labels)

    def parts_ms(self, count: int) -> dict[str, list[float]]:
        """Milliseconds of prefixes of the step and of all of it, in turn, `count` times."""
        calls = {"forward": self.forward, "forward and backward": lambda: self.forward().backward()}
        return timed_in_turn(calls | {"step": self.step}, count)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--tables", choices=("lazy", "dense"), required=True)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows, sizes = load(args.folder, workload.Rows, workload.Sizes)

    def make(dropout: float) -> Training:
        with np.load(args.folder / "weights.npz") as stored:
            weights = dict(stored)
        return Training(rows, workload.with_dropout(sizes, dropout), args.tables, weights)

    serve_training(torch.__version__, make)


if __name__ == "__main__":
    main()
