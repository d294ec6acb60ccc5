"""Command line: absl flags, aliases, and files of flags."""

import functools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

from config import flag_file
from config.config import RULES, Config, fields_of, flag_types
from config.family import Definition, Family
from config.flag import rules_of
from config.sections.run import AUTO


class _IntegerParser(flags.IntegerParser):
    """Parser of integers, also of whole floats like 1000.0, which original command lines have."""

    def convert(self, argument: Any) -> int:
        if isinstance(argument, str) and re.fullmatch(r"-?[0-9]+\.0*", argument):
            argument = argument.partition(".")[0]
        return int(super().convert(argument))


_SCALARS: dict[type, Callable[..., Any]] = {
    bool: flags.DEFINE_bool,
    int: functools.partial(flags.DEFINE, _IntegerParser(), serializer=flags.ArgumentSerializer()),
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}


def parse(argv: Sequence[str], definition: Definition) -> Config:
    """Parses a command line of a recipe, whose flags replace those of its files (`--flagfile`).

    Args:
        argv: the command line, program name first.
        definition: the recipe.

    Raises:
        ValueError: an unknown flag, a value of the wrong type or out of range, a positional
            argument, or flags that contradict each other.
    """
    lines, argv = flag_file.separate(argv)
    stored, explicit = dict[str, Any](), set[str]()
    if lines:
        try:
            from_files = flag_file.arguments_of(lines)
            stored, explicit = read_flags(from_files, definition)
        except ValueError as error:
            _report_line(lines, definition)
            raise ValueError(f"--flagfile: {error}") from None  # of several lines
    values, passed = read_flags(argv[1:], definition, stored)
    explicit |= passed
    if values["valid_batch_size"] is None:
        values["valid_batch_size"] = values["batch_size"]
    if values["seed"] == -1:
        values["seed"] = None
    if values["preset"] == AUTO:  # decides nothing, so that a resumed training keeps its preset
        explicit -= {"preset"}
    explicit |= definition.family.expand(values, explicit)
    config = Config(definition, frozenset(explicit)).with_values(values)
    config.check_values(values)
    for check_rule in (*RULES, *definition.family.rules):
        check_rule(config)
    if not config.awaits_checkpoint:
        config.check_complete()
    return config


def _report_line(lines: Sequence[flag_file.Line], definition: Definition) -> None:
    """Raises ValueError for the first line of files that is an error without the others."""
    for path, number, arguments in lines:
        try:
            read_flags(arguments, definition)
        except ValueError as error:
            note, other = "", flag_file.recipe_in(path)
            if other not in (None, definition.name):
                note = f"; the file has the flags of a run of {other}, and this is "
                note += definition.name
            raise ValueError(f"--flagfile {path}, line {number}: {error}{note}") from None


def read_flags(
    arguments: Sequence[str], definition: Definition, stored: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], set[str]]:
    """Returns the values of all flags of a recipe, and the names of those that are passed.

    Args:
        arguments: the flags, without the name of a program.
        definition: the recipe.
        stored: flags whose default is another one than the recipe's.

    Raises:
        ValueError: an unknown flag, a value of the wrong type, or a positional argument.
    """
    family, aliases = definition.family, definition.aliases
    absl_flags = define_flags(definition, stored or {})
    argv = ["", *map(_underscored, arguments)]
    try:
        rest = absl_flags(_join_spaced_lists(argv, family))
    except flags.Error as error:
        raise ValueError(f"{error} (see --help)") from None
    _check_spellings(absl_flags, aliases)
    if len(rest) > 1:
        raise ValueError(
            f"unexpected argument {rest[1]!r}: flags start with --, lists are written without "
            "spaces: a,b,c"
        )
    names = [field.name for _, field in fields_of(family)]
    values: dict[str, Any] = {name: absl_flags[name].value for name in names}
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = _integers(name, value)
        elif f"{name}={value}" in aliases:
            values[name] = aliases[f"{name}={value}"].partition("=")[2]
    if "embedding_dim" in values:
        values["embedding_dim"] = _read_embedding_dim(values["embedding_dim"])
    return values, {name for name in names if absl_flags[name].present}


def flag_names(definition: Definition) -> set[str]:
    """Returns every name that a recipe's command line may have after its dashes."""
    names = {field.name for _, field in fields_of(definition.family)}
    names |= {alias for alias in definition.aliases if "=" not in alias}
    return names | {f"no{name}" for name in names}


def define_flags(definition: Definition, stored: Mapping[str, Any]) -> flags.FlagValues:
    """Defines a recipe's flags, with its own defaults and aliases, in a new absl `FlagValues`."""
    absl_flags = flags.FlagValues()
    family, aliases = definition.family, definition.aliases
    defaults = {**definition.defaults, **stored}
    for _, field in fields_of(family):
        name, default = field.name, defaults.get(field.name, field.default)
        arguments: dict[str, Any] = {"name": name, "help": field.metadata["help"]}
        arguments["flag_values"] = absl_flags
        kind = flag_types(family, name)[0]
        if choices := rules_of(field).choices:
            words = [a.partition("=")[2] for a in aliases if a.startswith(f"{name}=")]
            flags.DEFINE_enum(default=default, enum_values=[*choices, *words], **arguments)
        elif kind is tuple:
            flags.DEFINE_list(default=[str(item) for item in default], **arguments)
        else:
            _SCALARS[kind](default=default, **arguments)
    if unknown := sorted(set(defaults) - set(absl_flags)):
        raise ValueError(f"defaults for flags that do not exist: {', '.join(unknown)}")
    for alias, target in aliases.items():
        if "=" not in alias:
            flags.DEFINE_alias(alias, target, flag_values=absl_flags)
    return absl_flags


def _check_spellings(absl_flags: flags.FlagValues, aliases: Mapping[str, str]) -> None:
    for name in set(aliases.values()) & set(absl_flags):
        used = [a for a, target in aliases.items() if target == name and absl_flags[a].present]
        if absl_flags[name].present > sum(absl_flags[alias].present for alias in used):
            used.append(name)
        if len(used) > 1:
            raise ValueError(f"--{used[0]} and --{used[1]} are aliases: pass only one of them")


def _underscored(argument: str) -> str:
    """Returns an argument with underscores in the name of its flag: `--batch_size=64`."""
    match = re.match(r"--?[A-Za-z][\w-]*", argument)
    if match is None:
        return argument
    dashes = len(argument) - len(argument.lstrip("-"))
    name = argument[dashes : match.end()].replace("-", "_")
    return argument[:dashes] + name + argument[match.end() :]


def _join_spaced_lists(argv: Sequence[str], family: Family) -> list[str]:
    """Returns the command line with the items of spaced lists joined: `--layers 64,32`."""
    spaced = {f"--{field.name}" for _, field in fields_of(family) if rules_of(field).spaced}
    joined: list[str] = []
    for argument in argv:
        if len(joined) > 1 and joined[-2] in spaced and not argument.startswith("-"):
            joined[-1] = f"{joined[-1]},{argument}".lstrip(",")
            continue
        joined.append(argument)
        if argument in spaced:
            joined.append("")
    return joined


def _integers(name: str, items: Sequence[str]) -> tuple[int, ...]:
    try:
        return tuple(int(item) for item in items if item.strip())
    except ValueError:
        raise ValueError(
            f"--{name} takes integers separated by commas, got {','.join(items)!r}"
        ) from None


def _read_embedding_dim(text: str) -> str:
    """Returns the list in the JSON file of `--embedding_dim`, or the flag's text itself."""
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
