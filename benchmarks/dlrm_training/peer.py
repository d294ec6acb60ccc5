"""The peer: DLRM as a practitioner writes it in plain PyTorch. A worker of `dlrm_training`.

One concatenated embedding table with sparse gradients, `nn.Linear`, `torch.bmm` and
`torch.tril_indices`, `torch.optim.SGD`, `torch.autocast`.
"""

import numpy as np
import torch
from torch import nn

from benchmarks.dlrm_training import workload
from benchmarks.harness.torch_training import TorchTraining, copy_linears, load_weights
from benchmarks.harness.worker import parser_of, serve_training, timed_ms
from benchmarks.harness.workload_files import load_rows


class DLRM(nn.Module):
    """Bottom MLP, embeddings, dot interaction, top MLP (Naumov et al., 2019)."""

    def __init__(self):
        super().__init__()
        rows = np.asarray(workload.TABLE_ROWS)
        self.register_buffer("offsets", torch.from_numpy(np.cumsum(rows) - rows))
        self.table = nn.Embedding(int(rows.sum()), workload.EMBEDDING_DIM, sparse=True)
        self.bottom = mlp(workload.NUM_NUMERICAL, workload.BOTTOM_MLP_DIMS, last_relu=True)
        self.top = mlp(workload.INTERACTION_WIDTH, workload.TOP_MLP_DIMS, last_relu=False)
        features = workload.NUM_FEATURES
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
        self.table.weight.copy_(weights["table"])
        copy_linears(self.bottom, weights, "bottom")
        copy_linears(self.top, weights, "top")


def mlp(inputs: int, dims: tuple[int, ...], last_relu: bool) -> nn.Sequential:
    layers = []
    for dim in dims:
        layers += [nn.Linear(inputs, dim), nn.ReLU(inplace=True)]
        inputs = dim
    return nn.Sequential(*layers if last_relu else layers[:-1])


class TorchDLRMTraining(TorchTraining):
    """The model in training, and the step's matrix products alone."""

    def __init__(self, rows: workload.DLRMRows, precision: str, weights: dict[str, torch.Tensor]):
        model = DLRM()
        model.load(weights)
        cross_entropy = nn.BCEWithLogitsLoss()

        def loss(batch: workload.DLRMRows) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
                logits = model(batch.numerical, batch.ids)
            return cross_entropy(logits.float(), batch.labels)

        optimizer = torch.optim.SGD(model.parameters(), lr=workload.LEARNING_RATE)
        super().__init__(loss, [optimizer], rows, workload.BATCH_SIZE)
        self._factors = [factors(product, precision) for product in workload.products()]

    def products_ms(self) -> list[float]:
        """Milliseconds of each of `workload.products()`."""
        return [timed_ms(lambda a=a, b=b: torch.matmul(a, b)) for a, b in self._factors]


def factors(product: workload.Product, precision: str) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = (torch.randn(shape).to(getattr(torch, precision)) for shape in (product.a, product.b))
    return (a.mT if product.transpose_a else a), (b.mT if product.transpose_b else b)


def main() -> None:
    args = parser_of(__doc__).parse_args()
    torch.set_num_threads(args.threads)
    rows = load_rows(args.folder / "rows.npz", workload.DLRMRows)
    blas = [line for line in torch.__config__.show().splitlines() if "Math Kernel" in line]
    version = f"{torch.__version__} (float32 products by {' '.join(blas).strip(' -')})"

    def make(flags: dict) -> TorchDLRMTraining:
        precision = "bfloat16" if flags["amp"] else "float32"
        return TorchDLRMTraining(rows, precision, load_weights(args.folder / "weights.npz"))

    serve_training(version, make, args.address)


if __name__ == "__main__":
    main()
