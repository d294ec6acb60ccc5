"""Definition of one command-line flag: default, help text, limits, and when it is read.

A flag is a field of a dataclass: of a section of the recipes' flags (config/sections/, and those of
a family alone, recipes/<family>/flags.py), or of the options of a command (`config.command`).
"""

import dataclasses
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

# Values of a flag in a resumed training, see `Rules.resume`.
ADOPTED, FIXED, OWN = "adopted", "fixed", "own"

# Values of --mode.
TRAIN = ("train",)
TRAIN_OR_INFERENCE = ("train", "inference")


class Values(Protocol):
    """Values of all flags: the part of `config.config.Config` that rules see."""

    @property
    def recipe(self) -> str: ...

    @property
    def family(self) -> Any: ...

    @property
    def explicit(self) -> frozenset[str]: ...

    def value(self, name: str) -> Any: ...

    def default(self, name: str) -> Any: ...

    def has(self, name: str) -> bool: ...


Predicate = Callable[[Values], bool]

_LIMITS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "at_least": ("at least", operator.ge),
    "above": ("above", operator.gt),
    "at_most": ("at most", operator.le),
    "below": ("below", operator.lt),
    "multiple_of": ("a multiple of", lambda value, factor: value % factor == 0),
}


@dataclass(frozen=True)
class Need:
    """Condition on other flags, without which a flag would be ignored.

    Attributes:
        text: completes "--flag is only read ...".
        holds: returns whether the flags meet the condition.
    """

    text: str
    holds: Predicate


def requires(name: str, *values: str) -> Need:
    """Returns the need for a flag to be set, or to have one of these values."""
    if values:
        text = f"with --{name} {' or '.join(values)}"
        return Need(text, lambda flags: flags.value(name) in values)
    return Need(f"with --{name}", lambda flags: _is_set(flags.value(name)))


def excludes(name: str) -> Need:
    """Returns the need for a flag not to be set."""
    return Need(f"without --{name}", lambda flags: not _is_set(flags.value(name)))


def _is_set(value: Any) -> bool:
    return value is not None and value is not False and value != ""


def not_read(name: str, condition: str) -> ValueError:
    """Returns the error of a flag without effect; condition: of its effect, "with --mode x"."""
    return ValueError(f"--{name} is only read {condition}: leave it out otherwise")


