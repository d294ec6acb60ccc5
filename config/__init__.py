"""Flags read into dataclasses: `Config`. They are defined in config/sections.py.

A recipe changes defaults by name (`parse(argv, defaults={"optimizer": "adam"})`) and never defines
a flag again; where its original called a flag otherwise, it names an alias. Below `main.py` nobody
sees absl: everybody takes the values it needs from the `Config` that it is given.
"""

import dataclasses
import json
import os
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from absl import flags

from config import presets
from config.rules import check, meaning, read_loss_scale, unused
from config.sections import (
    AUTO,
    COLLABORATIVE,
    SECTIONS,
    TERABYTE,
    CheckpointConfig,
    CollaborativeConfig,
    DataConfig,
    DistributionConfig,
    ModelConfig,
    OptimizerConfig,
    RunConfig,
    SequenceConfig,
    has_flag,
    homes,
    kinds_of,
)

__all__ = [
    "TERABYTE",
    "Config",
    "OptimizerConfig",
    "RunConfig",
    "define_flags",
    "kinds_of",
    "meaning",
    "parse",
    "parse_embedding_dims",
    "read_loss_scale",
    "unused",
    "usage",
]


@dataclass(frozen=True)
class Config:
    """All that was asked for.

    Attributes:
      recipe: name of the recipe, e.g. `dlrm`; flags that it does not have keep their defaults.
      given: names of the flags that stood on the command line (the others are defaults).
      preset_note: a sentence on the preset and its values, "" where a checkpoint has all values;
        None before a preset is chosen.
    """

    recipe: str
    given: frozenset[str] = frozenset()
    preset_note: str | None = None
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    sequence: SequenceConfig = dataclasses.field(default_factory=SequenceConfig)
    collaborative: CollaborativeConfig = dataclasses.field(default_factory=CollaborativeConfig)
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    run: RunConfig = dataclasses.field(default_factory=RunConfig)
    checkpoint: CheckpointConfig = dataclasses.field(default_factory=CheckpointConfig)
    distribution: DistributionConfig = dataclasses.field(default_factory=DistributionConfig)

    def flat(self) -> dict[str, Any]:
        """The recipe's flags and their values in one dictionary, for the log and the checkpoint."""
        return {
            field.name: getattr(getattr(self, section), field.name)
            for section, field in _fields(self.recipe)
        }

    def replace(self, **values: Any) -> "Config":
        """A copy in which the named flags have other values; checked again."""
        sections: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            sections.setdefault(homes(self.recipe)[name], {})[name] = value
        changed = {
            section: dataclasses.replace(getattr(self, section), **new)
            for section, new in sections.items()
        }
        config = dataclasses.replace(self, **changed)
        check(config)
        return config


def _fields(recipe: str) -> list[tuple[str, dataclasses.Field]]:
    """(section, field) of each flag that a recipe has."""
    return [
        (section, field)
        for section, kind in SECTIONS.items()
        for field in dataclasses.fields(kind)
        if has_flag(recipe, field)
    ]


def define_flags(recipe: str, defaults: Mapping[str, Any] | None = None) -> flags.FlagValues:
    """Defines a recipe's flags, with its own defaults, in a fresh absl `FlagValues`."""
    values = flags.FlagValues()
    defaults = dict(defaults or {})
    hints = {section: typing.get_type_hints(kind) for section, kind in SECTIONS.items()}
    for section, field in _fields(recipe):
        default = defaults.pop(field.name, field.default)
        _define(values, section, field, hints[section][field.name], default)
    if defaults:
        raise ValueError(f"defaults for flags that do not exist: {', '.join(sorted(defaults))}")
    return values


def _define(values: flags.FlagValues, section: str, field, hint, default) -> None:
    options = {"flag_values": values, "module_name": section}
    help_text, choices = field.metadata["help"], field.metadata["choices"]
    if isinstance(hint, types.UnionType):
        (hint,) = (kind for kind in typing.get_args(hint) if kind is not type(None))
    if choices:
        flags.DEFINE_enum(field.name, default, list(choices), help_text, **options)
    elif hint is bool:
        flags.DEFINE_bool(field.name, default, help_text, **options)
    elif hint is int:
        flags.DEFINE_integer(field.name, default, help_text, **options)
    elif hint is float:
        flags.DEFINE_float(field.name, default, help_text, **options)
    elif hint is str:
        flags.DEFINE_string(field.name, default, help_text, **options)
    else:
        flags.DEFINE_list(field.name, [str(item) for item in default], help_text, **options)


