"""Tensors in the files of `torch.save`. PyTorch is optional, and imported only when one is used."""

import os
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.files.outputs import output_file

# First bytes: of a ZIP archive; before PyTorch 1.6, of a pickle of this number.
_BEGINNINGS = (b"PK\x03\x04", pickle.dumps(0x1950A86A20F9469CFC6C, 2))


class TorchMissing(ValueError):
    """PyTorch is not installed, which only its files need."""


def _import_torch(path: str | os.PathLike[str]) -> Any:
    try:
        import torch
    except ImportError:
        raise TorchMissing(
            f"{path}: files of PyTorch need the package torch, which is not installed: install it "
            "(pip install torch==2.13.0)"
        ) from None
    return torch


def read_tensors(path: str | os.PathLike[str]) -> Any:
    """Reads a file that `torch.save` wrote, without running code in it.

    Returns:
        A tensor as an array, or a dict with its tensors as arrays. Those of a ZIP archive are
        mapped into memory.

    Raises:
        ValueError: the file was not written by `torch.save`, is damaged, or contains objects of
            other classes than `torch.load(weights_only=True)` builds; or PyTorch is not installed.
    """
    torch = _import_torch(path)
    try:
        is_archive = zipfile.is_zipfile(path)  # only these can be mapped
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)
        if isinstance(content, dict):
            return {name: _as_array(torch, value) for name, value in content.items()}
        return _as_array(torch, content)
    except OSError:
        raise
    except Exception as error:  # a damaged file raises any of them
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"{path}: expected a file of torch.save: {reason}") from None


def _as_array(torch: Any, value: Any) -> Any:
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value


def read_matrix(path: str | os.PathLike[str], num_columns: int) -> NDArray[Any]:
    """Reads a file of one tensor [rows, num_columns]; with one column it may also be [rows].

    Raises:
        ValueError: as `read_tensors`, or the file holds something else.
        OSError: it cannot be read.
    """
    tensor = read_tensors(path)
    if not isinstance(tensor, np.ndarray):
        shape = f"a {type(tensor).__name__}"
    elif tensor.ndim == 2 and tensor.shape[1] == num_columns:
        return tensor
    elif tensor.ndim == 1 and num_columns == 1:
        return tensor[:, None]
    else:
        shape = str(list(tensor.shape))
    raise ValueError(f"{path}: expected a tensor [rows, {num_columns}], got {shape}")


def is_torch_file(path: str | os.PathLike[str]) -> bool:
    """Returns whether a file begins as one of `torch.save`; its content may still be damaged."""
    if not Path(path).is_file():
        return False
    with open(path, "rb") as file:
        return file.read(64).startswith(_BEGINNINGS)


def write_tensors(path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes a dict of tensors with `torch.save`; the file takes its name when it is complete.

    Raises:
        ValueError: PyTorch is not installed.
    """
    torch = _import_torch(path)
    tensors = {name: torch.from_numpy(np.asarray(a, order="C")) for name, a in arrays.items()}
    with output_file(path) as stream:
        torch.save(tensors, stream)
