"""Serves a model repository with Triton's server until Ctrl-C.

    python -m deployment.serve --model_repository repository

The server listens on 127.0.0.1 unless another address is given, and writes its log to `--log`.
"""

import functools
import sys
import time
from dataclasses import MISSING, dataclass
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from config.command import CommandOptions, parse
from config.flag import flag
from deployment import nvidia_flags
from deployment.serve.server import LOOPBACK, Ports, ServerFailed, StartStopped, running
from deployment.serve.serving_environment import server_program
from deployment.serving import checksums
from deployment.triton.config_pbtxt import CONFIG_FILE
from runtime.cli import exit_status
from runtime.cluster.signals import StopSignal
from runtime.files.outputs import check_writable

# Exit status: "temporary failure, try again" of sysexits.h, as that of an interrupted training.
ENDED_BY_ITSELF = 75

_CHECK_INTERVAL_S = 0.2
_PYTHON_MODEL = "model.py"

# Risks of addresses that other machines reach.
_RISKS = {
    "http_address": "this Triton ends, with all models, after one malicious JSON body: open gRPC "
    "alone, or use a proxy (docs/how_to/serve.md)",
    "grpc_address": "any client that reaches the port can also load and unload models",
}

# Triton's backends by the platforms that configurations may name instead.
_PLATFORMS = {
    "tensorflow_savedmodel": "tensorflow",
    "tensorflow_graphdef": "tensorflow",
    "tensorrt_plan": "tensorrt",
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
}


_port_flag = functools.partial(flag, at_least=0, at_most=65_535)
_address_flag = functools.partial(flag, LOOPBACK, choices=(LOOPBACK, "0.0.0.0"))


@dataclass(frozen=True)
class ServeOptions(CommandOptions):
    """Serves a model repository until Ctrl-C or SIGTERM."""

    model_repository: str = flag(MISSING, "folder that deployment.deploy wrote", metavar="DIR")
    http_port: int = _port_flag(8000, "HTTP; 0 is any free port, also below")
    grpc_port: int = _port_flag(8001, "gRPC, which our clients use")
    metrics_port: int = _port_flag(8002, "Prometheus metrics, on 127.0.0.1")
    http_address: str = _address_flag("of HTTP; 0.0.0.0 is unsafe")
    grpc_address: str = _address_flag("of gRPC")
    log: str = flag("runs/tritonserver.log", "log file of the server", metavar="FILE")
    tritonserver: str | None = flag(
        None, "server program (default: that of `make serve-setup`)", metavar="FILE"
    )

    @property
    def ports(self) -> Ports:
        """Ports of HTTP, gRPC and metrics."""
        return Ports(self.http_port, self.grpc_port, self.metrics_port)

    def __post_init__(self) -> None:
        super().__post_init__()
        fixed = [port for port in self.ports if port]
        if len(set(fixed)) < len(fixed):
            raise ValueError(
                f"--http_port, --grpc_port, --metrics_port: expected others than {fixed}"
            )


def serve(options: ServeOptions) -> int:
    """Runs the server until SIGINT or SIGTERM, and stops it.

    Returns 0 after a signal; `ENDED_BY_ITSELF`, with a message, if the server or a process of a
    model ended after the server was ready, so that a supervisor can start it again.

    Raises:
        ValueError: a flag is invalid, the program cannot serve the repository, or the log cannot be
            written.
        ServerFailed: the server did not start.
    """
    repository = Path(options.model_repository)
    if repository.is_dir():  # otherwise `running` reports it
        _check_models(repository, server_program(options.tritonserver).parent / "backends")
        check_writable(Path(options.log), "--log")
    for name, risk in _RISKS.items():
        if getattr(options, name) != LOOPBACK:
            print(f"warning: --{name} {getattr(options, name)}: {risk}", file=sys.stderr)
    with StopSignal() as stop:
        try:
            with running(
                repository,
                options.log,
                ports=options.ports,
                http_address=options.http_address,
                grpc_address=options.grpc_address,
                tritonserver=options.tritonserver,
                stopped=lambda: stop.name is not None,
            ) as server:
                print(
                    f"serving {repository}: gRPC on {options.grpc_address}:{server.grpc}, HTTP on "
                    f"{options.http_address}:{server.http}, metrics on {LOOPBACK}:{server.metrics}"
                    f"; log: {options.log}",
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
    """Raises ValueError for a model that the server could not load, or not serve."""
    folders = sorted(path for path in repository.iterdir() if path.is_dir() or path.is_symlink())
    for folder in folders:
        if folder.name.startswith("."):
            raise ValueError(
                f"{folder} was left by a deployment that was killed: remove it, or rename it to "
                "its model, if that is missing"
            )
        _check_model(folder, backends)
    if not folders:
        raise ValueError(
            f"--model_repository {repository} has no models: deploy one into it with "
            "python -m deployment.deploy"
        )


def _check_model(folder: Path, backends: Path) -> None:
    file = folder / CONFIG_FILE
    versions = [path for path in folder.glob("*") if path.name.isdecimal()]
    if not file.is_file() or not file.stat().st_size:
        # Triton needs no configuration for a model that describes itself.
        files = [path.name for version in versions for path in version.glob("model.*")]
        if not set(files) - {_PYTHON_MODEL}:
            raise ValueError(f"{file}: the file is missing or empty; deploy the checkpoint again")
        return
    try:
        # A later Triton may have more fields.
        config = text_format.Parse(file.read_text(), ModelConfig(), allow_unknown_field=True)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not a configuration of a model: {error}") from None
    for step in config.ensemble_scheduling.step:
        if not (folder.parent / step.model_name).is_dir():
            raise ValueError(
                f"{folder.parent / step.model_name}: the folder is missing, the ensemble "
                f"{folder.name} needs it; deploy the checkpoint again"
            )
    for version in versions:
        checksums.check_sizes(version)
    backend = config.backend or _PLATFORMS.get(config.platform)
    if backend and not (backends / backend).is_dir():
        raise ValueError(
            f"--model_repository {folder.parent}: {folder.name} is for Triton's backend "
            f"{backend}, which {backends} lacks: serve it in NVIDIA's container that has it, "
            "or deploy the checkpoint with --backend local, which runs here"
        )


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0 after a signal, `ENDED_BY_ITSELF`, or 2."""
    arguments = nvidia_flags.SERVE.translate(argv)
    return exit_status(lambda: serve(parse(ServeOptions, arguments, "deployment.serve")))


if __name__ == "__main__":
    sys.exit(main())