@dataclass(frozen=True)
class Rules:
    """Rules of a flag: who has it, its values, and when it is read.

    Attributes:
        choices: the permitted values; empty: any.
        at_least, above, at_most, below, multiple_of: limits of a number, or of each in a list.
        special: value outside these limits with a meaning of its own.
        check: raises ValueError for another invalid value.
        part: part of the flags that a family has or has not (`Family.parts`); "": all have it.
        modes: values of --mode that read it; empty: all.
        read_when: further condition for it to be read. A flag of the training command that another
            mode does not read is permitted, so that `--restore_checkpoint_path CHECKPOINT --mode
            eval` can be appended to the command that trained.
        used_with: conditions without which the flag has no effect, as in the original recipes; the
            log has a note.
        needs: conditions without which it is an error to pass the flag.
        spaced: whether the items of a list may also be separate arguments: `--layers 64 32`. In a
            command they are always: names of files may have commas.
        resume: value in a resumed training. ADOPTED: the checkpoint's, unless the flag is passed;
            FIXED: the checkpoint's, and passing another is an error; OWN: that of the command.
        is_local: whether processes may differ in it: it names what is on each machine.
        group: title of a group in the help. This and the rest is for flags of commands alone.
        alias: another name, with its dashes.
        metavar: word for the value in the help; "": by the type.
        parse: text -> value, in place of the type; raises ValueError with the expected values.
        is_positional: whether the value has no name before it.
        is_repeated: whether each value of a list has the name before it.
    """

    choices: tuple[str, ...] = ()
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    multiple_of: int | None = None
    special: float | None = None
    check: Callable[[Any], object] | None = None
    part: str = ""
    modes: tuple[str, ...] = ()
    read_when: Predicate | None = None
    used_with: tuple[Need, ...] = ()
    needs: tuple[Need, ...] = ()
    spaced: bool = False
    resume: str = ADOPTED
    is_local: bool = False
    group: str = ""
    alias: str = ""
    metavar: str = ""
    parse: Callable[[str], Any] | None = None
    is_positional: bool = False
    is_repeated: bool = False

    def flag(self, default: Any, help_text: str) -> Any:
        """Returns the dataclass field of a flag with these rules.

        Args:
            default: the default, or a function that returns it; `MISSING` if the flag is required.
            help_text: a phrase that `--help` shows; after a semicolon, details that only
                `--helpfull` of the recipes and the reference page show.
        """
        summary, _, details = help_text.partition("; ")
        metadata = {"help": summary, "details": details, "rules": self}
        if callable(default):
            return dataclasses.field(default_factory=default, metadata=metadata)
        return dataclasses.field(default=default, metadata=metadata)

    def check_value(self, name: str, value: Any) -> None:
        """Raises ValueError for a value, or one in a list, that is not valid."""
        limits = [(*rule, getattr(self, key)) for key, rule in _LIMITS.items()]
        limits = [limit for limit in limits if limit[-1] is not None]
        if value is None or value == self.special:
            return
        for item in value if isinstance(value, tuple) else (value,):
            if self.choices and item not in self.choices:
                choices = ", ".join(map(str, self.choices))
                raise ValueError(f"--{name}: expected one of {choices}, got {item}")
            if isinstance(item, float) and not math.isfinite(item):
                raise ValueError(f"--{name}: expected a finite number, got {item}")
            if not all(is_met(item, bound) for _, is_met, bound in limits):
                text = " and ".join(f"{words} {bound}" for words, _, bound in limits)
                special = "" if self.special is None else f" (or {self.special})"
                raise ValueError(f"--{name}: expected {text}{special}, got {item}")
        if self.check is not None:
            self.check(value)

    def check_needs(self, name: str, flags: Values) -> None:
        """Raises ValueError if the other flags have values with which this one is ignored."""
        for need in self.needs:
            if not need.holds(flags):
                raise not_read(f"{name} ({self.alias})" if self.alias else name, need.text)

    def is_read(self, flags: Values) -> bool:
        """Returns whether the flag is read in the flags' --mode."""
        is_mode = not self.modes or flags.value("mode") in self.modes
        return is_mode and (self.read_when is None or self.read_when(flags))

    def unmet(self, flags: Values) -> Need | None:
        """Returns the first condition without which the flag has no effect."""
        return next((need for need in self.used_with if not need.holds(flags)), None)


def flag(default: Any, help_text: str, group: str = "", **rules: Any) -> Any:
    """Returns the dataclass field of a flag with these rules; see `Rules.flag`."""
    return Rules(group=group, **rules).flag(default, help_text)


def recipe_flag() -> Any:
    """Returns the field of the flag `--recipe` of a command that reads a checkpoint."""
    return flag(
        None,
        "recipe of the checkpoint, module:NAME of its Definition (default: the built-in one)",
        metavar="MODULE:NAME",
    )


def rules_of(field: "dataclasses.Field[Any]") -> Rules:
    """Returns the rules that a flag's dataclass field carries."""
    return cast(Rules, field.metadata["rules"])


def value_text(value: Any) -> str:
    """Returns a value as it is written on the command line: a list with commas."""
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def mask_passwords(value: Any) -> Any:
    """Returns a text without user and password of its URIs, for logs and files; other values
    unchanged.

    >>> mask_passwords("--mlflow_uri=postgresql://user:password@host/runs")
    '--mlflow_uri=postgresql://***@host/runs'
    """
    return re.sub(r"://\S+@", "://***@", value) if isinstance(value, str) else value
