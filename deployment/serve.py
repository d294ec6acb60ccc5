"""Serves a model repository with Triton's server until Ctrl-C.

    python -m deployment.serve --model_repository repository

The server listens on 127.0.0.1 only. Its own words go to `--log`.
"""

import argparse
import sys
import time

from dataloading.command_line import exit_status
from deployment.triton_server import ADDRESS, Ports, running
from runtime.signals import StopSignal

_LOOK_EVERY_S = 0.2


def serve(options: argparse.Namespace) -> None:
    """Runs the server until SIGINT or SIGTERM, and ends it.

    Raises:
        ValueError: a port that is none; no such repository or program.
        ServerFailed: the server did not start, or ended by itself.
    """
    ports = Ports(options.http_port, options.grpc_port, options.metrics_port)
    for name, port in ports._asdict().items():
        if not 0 <= port <= 65_535:
            raise ValueError(f"--{name}_port is {port}; allowed: 1 to 65535, or 0 for any free one")
    given = [port for port in ports if port]
    if len(set(given)) < len(given):
        raise ValueError(
            f"--http_port, --grpc_port and --metrics_port are {', '.join(map(str, ports))}; "
            "allowed: three different ones"
        )
    with (
        running(
            options.model_repository, options.log, ports=ports, tritonserver=options.tritonserver
        ) as server,
        StopSignal() as stop,
    ):
        print(
            f"serving {options.model_repository}: gRPC on {server.url}, HTTP on "
            f"{ADDRESS}:{server.http}, metrics on {ADDRESS}:{server.metrics}; log: {options.log}",
            flush=True,
        )
        while stop.name is None:
            server.check_alive()
            time.sleep(_LOOK_EVERY_S)
        print(f"{stop.name}: stopping the server (some seconds)", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deployment.serve",
        description="Serves a model repository on 127.0.0.1 until Ctrl-C or SIGTERM.",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--model_repository", required=True, help="folder that deployment.deploy wrote")
    add("--http_port", type=int, default=8000, help="0 for any free one; so the others")
    add("--grpc_port", type=int, default=8001, help="where our clients ask")
    add("--metrics_port", type=int, default=8002, help="Prometheus metrics")
    add("--log", default="runs/tritonserver.log", help="file for what the server writes")
    add("--tritonserver", help="the program; without it that of `make serve-setup`")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 after a signal, or 2 with a message."""
    flags = _parser().parse_args(argv)
    return exit_status(lambda: serve(flags))


if __name__ == "__main__":
    sys.exit(main())
