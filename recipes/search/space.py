"""Search space: the flags that a search varies, `--param FLAG=KIND:VALUES`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from config.config import flag_types
from config.family import Definition

SYNTAX = "FLAG=log:LOW..HIGH, FLAG=float:LOW..HIGH, FLAG=int:LOW..HIGH or FLAG=choice:A,B,..."
CHOICE = "choice"
_RANGES: dict[str, Callable[[str], float]] = {"log": float, "float": float, "int": int}


@dataclass(frozen=True)
class Parameter:
    """A flag and the values that it may have.

    Attributes:
        kind: log, float, int or choice.
        values: lowest and highest value; of choice, the texts to choose from.
        is_integer: whether the flag takes integers, of a range on a logarithmic scale, too.
    """

    flag: str
    kind: str
    values: tuple[Any, ...]
    is_integer: bool = False

    def suggest(self, trial: Any) -> Any:
        """Returns the value for a trial of Optuna."""
        if self.kind == CHOICE:
            return trial.suggest_categorical(self.flag, list(self.values))
        suggest = trial.suggest_int if self.is_integer else trial.suggest_float
        return suggest(self.flag, *self.values, log=self.kind == "log")

    def start(self, value: Any) -> Any:
        """Returns the value of a flag as a value of this parameter; None if it is another one."""
        if self.kind == CHOICE:
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            return text if text in self.values else None
        is_inside = isinstance(value, int | float) and self.values[0] <= value <= self.values[1]
        return value if is_inside else None


def parse_parameters(texts: Sequence[str], definition: Definition) -> list[Parameter]:
    """Reads the search space.

    Args:
        texts: values of `--param`; choices that contain commas are separated by `|`.
        definition: the recipe, which has the flags.

    Raises:
        ValueError: a text has another form, or a flag is named twice.
    """
    parameters = [_parse(text, definition) for text in texts]
    names = [parameter.flag for parameter in parameters]
    if not names:
        raise ValueError(f"--param: expected at least one, {SYNTAX}")
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"--param: expected each flag once, got {min(twice)} several times")
    return parameters


def _parse(text: str, definition: Definition) -> Parameter:
    name, _, rest = text.partition("=")
    kind, _, values = rest.partition(":")
    flag = name.lstrip("-").replace("-", "_")
    flag = definition.aliases.get(flag, flag)
    if kind == CHOICE and flag and values:
        choices = tuple(values.split("|" if "|" in values else ","))
        return Parameter(flag, kind, choices)
    try:
        is_integer = kind == "int" or (kind == "log" and _takes_integers(flag, definition))
        convert = int if is_integer else _RANGES[kind]
        low, high = map(convert, values.split(".."))
    except (KeyError, ValueError):
        raise ValueError(f"--param {text}: expected {SYNTAX}") from None
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"--param {text}: expected finite numbers, got {low} and {high}")
    if not flag or low >= high or (kind == "log" and low <= 0):
        rule = "0 < LOW < HIGH" if kind == "log" else "LOW < HIGH"
        raise ValueError(f"--param {text}: expected {rule}, got {low} and {high}")
    return Parameter(flag, kind, (low, high), is_integer)


def _takes_integers(flag: str, definition: Definition) -> bool:
    try:
        kinds = flag_types(definition.family, flag)
    except KeyError:  # an unknown flag, which the check of the command line reports
        return False
    return int in kinds and float not in kinds
