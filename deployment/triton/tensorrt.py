"""Dense part for GPUs: a TensorRT plan if one can be built, else ONNX and a script that builds it.

A plan is specific to a GPU model and a version of TensorRT, so `trtexec` builds it on the serving
machine, or a similar one. A model's folder:

    1/model.plan            or, if it cannot be built:
    1/model.onnx            run by Triton's onnxruntime, and by TensorRT inside that
    build_plan.sh           builds 1/model.plan of it and makes it the model
    configs/plan.pbtxt      configuration with which the script replaces config.pbtxt
"""

import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tritonclient.grpc.model_config_pb2 import ModelConfig

from deployment.serving.interface import ServedTensor
from deployment.triton.config_pbtxt import CONFIG_FILE, accelerate, write_config
from deployment.triton.repository import VERSION

# Formats of the dense part (`--dense_format`).
TRT, ONNX, SAVED_MODEL = "trt", "onnx", "tf-savedmodel"

PLAN_FILE, ONNX_FILE = "model.plan", "model.onnx"
SCRIPT_FILE = "build_plan.sh"
PLAN_CONFIG = "configs/plan.pbtxt"  # where `tritonserver --model-config-name=plan` looks, too

RUNS_PLAN = {"platform": "tensorrt_plan", "default_model_filename": PLAN_FILE}
RUNS_ONNX = {"platform": "onnxruntime_onnx", "default_model_filename": ONNX_FILE}

# Flags of trtexec by `--precision`. By default it multiplies float32 in TF32, with 10 bits of
# mantissa.
_PRECISION_FLAGS = {"fp32": "--noTF32", "fp16": "--fp16", "bf16": "--bf16"}

# Precisions of the TensorRT in Triton's onnxruntime, all that it supports.
_ONNX_PRECISIONS = {"fp32": "FP32", "fp16": "FP16"}


def can_build() -> bool:
    """Returns whether `trtexec` and a GPU are available."""
    if shutil.which("trtexec") is None or shutil.which("nvidia-smi") is None:
        return False
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return listing.returncode == 0 and "GPU" in listing.stdout


def check_precision(precision: str) -> None:
    """Raises ValueError for a precision that needs a plan, if none can be built."""
    if precision in _ONNX_PRECISIONS or can_build():
        return
    raise ValueError(
        f"--precision {precision} of a dense part on a GPU needs a TensorRT plan, and a plan needs "
        "trtexec and a GPU, which are not both here; Triton's onnxruntime knows fp32 and fp16 "
        "only. Deploy on the machine that serves, or deploy with --precision fp16 or fp32 and run "
        f"'bash {SCRIPT_FILE} {precision}' there, in the folder of the dense model"
    )


def shapes(inputs: Sequence[ServedTensor], flat: Mapping[str, int], rows: int) -> str:
    """Returns the shapes of a batch in the format of trtexec, `name:2048x13,...`.

    `flat` are inputs of one dimension, with their number of values per row.
    """
    parts = [f"{name}:{rows * values}" for name, values in flat.items()]
    for tensor in inputs:
        parts.append(f"{tensor.name}:{'x'.join(map(str, (rows, *tensor.dims)))}")
    return ",".join(parts)


def write_dense_model(
    folder: Path,
    onnx: Path,
    inputs: Sequence[ServedTensor],
    flat: Mapping[str, int],
    batch_sizes: tuple[int, int],
    precision: str,
    config_of: Callable[[Mapping[str, str]], ModelConfig],
) -> str:
    """Writes the folder of a dense model, with its configuration; returns a line for the report.

    `inputs` and `flat` are those of `shapes`; kernels are chosen for the first of `batch_sizes`,
    the second is the largest.
    `config_of` returns the model's configuration for `RUNS_PLAN` or `RUNS_ONNX`.
    """
    check_precision(precision)
    version = folder / str(VERSION)
    least, best, most = (shapes(inputs, flat, rows) for rows in (1, *batch_sizes))
    options = [f"--minShapes={least}", f"--optShapes={best}", f"--maxShapes={most}"]
    if can_build():
        _build(onnx, version / PLAN_FILE, [*options, _PRECISION_FLAGS[precision]])
        write_config(config_of(RUNS_PLAN), folder / CONFIG_FILE)
        return f"a TensorRT plan in {precision}"
    config = config_of(RUNS_ONNX)
    accelerate(config, "tensorrt", precision_mode=_ONNX_PRECISIONS[precision])
    write_onnx_model(folder, onnx, config)
    (folder / PLAN_CONFIG).parent.mkdir()
    write_config(config_of(RUNS_PLAN), folder / PLAN_CONFIG)
    (folder / SCRIPT_FILE).write_text(_script(precision, options))
    return (
        f"ONNX, by onnxruntime and TensorRT in {precision}: trtexec and a GPU are not both here; "
        f"run {SCRIPT_FILE} on the machine that serves to make it a TensorRT plan"
    )


def write_onnx_model(folder: Path, onnx: Path, config: ModelConfig) -> str:
    """Writes a dense model that onnxruntime computes in float32; returns a line for the report."""
    shutil.copyfile(onnx, folder / str(VERSION) / ONNX_FILE)
    write_config(config, folder / CONFIG_FILE)
    return "ONNX, by onnxruntime in fp32"


def _build(onnx: Path, plan: Path, options: Sequence[str]) -> None:
    command = ["trtexec", f"--onnx={onnx}", f"--saveEngine={plan}", "--skipInference", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not plan.exists():
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
        raise ValueError(
            f"trtexec could not build the plan of the dense part (exit status {done.returncode}): "
            f"{last}\nThe command was: {shlex.join(command)}"
        )


def _script(precision: str, options: Sequence[str]) -> str:
    cases = "\n".join(f"  {name}) flag={flag} ;;" for name, flag in _PRECISION_FLAGS.items())
    known = "|".join(_PRECISION_FLAGS)
    return f"""\
#!/bin/bash
# Makes the dense part a TensorRT plan for the GPU and the TensorRT of this machine:
#   bash {SCRIPT_FILE} [{known}]    (without: {precision}, as deployed)
# Run it where the model is served, for example in Triton's container, with trtexec on the PATH
# (/usr/src/tensorrt/bin). Then let the server load the model again; a polling server does so.
set -euo pipefail
cd "$(dirname "${{BASH_SOURCE[0]}}")"
case "${{1:-{precision}}}" in
{cases}
  *) echo "error: precision $1: allowed are {known}" >&2; exit 2 ;;
esac
trtexec --onnx={VERSION}/{ONNX_FILE} --saveEngine={VERSION}/{PLAN_FILE}.partial --skipInference \\
  {shlex.join(options)} "$flag"
mv {VERSION}/{PLAN_FILE}.partial {VERSION}/{PLAN_FILE}
cp {PLAN_CONFIG} {CONFIG_FILE}.partial
mv {CONFIG_FILE}.partial {CONFIG_FILE}
echo "{VERSION}/{PLAN_FILE} is the model now: let the server load it again"
"""
