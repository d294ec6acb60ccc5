"""Weights of NVIDIA's NCF recipe in PyTorch, the file `model.pth`, under our names and back.

The file has the `state_dict` of NeuMF: tables `mf_user_embed.weight`, ..., layers `mlp.0.weight`
[outputs, inputs], ..., and `final.weight` [1, factors + width], whose first columns are those of
the factors.
"""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.checkpoint.files import ArrayEntry, Index, WeightEntry
from runtime.files.torch_file import read_tensors, write_tensors

FILE = "model.pth"
_TABLES = ("mf_user", "mf_item", "mlp_user", "mlp_item")


def read_neumf(path: Path) -> Index:
    """Reads the index of a file of weights, which are mapped into memory; ValueError for others."""
    state = read_tensors(path)
    if not isinstance(state, dict):
        raise ValueError(f"{path}: expected the state_dict of NeuMF, got a {type(state).__name__}")
    # The prefix is that of a model in DistributedDataParallel.
    tensors = {
        str(name).removeprefix("module."): value
        for name, value in state.items()
        if isinstance(value, np.ndarray)
    }
    num_layers = sum(bool(re.fullmatch(r"mlp\.\d+\.weight", name)) for name in tensors)
    expected = _names(num_layers)
    if tensors.keys() != expected or not num_layers:
        missing = ", ".join(sorted(expected - tensors.keys())) or "nothing"
        extra = ", ".join(sorted(tensors.keys() - expected)) or "nothing"
        raise ValueError(
            f"{path}: expected the state_dict of NeuMF; it lacks {missing:.200} and has "
            f"{extra:.200} too many"
        )
    layers = [tensors[f"mlp.{i}.weight"] for i in range(num_layers)]
    factors = tensors["mf_user_embed.weight"].shape[-1]
    final = tensors["final.weight"]
    weights = {f"sparse/{name}": tensors[f"{name}_embed.weight"] for name in _TABLES}
    for i, layer in enumerate(layers):
        weights[f"dense/mlp.dense_{i}.kernel"] = layer.T
        weights[f"dense/mlp.dense_{i}.bias"] = tensors[f"mlp.{i}.bias"]
    weights["dense/output.gmf_kernel"] = final[:, :factors].T
    weights["dense/output.mlp_kernel"] = final[:, factors:].T
    weights["dense/output.bias"] = tensors["final.bias"]
    flags = {
        "model_type": "neumf",
        "factors": factors,
        "layers": [layers[0].shape[1], *(layer.shape[0] for layer in layers)],
    }
    entries: dict[str, Any] = {
        name: ArrayEntry(tuple(values.shape), functools.partial(np.asarray, values), name)
        for name, values in weights.items()
    }
    description = {"recipe": "ncf", "model_flags": flags, "flags": {}, "weights_only": str(path)}
    return Index(description, {}, entries, {})


def _names(num_layers: int) -> set[str]:
    layers = [f"mlp.{i}.{kind}" for i in range(num_layers) for kind in ("weight", "bias")]
    tables = [f"{name}_embed.weight" for name in _TABLES]
    return {*tables, *layers, "final.weight", "final.bias"}


def write_neumf(
    path: Path, entries: Mapping[str, WeightEntry], values: Mapping[str, Any]
) -> list[str]:
    """Writes the weights of a NeuMF as the file of NVIDIA's recipe.

    `values` iterates over each weight as matrices, some rows at a time.

    Returns:
        The names of the tensors.

    Raises:
        ValueError: the checkpoint is of another model, or PyTorch is not installed.
    """
    kernels = [name for name in entries if re.fullmatch(r"dense/mlp\.dense_\d+\.kernel", name)]
    missing = [f"sparse/{name}" for name in _TABLES if f"sparse/{name}" not in entries]
    if missing or not kernels:
        raise ValueError(
            f"{FILE} has the weights of ncf.py --model_type neumf, which this checkpoint is not: "
            f"it lacks {', '.join(missing) or 'the MLP'}"
        )

    def whole(name: str) -> NDArray[Any]:
        array: NDArray[Any] = np.concatenate(list(values[name]))
        return array.reshape(entries[name].shape)

    arrays = {f"{name}_embed.weight": whole(f"sparse/{name}") for name in _TABLES}
    for i in range(len(kernels)):
        arrays[f"mlp.{i}.weight"] = whole(f"dense/mlp.dense_{i}.kernel").T
        arrays[f"mlp.{i}.bias"] = whole(f"dense/mlp.dense_{i}.bias")
    branches = [whole(f"dense/output.{kind}_kernel") for kind in ("gmf", "mlp")]
    arrays["final.weight"] = np.concatenate(branches).T
    arrays["final.bias"] = whole("dense/output.bias")
    write_tensors(path, {name: array.astype(np.float32) for name, array in arrays.items()})
    return list(arrays)
