"""Reader of written model configurations."""

from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig


def read_config(path: Path) -> ModelConfig:
    """Reads a `config.pbtxt`; a field unknown to Triton is an error."""
    return text_format.Parse(path.read_text(), ModelConfig())
