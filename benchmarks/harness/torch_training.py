"""Training in plain PyTorch: eager, default allocator, no compiler, no extension."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.harness.worker import Started, load


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
    model: nn.Module, lazy: bool, eps: float, dense_eps: float, **options
) -> list[torch.optim.Optimizer]:
    """One fused Adam for all weights; with `lazy` the tables have SparseAdam.

    The fused Adam adds `dense_eps` to another root than SparseAdam `eps`.
    """
    if not lazy:
        return [torch.optim.Adam(model.parameters(), eps=dense_eps, fused=True, **options)]
    tables = [m.weight for m in model.modules() if isinstance(m, nn.Embedding)]
    ids = {id(table) for table in tables}
    others = [p for p in model.parameters() if id(p) not in ids]
    return [
        torch.optim.Adam(others, eps=dense_eps, fused=True, **options),
        torch.optim.SparseAdam(tables, eps=eps, **options),
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


def adam_side(
    folder: Path,
    threads: int,
    tables: str,
    rows_kind: type,
    sizes_kind: type,
    make_model: Callable[..., nn.Module],
    eps: float,
    dense_eps: float,
    **adam,
) -> Started:
    """A side of trainings of `make_model(sizes, is_sparse, **options)`.

    The model returns the loss of a batch, and loads the weights of our side with `load`. Tables
    have sparse gradients and `SparseAdam` ("lazy"), or dense ones and one fused `Adam` for all
    weights ("dense").
    """
    torch.set_num_threads(threads)
    rows, sizes = load(folder, rows_kind, sizes_kind)

    def start(**options) -> TorchTraining:
        model = make_model(sizes, tables == "lazy", **options)
        with torch.no_grad():
            model.load(load_weights(folder))
        optimizers = adam_optimizers(model, tables == "lazy", eps, dense_eps, **adam)
        return TorchTraining(model, optimizers, rows, sizes.batch_size)

    return f"torch {torch.__version__}", start