def parse(
    argv: Sequence[str],
    recipe: str,
    defaults: Mapping[str, Any] | None = None,
    aliases: Mapping[str, str] | None = None,
) -> Config:
    """Reads a command line into a `Config`.

    Args:
      argv: the command line, program name first.
      recipe: name of the recipe that runs.
      defaults: flags whose default differs in this recipe.
      aliases: other names of flags, and which they mean; with an equals sign in both, another
        word for a value ("mode=test": "mode=eval").

    Raises:
      ValueError: an unknown flag, a value of the wrong kind or out of range, a left-over
        argument, or flags that contradict each other; the message says the way out.
    """
    values = define_flags(recipe, defaults)
    try:
        rest = values(_joined(_without_aliases(argv, aliases or {}), recipe))
    except flags.Error as error:
        raise ValueError(f"{error} (see --help)") from None
    if len(rest) > 1:
        raise ValueError(
            f"{rest[1]!r} is no flag; flags start with --, lists are written without spaces: a,b,c"
        )
    sections: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for section, field in _fields(recipe):
        value = values[field.name].value
        if isinstance(value, list):
            value = _integers(field.name, value)
        _check_range(field, value)
        if field.name == "embedding_dim":
            value = _read_embedding_dim(value)
        sections[section][field.name] = value
    run = sections["run"]
    if run["valid_batch_size"] is None:
        run["valid_batch_size"] = run["batch_size"]
    if run["seed"] == -1:
        run["seed"] = None
    given = frozenset(field.name for _, field in _fields(recipe) if values[field.name].present)
    if run["preset"] == AUTO:  # decides nothing, so that a resumed training keeps its preset
        given -= {"preset"}
    if recipe in COLLABORATIVE:
        given |= _stand_for_others(sections, given)
    read = {section: kind(**sections[section]) for section, kind in SECTIONS.items()}
    config = Config(recipe=recipe, given=given, **read)
    # A checkpoint brings flags along.
    resumes = config.checkpoint.resume and config.run.mode == "train"
    check(config, complete=not (resumes or config.checkpoint.restore_checkpoint_path))
    return config


def _stand_for_others(sections: dict[str, dict[str, Any]], given: frozenset[str]) -> set[str]:
    """Sets what `--checkpoint_dir` and `--opt_level` mean; returns the flags that are given by it.

    Raises:
      ValueError: the flag that they mean is given, too.
    """
    run, saved, own = sections["run"], sections["checkpoint"], sections["collaborative"]
    meant = set()
    if own["opt_level"] is not None:
        if "amp" in given:
            raise ValueError("--opt_level and --amp are one flag: give one of them")
        run["amp"] = own["opt_level"] == "O2"
        meant.add("amp")
    folder, by_default = own["checkpoint_dir"], "checkpoint_dir" not in given
    name = "save_checkpoint_path" if run["mode"] == "train" else "restore_checkpoint_path"
    if not folder or (by_default and (name in given or saved["resume"] not in (None, "auto"))):
        own["checkpoint_dir"] = None
        return meant
    if name in given:
        raise ValueError(f"--checkpoint_dir and --{name} are one flag here: give one of them")
    best = os.path.join(folder, "best")
    saved[name] = best if run["mode"] != "train" and os.path.isdir(best) else folder
    return meant if by_default else {*meant, name}


def _without_aliases(argv: Sequence[str], aliases: Mapping[str, str]) -> list[str]:
    """The command line with every flag under the name by which it is defined."""
    found, called = [], {}
    for argument in argv:
        value_of = f"{found[-1].lstrip('-')}=" if found else ""
        if value_of + argument in aliases:
            found.append(aliases[value_of + argument].removeprefix(value_of))
            continue
        flag = re.fullmatch(r"--?([\w-]+)(=.*)?", argument, re.DOTALL)
        if flag:
            name = aliases.get(flag[1], flag[1])
            if called.setdefault(name, flag[1]) != flag[1]:
                raise ValueError(f"--{called[name]} and --{flag[1]} are one flag: give one of them")
            argument = f"--{name}{flag[2] or ''}" if flag[1] in aliases else argument
            same = aliases.get(argument.lstrip("-"))
            argument = f"--{same}" if same else argument
        found.append(argument)
    return found


