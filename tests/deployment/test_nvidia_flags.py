"""Command lines of NVIDIA's deployment tools."""

import re
import shlex

import pytest

from config.command import parse
from deployment import nvidia_flags
from deployment.deploy import __main__ as deploy
from deployment.deploy import deploy_options
from deployment.evaluate_accuracy.options import AccuracyOptions
from deployment.evaluate_latency import __main__ as evaluate_latency
from deployment.evaluate_latency.__main__ import LatencyOptions

REQUIRED = {
    "deploy": "--checkpoint-dir c --model-repository-path m ",
    "latency": "--model-name dlrm ",
    "accuracy": "--model_name dlrm --dataset_path d ",
}


def parsed(tool: str, text: str) -> dict:
    """Values of the flags that a command line of NVIDIA's tool means, by name."""
    names = {"deploy": nvidia_flags.DEPLOY, "latency": nvidia_flags.LATENCY}
    argv = names.get(tool, nvidia_flags.ACCURACY).translate(shlex.split(REQUIRED[tool] + text))
    if tool == "deploy":
        options = deploy_options.parse(argv)
        absent = dict.fromkeys(("gpus", "device_memory_gb", "fused_embedding"))
        return absent | vars(options) | {"part_names": options.part_names}
    kind = LatencyOptions if tool == "latency" else AccuracyOptions
    options = parse(kind, argv, tool, "")
    return vars(options) | {"num_rows": getattr(options, "num_rows", None)}


# A tool, flags of NVIDIA's, and values of ours that they mean: a flag and its value without spaces.
_COMMANDS = """
deploy: --sparse-format tf-savedmodel --dense-format trt --memory-threshold-gb 60 --verbose
    --max-batch-size=4096 --engine-count-per-device 2 --num_gpus 1 --fused_embedding
    -> backend=tensorflow gpus=None device_memory_gb=60.0 max_batch_size=4096 instances=2
    dense_format=trt trt_optimal_batch_size=1024
deploy: --sparse-format hps --num_gpus 3 --hps_gpucacheper 0.1 --no-dynamic_batching --overwrite
    --fused_embedding
    -> backend=hps gpus=(0,1,2) gpu_cache_share=0.1 dynamic_batching=False overwrite=True
    fused_embedding=True
deploy: --sparse-format tf-savedmodel
    -> tensors=nvidia dense_format=tf-savedmodel device_memory_gb=70.0 max_batch_size=32768
    part_names={'sparse':'sparse','dense':'dense'} model_version=1 trt_optimal_batch_size=None
deploy: --sparse-format hps --dense-format trt --max-batch-size 512 --memory-threshold-gb 60
    -> tensors=nvidia device_memory_gb=None gpu_cache_share=0.25 gpus=(0,)
    trt_optimal_batch_size=512 fused_embedding=None
deploy: --sparse-format tf-savedmodel --dense-format onnx --sparse-model-name a --cpu
    --dense-model-name b --model-version 7 --trt-optimal-batch-size 9
    -> part_names={'sparse':'a','dense':'b'} model_version=7 cpu=True device_memory_gb=None
    trt_optimal_batch_size=None
deploy: --sparse-format tf-savedmodel --dense-format trt --trt-optimal-batch-size 9
    --tensors native --device_memory_gb 3
    -> trt_optimal_batch_size=9 tensors=native device_memory_gb=3.0
deploy: --sparse-format tf-savedmodel --dense-format trt --monolithic
    -> part_names={} dense_format=None
deploy: --load-model --load-model-timeout-s 5 --server-url grpc://127.0.0.1:8001
    -> load_model=True load_model_timeout_s=5.0 server_url=127.0.0.1:8001 tensors=native
    backend=local max_batch_size=2048
latency: --sparse-format tf-savedmodel --measurement-request-count 50 --measurement-interval 5000
    --batch-sizes 256 512 --concurrency 1 2 --server-url http://127.0.0.1:8000 -v
    --fused-embedding --measurement-mode count_windows --warmup
    -> batch_sizes=(256,512) concurrency=(1,2) requests=50 seconds=5.0 url=127.0.0.1:8001
    fused_embedding=True
latency: --sparse-format hps
    -> batch_sizes=(256,512,1024,2048,4096,8192,16384,32768) concurrency=(1,) requests=20
    seconds=1.0 num_benchmark_samples=262144 url=127.0.0.1:8001 timeout_s=None
    model_version=None dataset_type=None feature_spec=None
latency: --sparse-format hps --evaluation-mode online --offline-mode cuda --timeout 60
    --model-version 2 --num-benchmark-samples 9 --output-shared-memory-size 4
    -> timeout_s=60.0 model_version=2 num_benchmark_samples=9
latency: --offline-mode cuda -> batch_sizes=(1,64,2048)
accuracy: --max_steps 3 --checkpoint_dir c --test_on_train --server-url grpc://host:8001
    -> max_steps=3 eval_mapping=train url=host:8001 log_path=None print_freq=None
accuracy: --sparse_input_format hps --verbose
    -> batch_size=32768 in_flight=1 print_freq=10 log_path=dlrm_tf_log.json
accuracy: --sparse_input_format hps --auc_thresholds 100 --print_freq 5 --log_path log
    --dataset_type split_tfrecords --feature_spec f.yaml
    -> auc_thresholds=100 print_freq=5 log_path=log feature_spec=f.yaml
    dataset_type=split_tfrecords
"""
COMMANDS = [
    re.split(": | -> ", text, maxsplit=2) for text in re.split(r"\n(?=\w)", _COMMANDS.strip())
]


@pytest.mark.parametrize(("tool", "text", "expected"), COMMANDS)
def test_meaning_of_flags(tool, text, expected):
    """Flags of NVIDIA's tools, and the defaults that these have and ours do not."""
    options = parsed(tool, text)
    for name, value in (pair.split("=") for pair in expected.split()):
        assert str(options[name]).replace(" ", "") == value, name


@pytest.mark.parametrize(
    ("command", "ignored"),
    [
        (0, ["--fused_embedding", "--verbose"]),
        (8, ["--sparse_format", "-v", "--measurement_mode", "--warmup"]),
        (13, ["--sparse_input_format", "--verbose"]),
    ],
)
def test_notes_on_ignored_flags(command, ignored, capsys):
    parsed(*COMMANDS[command][:2])
    notes = capsys.readouterr().err
    assert sorted(re.findall(r"^note: (\S+) has no effect: ", notes, re.MULTILINE)) == sorted(
        ignored
    )


def test_limit_of_steps():
    assert parsed("accuracy", "--max_steps=3 --batch_size=100")["num_rows"] == 300
    for wrong in ("--max_steps=0", "--max_rows=4 --max_steps=3"):
        with pytest.raises(ValueError, match="--max_steps"):
            parsed("accuracy", wrong)


@pytest.mark.parametrize(
    ("tool", "flag", "value"),
    [
        (deploy, "--num_gpus", "0"),
        (deploy, "--sparse_format", "onnx"),
        (evaluate_latency, "--server_url", "somewhere"),
    ],
)
def test_invalid_values(tool, flag, value, capsys):
    assert tool.main([flag, value]) == 2
    assert capsys.readouterr().err.startswith(f"error: {flag}: ")
