"""The peer `torch.nn.EmbeddingBag`, and the training step of both peers.

A worker of `embedding_bag`. Sparse gradients and `torch.optim.SGD`.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from benchmarks.embedding_bag import workload
from benchmarks.harness.torch_training import TorchTraining
from benchmarks.harness.worker import (
    parser_of,
    peak_memory_mib,
    reset_peak_memory,
    serve_training,
    timed_in_turn,
)
from benchmarks.harness.workload_files import load


class FixedGradient(torch.autograd.Function):
    """sum(outputs * gradients) of the first samples; its gradients are `gradients`."""

    @staticmethod
    def forward(ctx, gradients, *outputs):
        ctx.gradients = gradients
        first = slice(workload.LOSS_SAMPLES)
        pairs = zip(outputs, gradients, strict=True)
        return sum((output[first] * gradient[first]).sum() for output, gradient in pairs)

    @staticmethod
    def backward(ctx, upstream):
        return None, *ctx.gradients  # upstream is 1


class TorchBags(nn.Module):
    """One `torch.nn.EmbeddingBag` per table; [batch, dim] each."""

    def __init__(self, sizes: workload.BagSizes, optimizer: str):
        super().__init__()
        if optimizer != "sgd":
            raise ValueError(f"torch.optim has no {optimizer} for sparse gradients: expected sgd")
        self._sizes = sizes
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(sizes.num_rows, sizes.dim, mode="sum", sparse=True)
            for _ in range(sizes.num_tables)
        )

    def forward(self, ids: torch.Tensor) -> list[torch.Tensor]:
        by_table = workload.by_table(ids, self._sizes)
        return [bag(x) for bag, x in zip(self.bags, by_table, strict=True)]

    def gradients(self, whole: torch.Tensor) -> list[torch.Tensor]:
        """Returns the gradients of the outputs from [batch, tables, dim]."""
        return [part.contiguous() for part in whole.unbind(1)]

    def tables(self) -> list[torch.Tensor]:
        return [bag.weight for bag in self.bags]

    def optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(self.parameters(), lr=workload.LEARNING_RATE)]


class TorchBagTraining(TorchTraining):
    """Bags in training with an output gradient that is the same in every step."""

    def __init__(self, model: nn.Module, rows: workload.BagRows, sizes: workload.BagSizes):
        self.model = model
        with torch.no_grad():
            for t, table in enumerate(model.tables()):
                table.copy_(torch.from_numpy(workload.initial_table(sizes, t)))
        gradients = model.gradients(torch.from_numpy(workload.output_gradient(sizes)))

        def loss(batch: workload.BagRows) -> torch.Tensor:
            return FixedGradient.apply(gradients, *model(batch.ids[0]))

        super().__init__(loss, model.optimizers(), rows, batch_size=1)  # of whole batches

    def forward_ms(self, count: int) -> list[float]:
        """Milliseconds of the forward pass of all tables."""
        return timed_in_turn({"forward": self.forward}, count)["forward"]

    def save_tables(self, path: str) -> None:
        """Writes the rows of all tables, float32."""
        with Path(path).open("wb") as file:
            for table in self.model.tables():
                for rows in table.detach().split(4096):
                    file.write(rows.numpy().tobytes())


def serve_bags(
    description: str, version: str, make_model: Callable[[workload.BagSizes, str], nn.Module]
) -> None:
    """Answers requests about trainings of `make_model(sizes, optimizer)`."""
    args = parser_of(description).parse_args()
    torch.set_num_threads(args.threads)
    stored, sizes = load(args.folder, workload.BagRows, workload.BagSizes)
    rows = workload.BagRows(stored.ids.astype("int64"))  # the default of both libraries

    def start(optimizer: str) -> TorchBagTraining:
        reset_peak_memory()
        base_mib = peak_memory_mib()
        training = TorchBagTraining(make_model(sizes, optimizer), rows, sizes)
        training.facts = lambda: {"base_mib": base_mib}
        reset_peak_memory()
        return training

    serve_training(version, start, args.address)


def main() -> None:
    serve_bags(__doc__, f"torch {torch.__version__}", TorchBags)


if __name__ == "__main__":
    main()
