import collections
import os
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

from runtime.files.torch_file import (
    TensorBlocks,
    is_torch_file,
    read_matrix,
    read_tensors,
    write_state_dict,
)
from tests import torch_files
from tests.torch_files import Tensor

TORCH_PYTHON = Path(".venv-torch/bin/python")
WEIGHT = np.array([[1.5, 2], [3, 4], [5, 6]], np.float32)


@pytest.mark.parametrize("save", [torch_files.save, torch_files.save_sequence])
def test_tensors_of_both_formats(tmp_path, save):
    state = collections.OrderedDict(
        weight=Tensor(WEIGHT),
        turned=Tensor(WEIGHT, shape=(2, 2), strides=(1, 2), offset=2),
        ids=Tensor(np.array([7, 8])),
        half=Tensor(np.array([0.5], np.float16)),
        epoch=3,
    )
    state._metadata = {"": {"version": 1}}
    save(tmp_path / "model.pth", state)
    content = read_tensors(tmp_path / "model.pth")
    assert is_torch_file(tmp_path / "model.pth") and list(content) == list(state)
    np.testing.assert_array_equal(content["weight"], WEIGHT)
    np.testing.assert_array_equal(content["turned"], [[3, 5], [4, 6]])
    np.testing.assert_array_equal(content["ids"], [7, 8])
    assert content["half"].dtype == np.float16 and content["epoch"] == 3
    with pytest.raises(ValueError, match="read-only"):
        content["weight"][0] = 1


def test_written_file(tmp_path):
    """In blocks, a scalar and an empty tensor too."""
    blocks = TensorBlocks((3, 2), np.dtype("f4"), [WEIGHT[:2], WEIGHT[2:]])
    arrays = {"n": np.array(5), "empty": np.zeros((0, 4), np.float32)}
    others = {name: TensorBlocks(a.shape, a.dtype, [a]) for name, a in arrays.items()}
    write_state_dict(tmp_path / "x.pth", {"weight": blocks, **others})
    content = read_tensors(tmp_path / "x.pth")
    for name, array in {"weight": WEIGHT, **arrays}.items():
        np.testing.assert_array_equal(content[name], array)
        assert content[name].shape == array.shape


@pytest.mark.skipif(not TORCH_PYTHON.exists(), reason="no .venv-torch: `make bench-ncf` makes it")
def test_files_of_pytorch(tmp_path):
    """Read here and written there, in both formats, and the other way round."""
    blocks = TensorBlocks((3, 2), np.dtype("f4"), [WEIGHT])
    write_state_dict(tmp_path / "ours.pth", {"weight": blocks})
    program = f"""
import torch
state = torch.load("{tmp_path}/ours.pth", weights_only=True)
assert state["weight"].tolist() == {WEIGHT.tolist()}
layer = torch.nn.Linear(2, 3, bias=False)
layer.load_state_dict(state)
torch.save(layer.state_dict(), "{tmp_path}/zip.pth")
torch.save(layer.state_dict(), "{tmp_path}/old.pth", _use_new_zipfile_serialization=False)
"""
    subprocess.run([TORCH_PYTHON, "-c", program], check=True)
    for name in ("zip.pth", "old.pth"):
        np.testing.assert_array_equal(read_tensors(tmp_path / name)["weight"], WEIGHT)


class Call:
    """A pickle that would run a command."""

    def __reduce__(self):
        return os.system, ("touch written",)


@pytest.mark.parametrize("save", [torch_files.save, torch_files.save_sequence])
def test_code_is_not_run(tmp_path, monkeypatch, save):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "model.pth", {"weight": Call()})
    with pytest.raises(ValueError, match=r"contains \w+\.system; expected only tensors of"):
        read_tensors(tmp_path / "model.pth")
    assert not Path("written").exists()


@pytest.mark.parametrize(
    "tensor",
    [
        Tensor(WEIGHT, shape=(3, 3), strides=(3, 1)),
        Tensor(WEIGHT, offset=1),
        Tensor(WEIGHT, shape=(2,), strides=(-1,), offset=3),
    ],
)
def test_tensor_outside_its_storage(tmp_path, tensor):
    torch_files.save(tmp_path / "x.pt", tensor)
    with pytest.raises(ValueError, match=r"x\.pt: expected a file of torch\.save: a tensor"):
        read_tensors(tmp_path / "x.pt")


def test_damaged_files(tmp_path):
    path = tmp_path / "x.pt"
    torch_files.save_sequence(path, Tensor(WEIGHT))
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ValueError, match="the file is cut off"):
        read_tensors(path)
    torch_files.save(path, Tensor(WEIGHT))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match="another format"):
        read_tensors(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "text")
    with pytest.raises(ValueError, match=r"without data\.pkl"):
        read_tensors(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/data.pkl", torch_files.pickled(Tensor(WEIGHT), []))
        archive.writestr("m/data/0", WEIGHT.tobytes())
    with pytest.raises(ValueError, match="is compressed"):
        read_tensors(path)
    path.write_bytes(b"no such format")
    assert not is_torch_file(path)


def test_matrix(tmp_path):
    torch_files.save(tmp_path / "x.pt", Tensor(WEIGHT))
    assert read_matrix(tmp_path / "x.pt", 2).shape == (3, 2)
    torch_files.save(tmp_path / "y.pt", Tensor(np.arange(4)))
    assert read_matrix(tmp_path / "y.pt", 1).shape == (4, 1)
    with pytest.raises(ValueError, match=r"y\.pt: expected a tensor \[rows, 2\], got \[4\]"):
        read_matrix(tmp_path / "y.pt", 2)
    torch_files.save(tmp_path / "z.pt", {"a": Tensor(WEIGHT)})
    with pytest.raises(ValueError, match=r"z\.pt: expected a tensor \[rows, 2\], got a dict"):
        read_matrix(tmp_path / "z.pt", 2)
