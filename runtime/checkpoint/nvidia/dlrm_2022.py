"""Checkpoints of NVIDIA's DLRM of 2022: one folder of .npy files, without a configuration.

`feature_{i}_part0.npy` is table number i; `bottom_mlp_layer_{i}_kernel_part0.npy`, `_bias_` and
`top_mlp_...` are the dense weights. The arrays determine the shape of the model.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MLPS = ("bottom_mlp", "top_mlp")


def is_dlrm_2022(path: Path) -> bool:
    """Returns whether a folder has this layout."""
    return table_file(path, 0).exists()


def table_file(path: Path, number: int) -> Path:
    """Returns the file of table number `number`."""
    return path / f"feature_{number}_part0.npy"


def read_config(path: Path) -> dict[str, Any]:
    """Reads the sizes of the tables, and under "dense" the shape of the model.

    Raises:
        ValueError: a file is missing, has another shape, or is not an array of .npy.
    """
    for file in path.glob("*_part1.npy"):
        raise ValueError(
            f"{path} stores an array in several parts ({file.name}), as releases before that of "
            "2022 do: expected files *_part0.npy only"
        )
    tables = range(_count(path, r"feature_(\d+)"))
    shapes = [_open(table_file(path, number), 2).shape for number in tables]
    dense = {name: weight for name, weight in read_dense_weights(path).items() if ".bias" in name}
    dims = {mlp: [len(bias) for name, bias in dense.items() if f"/{mlp}." in name] for mlp in _MLPS}
    if not dims["top_mlp"]:
        raise ValueError(f"{path}: expected weights top_mlp_layer_*_part0.npy, found no such file")
    return {
        "categorical_cardinalities": [rows for rows, _ in shapes],
        "embedding_dim": [columns for _, columns in shapes],
        "dense": {"interaction": "dot", **{f"{mlp}_dims": dims[mlp] for mlp in _MLPS}},
    }


def read_dense_weights(path: Path) -> dict[str, NDArray[np.floating[Any]]]:
    """Returns the dense weights by our names; a first kernel may have rows of padding.

    Raises:
        ValueError: a file is missing, has another shape, or is not an array of .npy.
    """
    weights = {}
    for mlp in _MLPS:
        for layer in range(_count(path, rf"{mlp}_layer_(\d+)_kernel")):
            for kind, rank in (("kernel", 2), ("bias", 1)):
                file = path / f"{mlp}_layer_{layer}_{kind}_part0.npy"
                weights[f"dense/{mlp}.dense_{layer}.{kind}"] = _open(file, rank)
    return weights


def _count(path: Path, pattern: str) -> int:
    """Returns 1 + the largest number in the names of files `{pattern}_part0.npy`, 0 without any."""
    matches = (re.fullmatch(rf"{pattern}_part0\.npy", file.name) for file in path.iterdir())
    return max((int(match[1]) for match in matches if match), default=-1) + 1


def _open(file: Path, rank: int) -> NDArray[np.floating[Any]]:
    try:
        values: NDArray[Any] = np.load(file, mmap_mode="r")
        if values.ndim != rank:
            raise ValueError(f"it is {list(values.shape)}, expected {rank} dimensions")
    except (OSError, ValueError, EOFError) as error:
        text = getattr(error, "strerror", None) or error
        raise ValueError(f"checkpoint file {file} cannot be used: {text}") from None
    return values
