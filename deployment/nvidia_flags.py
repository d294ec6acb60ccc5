"""Command lines of NVIDIA's deployment tools, in the flags of these."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Arguments = list[str]
Flags = dict[str, list[str]]  # of a command line, with their values


@dataclass(frozen=True)
class FlagNames:
    """Flags of an original command, like --model_precision, with underscores for hyphens.

    Attributes:
        same: Its flag -> the flag here; values stay.
        converted: Its flag -> a function from the values to the arguments here.
        ignored: Its flag -> why it has no effect here, for a note. Its values are dropped.
        lists: Flags of this command whose values may be separated by spaces, too.
        complete: Adds the defaults of the original command to a command line of it, and drops flags
            that it does not read.
    """

    same: Mapping[str, str] = field(default_factory=dict)
    converted: Mapping[str, Callable[[Sequence[str]], Arguments]] = field(default_factory=dict)
    ignored: Mapping[str, str] = field(default_factory=dict)
    lists: tuple[str, ...] = ()
    complete: Callable[[Flags], Flags] = dict

    def translate(self, argv: Sequence[str] | None) -> Arguments:
        """Returns a command line in the flags of this command; notes go to stderr."""
        flags = self.complete(dict(_flags(sys.argv[1:] if argv is None else argv)))
        arguments = []
        for name, values in flags.items():
            if name in self.ignored:
                _note(name, self.ignored[name])
            elif name in self.converted:
                arguments += self.converted[name](values)
            elif name in self.lists and values:
                arguments += [name, ",".join(values)]
            else:
                arguments += [self.same.get(name, name), *values]
        return arguments


def _note(flag: str, reason: str) -> None:
    print(f"note: {flag} has no effect: {reason}", file=sys.stderr)


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


# Defaults of the original deployment. Its command lines have --sparse-format, which is required
# there and which ours do not have.
_ORIGINAL_DEPLOYMENT = {
    "--tensors": "nvidia",
    "--inputs": "encoded",
    "--sparse_model_name": "sparse",
    "--dense_model_name": "dense",
    "--dense_format": "tf-savedmodel",
    "--max_batch_size": "32768",
    "--trt_optimal_batch_size": "1024",
    "--memory_threshold_gb": "70",
    "--num_gpus": "1",
    "--hps_gpucacheper": "0.25",
}


_PARTS = ("--sparse_model_name", "--dense_model_name", "--dense_format")


def _complete_deployment(flags: Flags) -> Flags:
    if "--sparse_format" not in flags:
        return flags
    defaults = {
        name: [value]
        for name, value in _ORIGINAL_DEPLOYMENT.items()
        if name not in flags and DEPLOY.same.get(name) not in flags
    }
    complete = flags | defaults
    for name, reason in _unread_by_deployment(complete).items():
        if name in flags and flags[name] != [_ORIGINAL_DEPLOYMENT.get(name)]:
            _note(name, reason)
        complete.pop(name, None)
    optimal, largest = (
        complete.get(name, [""])[0] for name in ("--trt_optimal_batch_size", "--max_batch_size")
    )
    if "--trt_optimal_batch_size" not in flags and optimal and largest.isdigit():
        complete["--trt_optimal_batch_size"] = [str(min(int(optimal), int(largest)))]
    return complete


def _unread_by_deployment(flags: Flags) -> dict[str, str]:
    is_hps, one = flags["--sparse_format"] == ["hps"], "--monolithic" in flags
    plan, key_client = flags["--dense_format"] == ["trt"], flags["--tensors"] == ["nvidia"]
    reasons = [
        ("--memory_threshold_gb", is_hps, "it is for --sparse_format tf-savedmodel"),
        ("--cpu", is_hps, "it is for --sparse_format tf-savedmodel"),
        ("--memory_threshold_gb", "--cpu" in flags, "with --cpu no table is on a GPU"),
        ("--hps_gpucacheper", not is_hps, "it is for --sparse_format hps"),
        ("--num_gpus", not is_hps, "a SavedModel is on GPU 0"),
        ("--fused_embedding", not (is_hps and key_client), "tables of one width are one anyway"),
        *((f, one, "--monolithic is one SavedModel") for f in _PARTS),
        ("--trt_optimal_batch_size", one or not plan, "it is for --dense_format trt"),
    ]
    return {name: reason for name, is_unread, reason in reversed(reasons) if is_unread}


_SERVED = "the server describes the tensors of its model"
_BY_GRPC = "tensors pass through gRPC, not through shared memory"

DEPLOY = FlagNames(
    same={
        "--model_repository_path": "--model_repository",
        "--model_precision": "--precision",
        "--memory_threshold_gb": "--device_memory_gb",
        "--engine_count_per_device": "--instances",
        "--hps_gpucacheper": "--gpu_cache_share",
    },
    converted={
        "--sparse_format": _backend,
        "--num_gpus": _gpus,
        "--server_url": lambda values: ["--server_url", *_grpc(values)[1:]],
    },
    ignored={"--verbose": "everything is printed"},
    complete=_complete_deployment,
)
# Defaults of the original measurement, which requires --sparse_format.
_ORIGINAL_LATENCY = {
    "--batch_sizes": ["256,512,1024,2048,4096,8192,16384,32768"],
    "--measurement_request_count": ["20"],
    "--measurement_interval": ["1000"],
    "--num_benchmark_samples": ["262144"],
}


LATENCY = FlagNames(
    same={
        "--measurement_request_count": "--requests",
        "--timeout": "--timeout_s",
    },
    converted={
        "--server_url": _grpc,
        "--measurement_interval": lambda ms: ["--seconds", *(str(float(x) / 1000) for x in ms)],
    },
    ignored={
        "--measurement_mode": "a measurement has both --requests and --seconds at least",
        "--evaluation_mode": _BY_GRPC,
        "--offline_mode": _BY_GRPC,
        "--output_shared_memory_size": _BY_GRPC,
        "--warmup": "--warmup_seconds of requests precede each measurement",
        "-v": "everything is printed",
        "--verbose": "everything is printed",
        "--sparse_format": _SERVED,
    },
    lists=("--batch_sizes", "--concurrency"),
    complete=lambda flags: (_ORIGINAL_LATENCY if "--sparse_format" in flags else {}) | flags,
)
# Defaults of the original evaluation, which requires --sparse_input_format. One request after the
# other is in flight there.
_ORIGINAL_ACCURACY = {
    "--batch_size": ["32768"],
    "--print_freq": ["10"],
    "--log_path": ["dlrm_tf_log.json"],
    "--in_flight": ["1"],
}


ACCURACY = FlagNames(
    converted={"--server_url": _grpc, "--test_on_train": lambda _: ["--eval_mapping", "train"]},
    ignored={"--verbose": "everything is printed", "--sparse_input_format": _SERVED},
    complete=lambda flags: (_ORIGINAL_ACCURACY if "--sparse_input_format" in flags else {}) | flags,
)
_NO_GPU = "the models run on the CPU"
SERVE = FlagNames(  # those of tritonserver
    ignored={
        "--pinned_memory_pool_byte_size": _NO_GPU,
        "--cuda_memory_pool_byte_size": _NO_GPU,
        "--backend_config": "this server has the Python backend only",
    }
)
CLIENT = FlagNames(converted={"--server_url": _grpc})
