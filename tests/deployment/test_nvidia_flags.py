"""Command lines of NVIDIA's deployment tools."""

import shlex

import pytest

from deployment import nvidia_flags
from deployment.deploy import __main__ as deploy
from deployment.deploy.deploy_options import DeployOptions
from deployment.evaluate_accuracy import __main__ as evaluate_accuracy
from deployment.evaluate_latency import __main__ as evaluate_latency


def parsed(tool, names, text):
    return vars(tool._parser().parse_args(names.translate(shlex.split(text))))


def test_deployment_with_tensorflow(capsys):
    options = parsed(
        deploy,
        nvidia_flags.DEPLOY,
        "--checkpoint-dir checkpoint --model-repository-path models --num_gpus 1 --fused_embedding "
        "--model-name dlrm --model-precision fp16 --dense-format trt --sparse-format tf-savedmodel "
        "--memory-threshold-gb 60 --max-batch-size=4096 --engine-count-per-device 2 --verbose",
    )
    checked = DeployOptions(**options)
    assert (checked.backend, checked.precision, checked.gpus) == ("tensorflow", "fp16", None)
    assert (checked.device_memory_gb, checked.max_batch_size) == (60.0, 4096)
    assert (checked.model_name, checked.instances) == ("dlrm", 2)
    assert (checked.dense_format, checked.trt_optimal_batch_size) == ("trt", 1024)
    assert capsys.readouterr().err.splitlines() == [
        "note: --fused_embedding has no effect: tables of one width are always looked up together",
        "note: --verbose has no effect: everything is printed",
    ]


def test_deployment_with_hps():
    options = parsed(
        deploy,
        nvidia_flags.DEPLOY,
        "--checkpoint-dir c --model-repository-path m --num_gpus 3 --sparse-format hps "
        "--hps_gpucacheper 0.1 --no-dynamic_batching --overwrite --fused_embedding",
    )
    assert (options["backend"], options["gpus"]) == ("hps", (0, 1, 2))
    assert options["gpu_cache_share"] == 0.1
    assert options["dynamic_batching"] is False
    assert options["overwrite"] is True
    assert DeployOptions(**options).fused_embedding is True


REQUIRED = "--checkpoint-dir c --model-repository-path m --model-name dlrm "


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            "--sparse-format tf-savedmodel",
            {
                "tensors": "nvidia",
                "dense_format": "tf-savedmodel",
                "device_memory_gb": 70.0,
                "max_batch_size": 32768,
                "part_names": {"sparse": "sparse", "dense": "dense"},
                "model_version": 1,
                "trt_optimal_batch_size": None,
            },
        ),
        (
            "--sparse-format hps --dense-format trt --max-batch-size 512 --memory-threshold-gb 60",
            {
                "tensors": "nvidia",
                "device_memory_gb": None,
                "gpu_cache_share": 0.25,
                "gpus": (0,),
                "trt_optimal_batch_size": 512,
                "fused_embedding": None,
            },
        ),
        (
            "--sparse-format tf-savedmodel --dense-format onnx --sparse-model-name a "
            "--dense-model-name b --model-version 7 --cpu --trt-optimal-batch-size 9",
            {
                "part_names": {"sparse": "a", "dense": "b"},
                "model_version": 7,
                "cpu": True,
                "device_memory_gb": None,
                "trt_optimal_batch_size": None,
            },
        ),
        (
            "--sparse-format tf-savedmodel --dense-format trt --trt-optimal-batch-size 9 "
            "--tensors native --device_memory_gb 3",
            {"trt_optimal_batch_size": 9, "tensors": "native", "device_memory_gb": 3.0},
        ),
        (
            "--sparse-format tf-savedmodel --dense-format trt --monolithic",
            {"monolithic": True, "part_names": {}, "dense_format": None},
        ),
        (
            "--load-model --load-model-timeout-s 5 --server-url grpc://127.0.0.1:8001",
            {
                "load_model": True,
                "load_model_timeout_s": 5.0,
                "server_url": "127.0.0.1:8001",
                "tensors": "native",
                "backend": "local",
                "max_batch_size": 2048,
            },
        ),
    ],
)
def test_defaults_of_the_original_deployment(flags, expected):
    checked = DeployOptions(**parsed(deploy, nvidia_flags.DEPLOY, REQUIRED + flags))
    assert {name: getattr(checked, name) for name in expected} == expected


