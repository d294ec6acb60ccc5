"""The peer: NeuMF as a practitioner writes it in plain PyTorch. A worker of `ncf_training`.

`nn.Embedding`, `nn.Linear`, ReLU, dropout, `BCEWithLogitsLoss`. Tables have sparse gradients and
`SparseAdam` ("lazy"), or dense ones and one fused `Adam` for all weights ("dense").
"""

from itertools import pairwise

import numpy as np
import torch
from torch import nn

from benchmarks.harness.torch_training import TorchTraining, adam_optimizers, copy_linears
from benchmarks.harness.training_worker import parser_of, serve_training
from benchmarks.harness.workload_files import load
from benchmarks.ncf_training import workload


class NeuMF(nn.Module):
    """He et al., "Neural Collaborative Filtering", 2017, with dropout."""

    def __init__(self, sizes: workload.NCFSizes, sparse: bool):
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
        """Copies the weights of our side."""
        for name in ("mf_user", "mf_item", "mlp_user", "mlp_item"):
            getattr(self, name).weight.copy_(torch.from_numpy(weights[name]))
        copy_linears(self.mlp, weights, "mlp")
        parts = [weights[f"output.{branch}_kernel"] for branch in ("gmf", "mlp")]
        self.final.weight.copy_(torch.from_numpy(np.concatenate(parts).T))
        self.final.bias.copy_(torch.from_numpy(weights["output.bias"]))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--tables", choices=("lazy", "dense"), required=True)
    args = parser.parse_args()
    lazy = args.tables == "lazy"
    torch.set_num_threads(args.threads)
    rows, sizes = load(args.folder, workload.NCFRows, workload.NCFSizes)
    cross_entropy = nn.BCEWithLogitsLoss()

    def make(dropout: float) -> TorchTraining:
        model = NeuMF(workload.with_dropout(sizes, dropout), lazy)
        with np.load(args.folder / "weights.npz") as weights:
            model.load(weights)
        optimizers = adam_optimizers(
            *(model, lazy, workload.EPSILON, workload.EPSILON),
            lr=workload.LEARNING_RATE,
            betas=(workload.BETA1, workload.BETA2),
        )

        def loss(batch: workload.NCFRows) -> torch.Tensor:
            return cross_entropy(model(batch.user, batch.item), batch.labels)

        return TorchTraining(loss, optimizers, rows, sizes.batch_size)

    serve_training(torch.__version__, make)


if __name__ == "__main__":
    main()
