"""Command-line flags as typed sections: `parse` reads a command line into a `Config`.

Each flag is defined once, as a field of a section in config/sections/. A recipe changes defaults
by name (`parse(argv, "dcnv2", defaults={"optimizer": "adam"})`) and never repeats a definition.
Below `main.py` no module sees absl: modules take the values that they need from the `Config`.
"""

from config.command_line import parse, usage
from config.config import Config, flag_types
from config.sections.checkpoint import CheckpointConfig
from config.sections.model import canonical_value, parse_embedding_dims
from config.sections.optimizer import OptimizerConfig
from config.sections.run import TERABYTE, RunConfig, read_loss_scale

__all__ = [
    "TERABYTE",
    "CheckpointConfig",
    "Config",
    "OptimizerConfig",
    "RunConfig",
    "canonical_value",
    "flag_types",
    "parse",
    "parse_embedding_dims",
    "read_loss_scale",
    "usage",
]
