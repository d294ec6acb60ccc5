"""A deployed model with a flipped bit is refused when the server loads it."""

import shutil

import pytest

from deployment.serve.server import ServerFailed, running

FILES = ["tables/dim_8.npy", "dense.onnx", "deployment/serving/checks.py"]


@pytest.mark.parametrize("name", FILES)
def test_flipped_bit(repository, tmp_path, name):
    shutil.copytree(repository / "dlrm_mono", tmp_path / "r/dlrm_mono")
    file = tmp_path / "r/dlrm_mono/1" / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with (
        pytest.raises(ServerFailed, match=f"{name}: its checksum differs"),
        running(tmp_path / "r", tmp_path / "log"),
    ):
        pass
