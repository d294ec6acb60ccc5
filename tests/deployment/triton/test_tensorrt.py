"""The dense part for GPUs, with stand-ins for trtexec and a GPU."""

import os
import subprocess
from pathlib import Path

import pytest

from deployment.serving.interface import ServedTensor
from deployment.triton.config_pbtxt import GPU, Batching, Instances, model_config
from deployment.triton.tensorrt import can_build, shapes, write_dense_model
from tests.deployment.triton.written_config import read_config

INPUTS = (
    ServedTensor("embeddings", "float32", (48,)),
    ServedTensor("positive_history", "int32", (2, 100)),
)


def config_of(runs_on):
    """Configuration of a dense model for a backend."""
    outputs = [ServedTensor("scores", "float32", (1,))]
    return model_config(
        "m_dense", runs_on, INPUTS, outputs, Batching(64, True, 0), Instances(GPU, 1)
    )


@pytest.fixture
def path(tmp_path, monkeypatch) -> Path:
    """A folder that is first on PATH; trtexec and nvidia-smi are nowhere else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def program(folder: Path, name: str, script: str) -> None:
    """A shell script."""
    (folder / name).write_text(f"#!/bin/bash\n{script}\n")
    (folder / name).chmod(0o755)


# Writes its command line to the plan, whose path is the value of its second flag.
TRTEXEC = """for flag; do case "$flag" in --saveEngine=*) plan="${flag#*=}" ;; esac; done
echo "$@" >"$plan"
"""


@pytest.fixture
def gpu(path):
    """trtexec and a GPU."""
    program(path, "trtexec", TRTEXEC)
    program(path, "nvidia-smi", "echo 'GPU 0: a card'")


def write(tmp_path: Path, precision: str = "fp32") -> tuple[Path, str]:
    """Writes a dense model; returns its folder and the message."""
    folder = tmp_path / "m_dense"
    (folder / "1").mkdir(parents=True)
    (tmp_path / "dense.onnx").write_bytes(b"onnx")
    message = write_dense_model(
        folder, tmp_path / "dense.onnx", INPUTS, {}, (32, 64), precision, config_of
    )
    return folder, message


def test_shapes_of_inputs():
    assert shapes(INPUTS, {}, 64) == "embeddings:64x48,positive_history:64x2x100"
    assert shapes(INPUTS[1:], {"OUTPUT0": 48}, 3) == "OUTPUT0:144,positive_history:3x2x100"


def test_onnx_without_gpu(tmp_path, path):
    assert not can_build()
    folder, message = write(tmp_path, "fp16")
    assert "run build_plan.sh" in message
    assert (folder / "1" / "model.onnx").read_bytes() == b"onnx"
    config = read_config(folder / "config.pbtxt")
    assert (config.platform, config.default_model_filename) == ("onnxruntime_onnx", "model.onnx")
    (accelerator,) = config.optimization.execution_accelerators.gpu_execution_accelerator
    assert dict(accelerator.parameters) == {"precision_mode": "FP16"}
    plan = read_config(folder / "configs" / "plan.pbtxt")
    assert (plan.platform, plan.default_model_filename) == ("tensorrt_plan", "model.plan")
    assert not plan.HasField("optimization")
    assert list(plan.input) == list(config.input)


@pytest.mark.parametrize("there", ["trtexec", "nvidia-smi", "no card"])
def test_missing_prerequisites(path, there):
    if there != "nvidia-smi":
        program(path, "trtexec", TRTEXEC)
    if there != "trtexec":
        program(path, "nvidia-smi", "exit 9" if there == "no card" else "echo 'GPU 0: a card'")
    assert not can_build()


@pytest.mark.parametrize(("precision", "flag"), [("fp32", "--noTF32"), ("bf16", "--bf16")])
def test_plan_with_gpu(tmp_path, gpu, precision, flag):
    folder, message = write(tmp_path, precision)
    assert message == f"a TensorRT plan in {precision}"
    sizes = "embeddings:{0}x48,positive_history:{0}x2x100"
    assert (folder / "1" / "model.plan").read_text().split() == [
        *(f"--onnx={tmp_path}/dense.onnx", f"--saveEngine={folder}/1/model.plan"),
        *("--skipInference", f"--minShapes={sizes.format(1)}", f"--optShapes={sizes.format(32)}"),
        *(f"--maxShapes={sizes.format(64)}", flag),
    ]
    assert read_config(folder / "config.pbtxt") == config_of(
        {"platform": "tensorrt_plan", "default_model_filename": "model.plan"}
    )
    assert sorted(os.listdir(folder)) == ["1", "config.pbtxt"]


def test_bf16_without_plan(tmp_path, path):
    with pytest.raises(ValueError, match=r"--precision bf16 .* 'bash build_plan\.sh bf16' there"):
        write(tmp_path, "bf16")


@pytest.mark.parametrize("status", [1, 0], ids=["status 1", "no plan"])
def test_trtexec_failure(tmp_path, path, gpu, status):
    program(path, "trtexec", f"echo '&&&& FAILED: no kernel'; exit {status}")
    with pytest.raises(ValueError, match="(?s)trtexec could not .*no kernel\nThe command was"):
        write(tmp_path)


@pytest.mark.parametrize(("given", "flag"), [((), "--noTF32"), (("bf16",), "--bf16")])
def test_plan_by_script(tmp_path, path, given, flag):
    """Runs the script from another folder; the name of its own folder has a space."""
    folder, _ = write(tmp_path / "a b")
    program(path, "trtexec", TRTEXEC)
    done = subprocess.run(
        ["bash", str(folder / "build_plan.sh"), *given], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "let the server load it again" in done.stdout
    built = (folder / "1" / "model.plan").read_text().split()
    assert built[:2] == ["--onnx=1/model.onnx", "--saveEngine=1/model.plan.partial"]
    assert built[-1] == flag
    assert f"--maxShapes={shapes(INPUTS, {}, 64)}" in built
    assert read_config(folder / "config.pbtxt").platform == "tensorrt_plan"


def test_script_failure(tmp_path, path):
    folder, _ = write(tmp_path)
    before = (folder / "config.pbtxt").read_text()
    for arguments, message in (
        ([], "trtexec"),
        (["fp8"], "precision fp8: allowed are fp32|fp16|bf16"),
    ):
        done = subprocess.run(
            ["bash", str(folder / "build_plan.sh"), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0 and message in done.stderr
    assert (folder / "config.pbtxt").read_text() == before
    assert os.listdir(folder / "1") == ["model.onnx"]