def test_latency(capsys):
    options = parsed(
        evaluate_latency,
        nvidia_flags.LATENCY,
        "--sparse-format tf-savedmodel --model-name dlrm --dataset_path data --fused-embedding "
        "--measurement-request-count 50 --measurement-interval 5000 --batch-sizes 256 512 "
        "--concurrency 1 2 --result-path results.csv --server-url http://127.0.0.1:8000 -v "
        "--measurement-mode count_windows --warmup",
    )
    assert options["model_name"] == "dlrm"
    assert (options["batch_sizes"], options["concurrency"]) == ((256, 512), (1, 2))
    assert (options["requests"], options["seconds"]) == (50, 5.0)
    assert (options["url"], str(options["result_path"])) == ("127.0.0.1:8001", "results.csv")
    assert options["fused_embedding"] is True
    notes = capsys.readouterr().err.splitlines()
    flags = ("--sparse_format", "-v", "--measurement_mode", "--warmup")
    assert len(notes) == 4
    assert all(any(n.startswith(f"note: {f} has no effect: ") for n in notes) for f in flags)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            "--sparse-format hps",
            {
                "batch_sizes": tuple(2**n for n in range(8, 16)),
                "concurrency": (1,),
                "requests": 20,
                "seconds": 1.0,
                "shared_memory": "system",
                "output_shared_memory_size": 524288,
                "num_benchmark_samples": 2**18,
                "url": "127.0.0.1:8001",
                "timeout_s": None,
                "model_version": None,
                "dataset_type": "tf_raw",
                "feature_spec": "feature_spec.yaml",
            },
        ),
        (
            "--sparse-format hps --evaluation-mode online --offline-mode cuda --timeout 60 "
            "--model-version 2 --num-benchmark-samples 9 --dataset_type split_tfrecords "
            "--feature_spec f.yaml --output-shared-memory-size 4",
            {
                "shared_memory": "none",
                "timeout_s": 60.0,
                "model_version": "2",
                "num_benchmark_samples": 9,
                "dataset_type": "split_tfrecords",
                "feature_spec": "f.yaml",
                "output_shared_memory_size": 4,
            },
        ),
        ("--offline-mode cuda", {"shared_memory": "cuda", "batch_sizes": (1, 64, 2048)}),
    ],
)
def test_defaults_of_the_original_measurement(flags, expected):
    options = parsed(evaluate_latency, nvidia_flags.LATENCY, f"--model-name dlrm {flags}")
    assert {name: options[name] for name in expected} == expected


def test_accuracy():
    options = parsed(
        evaluate_accuracy,
        nvidia_flags.ACCURACY,
        "--max_steps 3 --checkpoint_dir c --dataset_path data --fused_embedding --model_name dlrm "
        "--test_on_train --batch_size 16384 --server-url grpc://host:8001",
    )
    assert (options["max_steps"], options["eval_mapping"]) == (3, "train")
    assert options["url"] == "host:8001"
    assert (options["log_path"], options["print_freq"]) == (None, None)


def test_defaults_of_the_original_evaluation(capsys):
    text = "--dataset_path data --model_name dlrm --sparse_input_format hps --verbose"
    options = parsed(evaluate_accuracy, nvidia_flags.ACCURACY, text)
    assert (options["batch_size"], options["in_flight"], options["print_freq"]) == (32768, 1, 10)
    assert str(options["log_path"]) == "dlrm_tf_log.json"
    assert "note: --verbose has no effect: " in capsys.readouterr().err
    text += " --auc_thresholds 100 --print_freq 5 --log_path log --dataset_type split_tfrecords"
    options = parsed(evaluate_accuracy, nvidia_flags.ACCURACY, f"{text} --feature_spec f.yaml")
    assert (options["auc_thresholds"], options["print_freq"]) == (100, 5)
    assert (str(options["log_path"]), options["feature_spec"]) == ("log", "f.yaml")
    assert options["dataset_type"] == "split_tfrecords"


def test_limit_of_steps():
    def checked(*flags):
        options = evaluate_accuracy._parser().parse_args(["--checkpoint_dir=c", *flags])
        evaluate_accuracy._check(options)
        return options

    assert checked("--max_steps=3", "--batch_size=100").max_rows == 300
    for wrong in (["--max_steps=0"], ["--max_steps=3", "--max_rows=4"]):
        with pytest.raises(ValueError, match="--max_steps: expected 1 or more, and no --max_rows"):
            checked(*wrong)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--num_gpus 0", "--num_gpus: expected a number, 1 or more, got '0'"),
        ("--sparse-format onnx", "--sparse_format: expected one of tf-savedmodel, hps, got"),
    ],
)
def test_invalid_values(arguments, message, capsys):
    assert deploy.main(["--checkpoint-dir=c", *arguments.split()]) == 2
    assert message in capsys.readouterr().err


def test_invalid_url(capsys):
    assert evaluate_latency.main(["--server-url", "somewhere"]) == 2
    assert "expected a URL like http://127.0.0.1:8000, got 'somewhere'" in capsys.readouterr().err


@pytest.mark.parametrize("tool", [deploy, evaluate_latency, evaluate_accuracy])
def test_help(tool, capsys):
    for flag in ("-h", "--help"):
        with pytest.raises(SystemExit) as ended:
            tool.main([flag])
        assert ended.value.code == 0
        assert "usage: " in capsys.readouterr().out
