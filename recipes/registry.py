"""Recipes by name: the built-in ones of every family, and definitions in modules."""

import importlib
import sys
from pathlib import Path

from config.family import Definition
from recipes.collaborative.family import NCF
from recipes.ranking.family import DCNV2, DLRM
from recipes.sequential.family import SIM
from runtime.tensorflow_start import import_tensorflow, prepare_tensorflow

__all__ = ["BY_NAME", "DCNV2", "DLRM", "NCF", "SIM", "definition_of", "path_of"]

BY_NAME = {definition.name: definition for definition in (DLRM, DCNV2, SIM, NCF)}

OWN_RECIPE = "module:NAME of its Definition"


def definition_of(recipe: str | Definition) -> Definition:
    """Returns a recipe by its name, or by module and name of its definition, "wide_deep:WIDE_DEEP".

    Raises:
        ValueError: the recipe is unknown, or the module cannot be imported.
    """
    if isinstance(recipe, Definition):
        return recipe
    if recipe in BY_NAME:
        return BY_NAME[recipe]
    module, colon, name = recipe.partition(":")
    expected = f"recipe: expected one of {', '.join(BY_NAME)}, or {OWN_RECIPE}, got {recipe!r}"
    if not colon:
        raise ValueError(expected)
    prepare_tensorflow()
    import_tensorflow()  # as the module does, without its log
    try:
        definition = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise ValueError(f"{expected}: {error}") from None
    if not isinstance(definition, Definition):
        raise ValueError(f"{expected}: the module {module} has no Definition of this name")
    return definition


def path_of(definition: Definition) -> str:
    """Returns the text by which another process finds a recipe (`definition_of`).

    Raises:
        ValueError: no imported module has the definition as a global variable.
    """
    if BY_NAME.get(definition.name) is definition:
        return definition.name
    for name, module in list(sys.modules.items()):
        for variable, value in list(getattr(module, "__dict__", {}).items()):
            if value is definition and (name != "__main__" or hasattr(module, "__file__")):
                path = Path(str(module.__file__)).stem if name == "__main__" else name
                return f"{path}:{variable}"
    raise ValueError(
        f"recipe {definition.name}: expected a Definition that is a global variable of a module, "
        "so that other processes find it"
    )
