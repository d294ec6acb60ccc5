"""Training in plain PyTorch: eager, default allocator, no compiler, no extension."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.harness.training_worker import timed_in_turn


class TorchTraining:
    """A model, its optimizers, and its position in the rows.

    Args:
        loss: function of a batch: a tuple of the kind of `rows`, of tensors.
        rows: named tuple of arrays.
    """

    def __init__(
        self,
        loss: Callable[[Any], torch.Tensor],
        optimizers: Sequence[torch.optim.Optimizer],
        rows: Any,
        batch_size: int,
    ):
        tensors = [torch.from_numpy(column) for column in rows]
        batches = zip(*(tensor.split(batch_size) for tensor in tensors), strict=True)
        self.batches = [type(rows)(*columns) for columns in batches]
        self.loss, self.optimizers = loss, optimizers
        self.steps = 0

    def step(self) -> float:
        """One training step; its loss."""
        loss = self.forward()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return float(loss)

    def forward(self) -> torch.Tensor:
        """The loss of the next batch, without earlier gradients."""
        batch = self.batches[self.steps % len(self.batches)]
        self.steps += 1
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        return self.loss(batch)

    def parts_ms(self, count: int) -> dict[str, list[float]]:
        """Milliseconds of prefixes of the step and of all of it, in turn, `count` times."""
        calls = {"forward": self.forward, "forward and backward": lambda: self.forward().backward()}
        return timed_in_turn(calls | {"step": self.step}, count)


def adam_optimizers(
    model: nn.Module, lazy: bool, eps: float, dense_eps: float, **options
) -> list[torch.optim.Optimizer]:
    """One fused Adam for all weights; with `lazy` the tables have SparseAdam.

    Args:
        dense_eps: of the fused Adam, which adds it to another root than SparseAdam.
        options: of both.
    """
    embeddings = [m for m in model.modules() if isinstance(m, nn.Embedding)]
    tables = [m.weight for m in embeddings] if lazy else []
    ids = {id(table) for table in tables}
    others = [p for p in model.parameters() if id(p) not in ids]
    optimizers = [torch.optim.Adam(others, eps=dense_eps, fused=True, **options)]
    if lazy:
        optimizers.append(torch.optim.SparseAdam(tables, eps=eps, **options))
    return optimizers


@torch.no_grad()
def copy_linears(stack: nn.Module, weights: dict[str, np.ndarray], name: str) -> None:
    """Copies kernels, [in, out], and biases named like `{name}.dense_0.kernel` into a stack.

    Rows of a kernel beyond the inputs, which pad it, are left out.
    """
    linears = [layer for layer in stack.modules() if isinstance(layer, nn.Linear)]
    for i, linear in enumerate(linears):
        kernel = torch.as_tensor(weights[f"{name}.dense_{i}.kernel"])
        linear.weight.copy_(kernel[: linear.in_features].T)
        linear.bias.copy_(torch.as_tensor(weights[f"{name}.dense_{i}.bias"]))
