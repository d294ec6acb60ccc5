"""Weights of NVIDIA's NCF recipe in PyTorch, the file `model.pth`, under our names and back.

The file has the `state_dict` of NeuMF: tables `mf_user_embed.weight`, ..., layers `mlp.0.weight`
[outputs, inputs], ..., and `final.weight` [1, factors + width], whose first columns are those of
the factors.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from distributed_embeddings.box import Box
from numpy.typing import NDArray

from runtime.checkpoint.files import Index, WeightEntry, rows_of_block
from runtime.checkpoint.weight import matrix_of
from runtime.files.torch_file import TensorBlocks, read_tensors, write_state_dict

FILE = "model.pth"
_TABLES = ("mf_user", "mf_item", "mlp_user", "mlp_item")
_FLOAT32 = np.dtype("f4")


class TensorEntry(NamedTuple):
    """Entry of a weight whose values are those of a tensor; see `WeightEntry`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    values: NDArray[Any]  # of any float dtype
    name: str

    def blocks(self, wanted: Box) -> Iterator[tuple[Box, NDArray[Any]]]:
        """Yields (position, values float32) of all of a box.

        Raises:
            ValueError: a value is not finite.
        """
        whole = matrix_of(self.shape)
        matrix = self.values.reshape(whole.rows, whole.columns)
        for box in wanted.blocks(rows_of_block(whole.columns, self.dtype)):
            part = matrix[box.row : box.row_end, box.column : box.column_end]
            values = np.ascontiguousarray(part, self.dtype)
            if not np.isfinite(values).all():
                raise ValueError(
                    f"{self.name} is not finite in rows {box.row} to {box.row_end - 1}"
                )
            yield box, values


def read_neumf(path: Path) -> Index:
    """Reads the index of a file of weights; values are mapped into memory.

    Raises:
        ValueError: the file does not have the weights of a NeuMF.
    """
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
        name: TensorEntry(tuple(values.shape), _FLOAT32, values, name)
        for name, values in weights.items()
    }
    description = {"recipe": "ncf", "model_flags": flags, "flags": {}, "weights_only": str(path)}
    return Index(description, {}, entries)


def _names(num_layers: int) -> set[str]:
    """Returns the names of all tensors of a NeuMF of this many hidden layers."""
    layers = [f"mlp.{i}.{kind}" for i in range(num_layers) for kind in ("weight", "bias")]
    tables = [f"{name}_embed.weight" for name in _TABLES]
    return {*tables, *layers, "final.weight", "final.bias"}


def write_neumf(
    path: Path, entries: Mapping[str, WeightEntry], values: Mapping[str, Any]
) -> list[str]:
    """Writes the weights of a NeuMF as the file of NVIDIA's recipe.

    Args:
        path: the file.
        entries: of the weights of a checkpoint.
        values: name -> iterator over its values as matrices, some rows at a time.

    Returns:
        The names of the tensors.

    Raises:
        ValueError: the checkpoint is of another model.
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

    arrays = {}
    for i in range(len(kernels)):
        arrays[f"mlp.{i}.weight"] = whole(f"dense/mlp.dense_{i}.kernel").T
        arrays[f"mlp.{i}.bias"] = whole(f"dense/mlp.dense_{i}.bias")
    branches = [whole(f"dense/output.{kind}_kernel") for kind in ("gmf", "mlp")]
    arrays["final.weight"] = np.concatenate(branches).T
    arrays["final.bias"] = whole("dense/output.bias")
    tensors = {
        f"{name}_embed.weight": TensorBlocks(
            entries[f"sparse/{name}"].shape, _FLOAT32, values[f"sparse/{name}"]
        )
        for name in _TABLES
    }
    tensors |= {
        name: TensorBlocks(array.shape, _FLOAT32, [array]) for name, array in arrays.items()
    }
    write_state_dict(path, tensors)
    return list(tensors)
