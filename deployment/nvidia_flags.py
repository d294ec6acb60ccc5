"""Command lines of NVIDIA's deployment tools, in the flags of these."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Arguments = list[str]


@dataclass(frozen=True)
class FlagNames:
    """Flags of an original command, like --model_precision, with underscores for hyphens.

    Attributes:
        same: Its flag -> the flag here; values stay.
        converted: Its flag -> a function from the values to the arguments here.
        ignored: Its flag -> why it has no effect here, for a note. Its values are dropped.
        lists: Flags of this command whose values may be separated by spaces, too.
    """

    same: Mapping[str, str] = field(default_factory=dict)
    converted: Mapping[str, Callable[[Sequence[str]], Arguments]] = field(default_factory=dict)
    ignored: Mapping[str, str] = field(default_factory=dict)
    lists: tuple[str, ...] = ()

    def translate(self, argv: Sequence[str] | None) -> Arguments:
        """Returns a command line in the flags of this command; notes go to stderr."""
        arguments = []
        for name, values in _flags(sys.argv[1:] if argv is None else argv):
            if name in self.ignored:
                print(f"note: {name} has no effect: {self.ignored[name]}", file=sys.stderr)
            elif name in self.converted:
                arguments += self.converted[name](values)
            elif name in self.lists and values:
                arguments += [name, ",".join(values)]
            else:
                arguments += [self.same.get(name, name), *values]
        return arguments


def _flags(argv: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields each flag, with underscores for hyphens, and its values."""
    name, values = "", []
    for argument in [*argv, "--"]:
        if not re.match(r"--|-[a-zA-Z]$", argument) and name:
            values.append(argument)
            continue
        if name:
            yield name, values
        name, equals, value = argument.partition("=")
        values = [value] if equals else []
        if name.startswith("--"):
            name = "--" + name[2:].replace("-", "_").replace("no_", "no-", name.startswith("--no-"))


def _backend(values: Sequence[str]) -> Arguments:
    formats = {"tf-savedmodel": "tensorflow", "hps": "hps"}
    if len(values) != 1 or values[0] not in formats:
        raise ValueError(f"--sparse_format: expected one of {', '.join(formats)}, got {values}")
    return ["--backend", formats[values[0]]]


def _gpus(values: Sequence[str]) -> Arguments:
    if len(values) != 1 or not values[0].isdigit() or int(values[0]) < 1:
        raise ValueError(f"--num_gpus: expected a number, 1 or more, got {' '.join(values)!r}")
    return ["--gpus", ",".join(map(str, range(int(values[0]))))]


def _grpc(values: Sequence[str]) -> Arguments:
    """Triton's gRPC is one port above its HTTP."""
    (url,) = values or [""]
    scheme, separator, address = url.rpartition("://")
    host, _, port = address.rstrip("/").rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"--server_url: expected a URL like http://127.0.0.1:8000, got {url!r}")
    if separator and scheme != "grpc":
        port = str(int(port) + 1)
    return ["--url", f"{host}:{port}"]


def _milliseconds(values: Sequence[str]) -> Arguments:
    return ["--seconds", *(str(float(value) / 1000) for value in values)]


_NAMES = "models are named after --model_name"
_VERSION = "a deployment writes version 1"
_PERF_ANALYZER = "perf_analyzer is run with fixed numbers of requests"
_SPEC = "the checkpoint names its data set and how it is stored"

DEPLOY = FlagNames(
    same={
        "--model_repository_path": "--model_repository",
        "--model_precision": "--precision",
        "--memory_threshold_gb": "--device_memory_gb",
        "--engine_count_per_device": "--instances",
        "--hps_gpucacheper": "--gpu_cache_share",
    },
    converted={"--sparse_format": _backend, "--num_gpus": _gpus},
    ignored={
        "--sparse_model_name": _NAMES,
        "--dense_model_name": _NAMES,
        "--model_version": _VERSION,
        "--dense_format": "it follows from --backend: TensorRT on a GPU, ONNX on a CPU",
        "--trt_optimal_batch_size": "plans are tuned for --max_batch_size",
        "--fused_embedding": "tables of one width are always looked up together",
        "--server_url": "the models are files; start or reload the server afterwards",
        "--load_model": "the models are files; start or reload the server afterwards",
        "--load_model_timeout_s": "the models are files; start or reload the server afterwards",
        "--verbose": "everything is printed",
        "--cpu": "the export runs on the CPU",
    },
)
LATENCY = FlagNames(
    same={"--result_path": "--output", "--measurement_request_count": "--requests"},
    converted={"--server_url": _grpc, "--measurement_interval": _milliseconds},
    ignored={
        "--model_version": _VERSION,
        "--measurement_mode": _PERF_ANALYZER,
        "--evaluation_mode": _PERF_ANALYZER,
        "--offline_mode": _PERF_ANALYZER,
        "--output_shared_memory_size": _PERF_ANALYZER,
        "--warmup": "--warmup_seconds of requests precede each measurement",
        "--timeout": "each measurement ends after --seconds",
        "-v": "everything is printed",
        "--sparse_format": "it is read from the served model",
        "--fused_embedding": "it is read from the served model",
        "--feature_spec": _SPEC,
        "--dataset_type": _SPEC,
        "--num_benchmark_samples": "rows are sent again if there are too few",
    },
    lists=("--batch_sizes", "--concurrency"),
)
ACCURACY = FlagNames(
    converted={"--server_url": _grpc, "--test_on_train": lambda _: ["--eval_mapping", "train"]},
    ignored={
        "--dataset_type": _SPEC,
        "--feature_spec": _SPEC,
        "--auc_thresholds": "the AUC is exact",
        "--print_freq": "results are printed at the end",
        "--log_path": "results are printed",
        "--verbose": "everything is printed",
        "--fused_embedding": "it is read from the served model",
        "--sparse_input_format": "it is read from the served model",
    },
)
