"""Sections of the configuration: each field is the command-line flag of the same name."""

import dataclasses
import functools
import types
import typing
from typing import Any

from config.flag import flag_set, rules_of
from config.sections import checkpoint, collaborative, distribution, optimizer, run
from config.sections.checkpoint import CheckpointConfig
from config.sections.collaborative import CollaborativeConfig
from config.sections.data import DataConfig
from config.sections.distribution import DistributionConfig
from config.sections.model import ModelConfig, SequentialConfig
from config.sections.optimizer import OptimizerConfig
from config.sections.run import RunConfig

# In the order of `--help`.
SECTIONS: dict[str, type] = {
    "data": DataConfig,
    "run": RunConfig,
    "model": ModelConfig,
    "sequence": SequentialConfig,
    "collaborative": CollaborativeConfig,
    "optimizer": OptimizerConfig,
    "checkpoint": CheckpointConfig,
    "distribution": DistributionConfig,
}
# Rules across flags: each raises ValueError for values that contradict each other.
RULES = (
    *(*run.RULES, *checkpoint.RULES, *distribution.RULES),
    *(*collaborative.RULES, *optimizer.RULES),
)


@functools.cache
def fields_of(recipe: str) -> tuple[tuple[str, "dataclasses.Field[Any]"], ...]:
    """Returns (section, field) of each flag that a recipe has."""
    return tuple(
        (section, field)
        for section, kind in SECTIONS.items()
        for field in dataclasses.fields(kind)
        if flag_set(recipe) in (rules_of(field).recipes or (flag_set(recipe),))
    )


@functools.cache
def sections_by_flag(recipe: str) -> dict[str, str]:
    """Returns the section of each flag, of those of other recipes too.

    Two sections may have a flag of one name, for different recipes.
    """
    names = {
        field.name: section
        for section, kind in SECTIONS.items()
        for field in dataclasses.fields(kind)
    }
    return names | {field.name: section for section, field in fields_of(recipe)}


def flag_types(recipe: str, name: str) -> tuple[type, ...]:
    """Returns the Python types that the value of a recipe's flag may have."""
    hint = typing.get_type_hints(SECTIONS[sections_by_flag(recipe)[name]])[name]
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = tuple(typing.get_origin(kind) or kind for kind in kinds)
    return (*kinds, int) if float in kinds else kinds
