import collections
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from runtime.files.torch_file import is_torch_file, read_matrix, read_tensors, write_tensors

WEIGHT = np.array([[1.5, 2], [3, 4], [5, 6]], np.float32)


@pytest.mark.parametrize("archive", [True, False])
def test_tensors_of_both_formats(torch, tmp_path, archive):
    weight = torch.from_numpy(WEIGHT)
    state = collections.OrderedDict(
        weight=torch.nn.Parameter(weight),
        turned=weight[1:].T,
        half=torch.tensor([0.5], dtype=torch.float16),
        epoch=3,
    )
    state._metadata = {"": {"version": 1}}
    path = tmp_path / "model.pth"
    torch.save(state, path, _use_new_zipfile_serialization=archive)
    content = read_tensors(path)
    assert is_torch_file(path) and list(content) == list(state)
    np.testing.assert_array_equal(content["weight"], WEIGHT)
    np.testing.assert_array_equal(content["turned"], WEIGHT[1:].T)
    assert content["half"].dtype == np.float16 and content["epoch"] == 3


def test_written_file(torch, tmp_path):
    """Arrays in any order of memory, a scalar and an empty one too."""
    arrays = {"w": WEIGHT.T, "n": np.array(5), "empty": np.zeros((0, 4), np.float32)}
    write_tensors(tmp_path / "x.pth", arrays)
    content = torch.load(tmp_path / "x.pth", weights_only=True)
    for name, array in arrays.items():
        np.testing.assert_array_equal(content[name].numpy(), array, strict=True)


class Call:
    """A pickle that would run a command."""

    def __reduce__(self):
        return os.system, ("touch written",)


def test_code_is_not_run(torch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": Call()}, "model.pth")
    with pytest.raises(ValueError, match=r"model\.pth: expected a file of torch\.save: .+"):
        read_tensors("model.pth")
    assert not Path("written").exists()


@pytest.mark.parametrize("archive", [True, False])
def test_damaged_file(torch, tmp_path, archive):
    path = tmp_path / "x.pt"
    torch.save(torch.from_numpy(WEIGHT), path, _use_new_zipfile_serialization=archive)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"x\.pt: expected a file of torch\.save: .+"):
        read_tensors(path)
    path.write_bytes(b"another format")
    assert not is_torch_file(path)


def test_matrix(torch, tmp_path):
    path = tmp_path / "x.pt"
    torch.save(torch.from_numpy(WEIGHT), path)
    assert read_matrix(path, 2).shape == (3, 2)
    torch.save(torch.arange(4), path)
    assert read_matrix(path, 1).shape == (4, 1)
    with pytest.raises(ValueError, match=r"x\.pt: expected a tensor \[rows, 2\], got \[4\]"):
        read_matrix(path, 2)
    torch.save({"a": torch.arange(4)}, path)
    with pytest.raises(ValueError, match=r"x\.pt: expected a tensor \[rows, 2\], got a dict"):
        read_matrix(path, 2)


@pytest.mark.parametrize("access", [read_tensors, lambda path: write_tensors(path, {"w": WEIGHT})])
def test_without_torch(tmp_path, monkeypatch, access):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match=r"x\.pt: .*pip install torch==2\.13\.0"):
        access(tmp_path / "x.pt")
    assert not (tmp_path / "x.pt").exists()