def _joined(argv: Sequence[str], recipe: str) -> list[str]:
    """The command line with lists of flags that may be written apart written together."""
    spaced = {f"--{field.name}" for _, field in _fields(recipe) if field.metadata["spaced"]}
    found, items = [], None
    for argument in argv:
        if items is not None and not argument.startswith("-"):
            items.append(argument)
            found[-1] = ",".join(items)
            continue
        found.append(argument)
        items = [] if argument in spaced else None
        if items is not None:
            found.append("")
    return found


def usage(
    recipe: str,
    defaults: Mapping[str, Any] | None = None,
    aliases: Mapping[str, str] | None = None,
) -> str:
    """The text of `--help`: every flag with its default, section by section."""
    values = define_flags(recipe, defaults)
    small = presets.describe_small(recipe)
    lines, last = [], None
    for section, field in _fields(recipe):
        if section != last:
            lines.append(f"\n{section}: {SECTIONS[section].__doc__.splitlines()[0]}")
            last = section
        default = values[field.name].default
        shown = ",".join(default) if isinstance(default, list) else default
        choices = "|".join(field.metadata["choices"])
        others = [
            f"{'-' * min(2, len(alias))}{alias}"
            for alias, name in (aliases or {}).items()
            if name == field.name
        ]
        others += [
            f"{alias.partition('=')[2]} for {meant.partition('=')[2]}"
            for alias, meant in (aliases or {}).items()
            if alias.startswith(f"{field.name}=")
        ]
        also = f" (also {', '.join(others)})" if others else ""
        less = f" (--preset small: {small[field.name]})" if field.name in small else ""
        lines.append(
            f"  --{field.name}{f' {choices}' if choices else ''}{also}\n"
            f"      {field.metadata['help']} (default: {shown}){less}"
        )
    return "\n".join(lines)


def _integers(name: str, items: Sequence[str]) -> tuple[int, ...]:
    try:
        return tuple(int(item) for item in items if item.strip())
    except ValueError:
        raise ValueError(
            f"--{name} takes integers separated by commas, got {','.join(items)!r}"
        ) from None


def _check_range(field, value) -> None:
    minimum = field.metadata["minimum"]
    if minimum is None or value is None:
        return
    for item in value if isinstance(value, tuple) else (value,):
        if not item >= minimum:
            raise ValueError(f"--{field.name} must be at least {minimum}, got {item}")


def _read_embedding_dim(text: str) -> str:
    """`--embedding_dim` as text: the content of a JSON file with a list, or the text itself."""
    if re.fullmatch(r"[-+\d\s,]*", text) or not os.path.exists(text):
        return text
    try:
        with open(text) as file:
            items = json.load(file)
    except OSError as error:
        raise ValueError(f"--embedding_dim {text}: cannot be read: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"--embedding_dim {text}: not a JSON file ({error})") from None
    return ",".join(str(item) for item in (items if isinstance(items, list) else [items]))


def parse_embedding_dims(text: str, num_tables: int) -> tuple[int, ...]:
    """Reads `--embedding_dim`: one integer for all tables, or a list.

    Raises:
      ValueError: not integers, not positive, or not one a table.
    """
    try:
        dims = [int(item) for item in text.split(",")]
    except ValueError:
        raise ValueError(
            f"--embedding_dim must be an integer, a list like 16,32 or a JSON file with a list of "
            f"integers, got {text!r}"
        ) from None
    if len(dims) == 1:
        dims = dims * num_tables
    if len(dims) != num_tables:
        raise ValueError(
            f"--embedding_dim lists {len(dims)} sizes, the data set has {num_tables} categorical "
            "features: give one integer for all, or one a feature"
        )
    if any(dim < 1 for dim in dims):
        raise ValueError(f"--embedding_dim must be at least 1, got {min(dims)}")
    return tuple(dims)
