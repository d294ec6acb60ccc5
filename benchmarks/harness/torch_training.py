"""Training in plain PyTorch: eager, default allocator, no compiler, no extension."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn


class TorchTraining:
    """A training on `rows`, a named tuple of arrays; `loss` gets a batch of tensors like it."""

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
        self.loss, self.optimizers, self.steps = loss, optimizers, 0

    def step(self) -> float:
        """One training step; returns its loss."""
        batch = self.batches[self.steps % len(self.batches)]
        self.steps += 1
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss = self.loss(batch)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return float(loss)


def adam_optimizers(
    model: nn.Module, tables: str, eps: float, dense_eps: float, **options
) -> list[torch.optim.Optimizer]:
    """One fused Adam for all weights ("dense"), or the tables have SparseAdam ("lazy").

    The fused Adam adds `dense_eps` to another root than SparseAdam `eps`.
    """
    if tables == "dense":
        return [torch.optim.Adam(model.parameters(), eps=dense_eps, fused=True, **options)]
    lazy = [m.weight for m in model.modules() if isinstance(m, nn.Embedding)]
    ids = {id(table) for table in lazy}
    others = [p for p in model.parameters() if id(p) not in ids]
    return [
        torch.optim.Adam(others, eps=dense_eps, fused=True, **options),
        torch.optim.SparseAdam(lazy, eps=eps, **options),
    ]


def load_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Reads the weights of our side."""
    with np.load(folder / "weights.npz") as weights:
        return {name: torch.from_numpy(weights[name]) for name in weights.files}


@torch.no_grad()
def copy_linears(stack: nn.Module, weights: dict[str, torch.Tensor], name: str) -> None:
    """Copies kernels, [in, out], and biases named like `{name}.dense_0.kernel` into a stack.

    Rows of a kernel beyond the inputs, which pad it, are left out.
    """
    linears = [layer for layer in stack.modules() if isinstance(layer, nn.Linear)]
    for i, linear in enumerate(linears):
        linear.weight.copy_(weights[f"{name}.dense_{i}.kernel"][: linear.in_features].T)
        linear.bias.copy_(weights[f"{name}.dense_{i}.bias"])
