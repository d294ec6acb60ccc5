"""The peer: DLRM as a practitioner writes it in plain PyTorch. A worker of `dlrm_training`.

One concatenated embedding table with sparse gradients, `nn.Linear`, `torch.bmm` and
`torch.tril_indices`, `torch.optim.SGD`, `torch.autocast`; eager, no compiler, no extension.
"""

import argparse

import numpy as np
import torch
from torch import nn

from benchmarks.dlrm_training import workload
from benchmarks.harness.worker import serve, timed_ms, timed_steps
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

    def load(self, weights: dict[str, np.ndarray]) -> None:
        """Takes the initial weights of the other side; its padded inputs have no place here."""
        with torch.no_grad():
            self.table.weight.copy_(torch.from_numpy(weights["table"]))
            for name, stack in (("bottom", self.bottom), ("top", self.top)):
                linears = [layer for layer in stack if isinstance(layer, nn.Linear)]
                for i, linear in enumerate(linears):
                    kernel = torch.from_numpy(weights[f"{name}_{i}_kernel"])
                    linear.weight.copy_(kernel[: linear.in_features].T)
                    linear.bias.copy_(torch.from_numpy(weights[f"{name}_{i}_bias"]))


def mlp(inputs: int, dims: tuple[int, ...], last_relu: bool) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers = []
    for dim in dims:
        layers += [nn.Linear(inputs, dim), nn.ReLU(inplace=True)]
        inputs = dim
    return nn.Sequential(*layers if last_relu else layers[:-1])


class Training:
    """A model, its optimizer, and where it is in the rows."""

    def __init__(self, rows: workload.Rows, precision: str, weights: dict[str, np.ndarray]):
        tensors = [torch.from_numpy(array) for array in rows]
        self.batches = list(zip(*(t.split(workload.BATCH_SIZE) for t in tensors), strict=True))
        self.amp = precision == "bfloat16"
        self.model = DLRM()
        self.model.load(weights)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=workload.LEARNING_RATE)
        self.loss = nn.BCEWithLogitsLoss()
        self.steps = 0

    def step(self) -> float:
        """One training step; its loss."""
        numerical, ids, labels = self.batches[self.steps % len(self.batches)]
        self.steps += 1
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.amp):
            logits = self.model(numerical, ids)
        loss = self.loss(logits.float(), labels)
        loss.backward()
        self.optimizer.step()
        return float(loss)


class Multiplications:
    """The step's matrix products alone."""

    def __init__(self, precision: str):
        dtype = getattr(torch, precision)
        self.calls = []
        for product in workload.products():
            a, b, transpose_a, transpose_b = workload.operands(product)
            a, b = torch.randn(a).to(dtype), torch.randn(b).to(dtype)
            a, b = (a.mT if transpose_a else a), (b.mT if transpose_b else b)
            self.calls.append(lambda a=a, b=b: torch.matmul(a, b))

    def times_ms(self) -> list[float]:
        """Milliseconds of each of `workload.products()`."""
        return [timed_ms(call) for call in self.calls]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows, weights = load_rows(args.rows, workload.Rows), None
    trainings, multiplications = {}, {}

    def describe() -> dict:
        blas = [line for line in torch.__config__.show().splitlines() if "Math Kernel" in line]
        return {"version": torch.__version__, "blas": " ".join(blas).strip(" -")}

    def start(precision: str) -> dict:
        nonlocal weights
        weights = workload.load_weights(args.weights) if weights is None else weights
        trainings[precision] = Training(rows, precision, weights)
        multiplications[precision] = Multiplications(precision)
        return {}

    def steps(precision: str, count: int) -> dict:
        return timed_steps(trainings[precision].step, count)

    def products(precision: str) -> dict:
        return {"ms": multiplications[precision].times_ms()}

    serve({"describe": describe, "start": start, "steps": steps, "products": products})


if __name__ == "__main__":
    main()
