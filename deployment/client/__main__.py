"""Prints the models of a server and their tensors.

python -m deployment.client --url 127.0.0.1:8001
"""

import sys

from deployment import nvidia_flags
from deployment.client.client import Client
from runtime.cli import exit_status
from runtime.options import tool_parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0, or 2 after an error."""
    parser = tool_parser(
        "deployment.client", "Prints the models that a server has ready, and their tensors."
    )
    parser.add_argument("--url", default="127.0.0.1:8001", help="host:port of the server's gRPC")
    parser.add_argument("--model_name", help="only this model")

    def work() -> None:
        flags = parser.parse_args(nvidia_flags.CLIENT.translate(argv))
        with Client(flags.url, flags.model_name or "") as client:
            names = [flags.model_name] if flags.model_name else client.ready_models()
        for name in names:
            with Client(flags.url, name) as client:
                print(_description(client.config()))

    return exit_status(work)


def _description(config) -> str:
    batch = f", up to {config.max_batch_size:,} rows" if config.max_batch_size else ""
    lines = [f"{config.name}: {config.platform or config.backend}{batch}"]
    for kind, tensors in (("input ", config.input), ("output", config.output)):
        for tensor in tensors:
            kinds = tensor.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
            dtype = kinds[tensor.data_type].name.removeprefix("TYPE_")
            lines.append(f"  {kind}  {tensor.name}  {dtype} {list(tensor.dims)}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
