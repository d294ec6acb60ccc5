"""Command-line flags as typed sections: `parse` reads a command line into a `Config`.

Each flag is defined once, as a field of a section in config/sections/. A recipe changes defaults
by name (`Definition("dcnv2", family, {"optimizer": "adam"})`) and never repeats a definition.
Below `main.py` no module sees absl: modules take the values that they need from the `Config`.
"""

from config.command_line import parse
from config.config import Config, flag_types, flags_with
from config.family import Definition
from config.help import usage
from config.sections.data import is_drawn_from_flags
from config.sections.device import DeviceConfig, read_loss_scale
from config.sections.model import parse_embedding_dims
from config.sections.optimizer import OptimizerConfig

__all__ = [
    "Config",
    "Definition",
    "DeviceConfig",
    "OptimizerConfig",
    "flag_types",
    "flags_with",
    "is_drawn_from_flags",
    "parse",
    "parse_embedding_dims",
    "read_loss_scale",
    "usage",
]
