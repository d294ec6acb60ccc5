"""What a server reads of a model's configuration."""

from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig


def read_config(path: Path) -> ModelConfig:
    """A `config.pbtxt`; a field that Triton does not know is an error."""
    return text_format.Parse(path.read_text(), ModelConfig())
