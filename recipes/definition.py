"""`Definition`: a recipe as the command line and the Python API start it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from config import Config

if TYPE_CHECKING:
    from distributed_embeddings.collectives import World

    from recipes.recipe import Recipe
    from runtime.hardware.device import Device

    # Its second argument is the feature spec, None for samples that are drawn from flags.
    Build = Callable[[Config, Any, World, Device], Recipe]


@dataclass(frozen=True)
class Definition:
    """Name, flags and model of a recipe.

    Attributes:
        name: name of the recipe.
        build: composes model and data, see `recipes.recipe.Recipe`.
        defaults: flags whose default differs.
        aliases: other names of flags, and the flag that each stands for.
        flags_of: recipe whose flags this one has; None for a built-in recipe.
        report_plan: returns the output of `--plan_only` from the flags and the feature spec.
    """

    name: str
    build: Build
    defaults: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    flags_of: str | None = None
    report_plan: Callable[[Config, Any], str] | None = None
