"""Serves a model repository with Triton's server until Ctrl-C.

    python -m deployment.serve --model_repository repository

The server listens on 127.0.0.1 only, and writes its log to `--log`.
"""

import argparse
import sys
import time
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from deployment import nvidia_flags
from deployment.option_checks import check_ranges, check_writable
from deployment.serve.environment import server_program
from deployment.serve.server import ADDRESS, Ports, ServerFailed, StartStopped, running
from deployment.triton.config import CONFIG_FILE
from runtime.cli import exit_status
from runtime.cluster.signals import StopSignal
from runtime.options import tool_parser

# Exit status: "temporary failure, try again" of sysexits.h, as that of an interrupted training.
ENDED_BY_ITSELF = 75

_CHECK_INTERVAL_S = 0.2

# Triton's backends by the platforms that configurations may name instead.
_PLATFORMS = {
    "tensorflow_savedmodel": "tensorflow",
    "tensorflow_graphdef": "tensorflow",
    "tensorrt_plan": "tensorrt",
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
}


def serve(options: argparse.Namespace) -> int:
    """Runs the server until SIGINT or SIGTERM, and stops it.

    Returns 0 after a signal; `ENDED_BY_ITSELF`, with a message, if the server or a process of a
    model ended after the server was ready, so that a supervisor can start it again.

    Raises:
        ValueError: a flag is invalid, the program cannot serve the repository, or the log cannot be
            written.
        ServerFailed: the server did not start.
    """
    ports = Ports(options.http_port, options.grpc_port, options.metrics_port)
    limits = [f"{name}_port" for name in Ports._fields]
    check_ranges(vars(options), dict.fromkeys(limits, 0), dict.fromkeys(limits, 65_535))
    fixed = [port for port in ports if port]
    if len(set(fixed)) < len(fixed):
        raise ValueError(f"--http_port, --grpc_port, --metrics_port: expected others than {fixed}")
    repository = Path(options.model_repository)
    if repository.is_dir():  # otherwise `running` reports it
        _check_models(repository, server_program(options.tritonserver).parent / "backends")
        check_writable(Path(options.log), "--log")
    with StopSignal() as stop:
        try:
            with running(
                repository,
                options.log,
                ports=ports,
                tritonserver=options.tritonserver,
                stopped=lambda: stop.name is not None,
            ) as server:
                print(
                    f"serving {repository}: gRPC on {server.url}, HTTP on "
                    f"{ADDRESS}:{server.http}, metrics on {ADDRESS}:{server.metrics}; "
                    f"log: {options.log}",
                    flush=True,
                )
                while stop.name is None:
                    try:
                        server.check_alive()
                    except ServerFailed as error:
                        print(f"error: {error}", file=sys.stderr, flush=True)
                        return ENDED_BY_ITSELF
                    time.sleep(_CHECK_INTERVAL_S)
                print(f"{stop.name}: stopping the server (some seconds)", flush=True)
        except StartStopped:
            print(f"{stop.name}: ended the server, which was loading its models", flush=True)
    return 0


def _check_models(repository: Path, backends: Path) -> None:
    files = sorted(repository.glob(f"*/{CONFIG_FILE}"))
    # Triton needs no configuration if a version folder describes itself.
    if not files and not any(path.name.isdecimal() for path in repository.glob("*/*")):
        raise ValueError(
            f"--model_repository {repository} has no models: deploy one into it with "
            "python -m deployment.deploy"
        )
    for file in files:
        try:
            # A later Triton may have more fields.
            config = text_format.Parse(file.read_text(), ModelConfig(), allow_unknown_field=True)
        except (text_format.ParseError, UnicodeDecodeError) as error:
            raise ValueError(f"{file} is not a configuration of a model: {error}") from None
        backend = config.backend or _PLATFORMS.get(config.platform)
        if backend and not (backends / backend).is_dir():
            raise ValueError(
                f"--model_repository {repository}: {file.parent.name} is for Triton's backend "
                f"{backend}, which {backends} lacks: serve it in NVIDIA's container that has it, "
                "or deploy the checkpoint with --backend local, which runs here"
            )


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(
        "deployment.serve",
        "Serves a model repository on 127.0.0.1 until Ctrl-C or SIGTERM.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--model_repository", required=True, help="folder that deployment.deploy wrote")
    add("--http_port", type=int, default=8000, help="HTTP; 0 is any free port, also below")
    add("--grpc_port", type=int, default=8001, help="gRPC, which our clients use")
    add("--metrics_port", type=int, default=8002, help="Prometheus metrics")
    add("--log", default="runs/tritonserver.log", help="log file of the server")
    add("--tritonserver", help="server program (default: that of `make serve-setup`)")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0 after a signal, `ENDED_BY_ITSELF`, or 2."""
    flags = _parser().parse_args(nvidia_flags.SERVE.translate(argv))
    return exit_status(lambda: serve(flags))


if __name__ == "__main__":
    sys.exit(main())
