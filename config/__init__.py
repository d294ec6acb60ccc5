"""Command-line flags as fields of dataclasses: those of the recipes, and those of commands.

`config.flag` defines what a flag is, `config.command` reads the command line of a command. The
names of `config.public`, which concern the recipes' flags, are also names of this package. They are
imported when they are used, so that a command does not wait for them.
"""

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from config.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if importlib.util.find_spec(f"config.{name}"):
        raise AttributeError(name)  # a module, which the import statement imports
    return getattr(importlib.import_module("config.public"), name)
