"""Command line of a command: the flags of a dataclass, by argparse.

    @dataclass(frozen=True)
    class CountOptions(CommandOptions):
        "Counts rows."

        files: tuple[Path, ...] = flag(MISSING, "files to read", is_positional=True, spaced=True)
        threads: int = flag(1, "number of threads", at_least=1)

    options = parse(CountOptions, argv, "tools.count")

The type of a field is that of its value: a switch for bool, one value, or a tuple. Names of fields
lose the unit `_bytes` at their end, since the user writes the unit: `--memory_limit 8GB`.
"""

import argparse
import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from config.flag import not_read, rules_of, value_text

# Word for a value in the help, and the expected values in messages, by type.
_KINDS = {
    int: ("N", "an integer", "integers"),
    float: ("X", "a number", "numbers"),
    str: ("TEXT", "a text", "texts"),
    Path: ("PATH", "a path", "paths"),
}
_OPTIONS = "options"  # key of the dataclass of a subcommand


@dataclass(frozen=True)
class CommandOptions:
    """Values of the flags of a command, within the limits of their rules.

    Raises:
        ValueError: a value is out of range.
    """

    def __post_init__(self) -> None:
        for field in flags_of(type(self)):
            rules_of(field).check_value(flag_name(field.name), getattr(self, field.name))

    def check_passed(self, passed: frozenset[str]) -> None:
        """Raises ValueError for a flag of the command line without effect; passed: fields."""
        flags: Any = _Values(self, passed)  # the part of `Values` that their needs read
        for field in flags_of(type(self)):
            if field.name in passed:
                rules_of(field).check_needs(flag_name(field.name), flags)


Options = TypeVar("Options", bound=CommandOptions)
Field = dataclasses.Field[Any]


@dataclass(frozen=True)
class _Values:
    """Values of all flags of a command line, as rules see them, and the passed ones."""

    options: CommandOptions
    explicit: frozenset[str]

    def value(self, name: str) -> Any:
        return getattr(self.options, name)


class _Parser(argparse.ArgumentParser):
    """Parser whose result has the passed flags alone, and whose errors are ValueErrors."""

    def __init__(self, prog: str, description: str, **settings: Any):
        if "\n" in description:
            settings["formatter_class"] = argparse.RawDescriptionHelpFormatter
        settings |= {"argument_default": argparse.SUPPRESS, "allow_abbrev": False}
        super().__init__(prog, description=description, **settings)

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see --help)")


def parse(
    options: type[Options] | Mapping[str, type[Options]],
    argv: Sequence[str] | None,
    tool: str,
    description: str | None = None,
    epilog: str | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Options:
    """Reads a command line; `--help` prints the flags and ends the process.

    Args:
        options: dataclass of the flags, whose docstring describes the command. Of subcommands,
            which the first argument names, one each by name.
        argv: the arguments; None: those of this process.
        tool: module of `python -m`.
        description, epilog: texts before and after the flags in the help, in place of the
            dataclass's.
        defaults: flags whose default differs from that of the dataclass.

    Raises:
        ValueError: an unknown or missing flag, an invalid value, or a flag without effect.
    """
    defaults = defaults or {}
    text = _described(options) if description is None else description
    parser = _Parser(f"python -m {tool}", text, epilog=epilog)
    if isinstance(options, type):
        _add_flags(parser, options, defaults=defaults)
        return _options_of(options, vars(parser.parse_args(argv)), defaults)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, kind in options.items():
        text = _described(kind)
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(**{_OPTIONS: kind})
        _add_flags(command, kind)
    texts = vars(parser.parse_args(argv))
    chosen: type[Options] = texts.pop(_OPTIONS)
    return _options_of(chosen, texts)


def parse_variant(
    variants: Mapping[str, type[Options]],
    choice: str,
    argv: Sequence[str] | None,
    tool: str,
    description: str,
) -> Options:
    """Reads a command line of which one flag decides what other flags there are.

    Args:
        variants: value of that flag -> dataclass of all flags with it; the first is the default.
        choice: name of that flag, a field of each dataclass.
        argv, tool, description: as of `parse`, which also states what is raised.
    """
    readers: dict[str, list[str]] = {}
    for value, options in variants.items():
        for field in flags_of(options):
            readers.setdefault(field.name, []).append(value)
    parser = _Parser(f"python -m {tool}", description)
    conditions = {
        name: f"with --{choice} {' or '.join(values)}"
        for name, values in readers.items()
        if len(values) < len(variants)
    }
    added = set[str]()
    for options in variants.values():
        _add_flags(parser, options, added, conditions)
        added |= {field.name for field in flags_of(options)}
    texts = vars(parser.parse_args(argv))
    value = texts.get(choice, next(iter(variants)))
    if value not in variants:
        raise ValueError(f"--{choice}: expected one of {', '.join(variants)}, got {value}")
    for name in texts:
        if value not in readers[name]:
            raise not_read(flag_name(name), conditions[name])
    return _options_of(variants[value], texts)


def _described(options: Any) -> str:
    """Returns the docstring of a dataclass without its sections."""
    return inspect.cleandoc(str(options.__doc__)).partition("\n\nRaises:")[0].replace("\n", " ")


def flags_of(options: type[CommandOptions], group: str | None = None) -> list[Field]:
    """Returns the fields of a dataclass that are flags: all, or those of a group."""
    fields = [field for field in dataclasses.fields(options) if "rules" in field.metadata]
    return [field for field in fields if group in (None, rules_of(field).group)]


def flag_name(name: str) -> str:
    """Returns the name of a flag by that of its field."""
    return name.removesuffix("_bytes")


def refuse(contradictions: Mapping[str, object]) -> None:
    """Raises ValueError for the first contradiction, a flag and the reason, that holds."""
    for message, holds in contradictions.items():
        if holds:
            raise ValueError(message)


def separated(kind: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Returns a parser of a flag of different values with commas between them."""

    def read(text: str) -> tuple[Any, ...]:
        values = tuple(map(kind, text.split(",")))
        if len(set(values)) < len(values) or "" in values:
            raise ValueError(f"expected different values with commas between them, got {text!r}")
        return values

    return read


def _add_flags(
    parser: argparse.ArgumentParser,
    options: type[CommandOptions],
    added: Sequence[str] | set[str] = (),
    groups: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> None:
    """Adds the flags of a dataclass but those of the names in `added`; groups: name -> title."""
    titled: dict[str, Any] = {}
    hints = typing.get_type_hints(options)
    for field in flags_of(options):
        if field.name in added:
            continue
        title = (groups or {}).get(field.name, rules_of(field).group)
        if title and title not in titled:
            titled[title] = parser.add_argument_group(title)
        default = (defaults or {}).get(field.name, field.default)
        _add_flag(titled.get(title, parser), field, hints[field.name], default)


def _add_flag(parser: Any, field: Field, hint: Any, default_value: Any) -> None:
    rules, (kind, is_list) = rules_of(field), _kind_of(hint)
    text = "; ".join(filter(None, (field.metadata["help"], field.metadata["details"])))
    has_default = default_value not in (None, MISSING) and not isinstance(default_value, bool)
    default = value_text(default_value) if has_default else ""
    text += f" (default {default})" if default and "default" not in text else ""
    settings: dict[str, Any] = {"help": text.replace("%", "%%")}
    if kind is bool:
        settings["action"] = "store_true"
        if field.default is True:
            settings["action"] = argparse.BooleanOptionalAction
    else:
        values = f"{{{','.join(map(str, rules.choices))}}}" if rules.choices else ""
        word = _KINDS[kind][0] if kind in _KINDS else "TEXT"
        settings["metavar"] = rules.metavar or values or word
        if is_list and not (rules.spaced or rules.is_repeated or rules.metavar):
            settings["metavar"] = f"{word},..."
    if rules.spaced:
        settings["nargs"] = "+"
    if rules.is_repeated:
        settings["action"] = "append"
    if rules.is_positional:
        parser.add_argument(field.name, **settings)
        return
    names = filter(None, (f"--{flag_name(field.name)}", rules.alias))
    is_required = MISSING is field.default is field.default_factory
    parser.add_argument(*names, dest=field.name, required=is_required, **settings)


def _kind_of(hint: Any) -> tuple[Any, bool]:
    """Returns the type of a flag's value, of the items of a list, and whether it is a list."""
    if isinstance(hint, types.UnionType):
        hint = typing.get_args(hint)[0]
    if typing.get_origin(hint) is tuple:
        return typing.get_args(hint)[0], True
    return hint, False


def _options_of(
    options: type[Options], texts: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> Options:
    """Returns the values of the flags of a command line; texts: of the passed ones."""
    hints = typing.get_type_hints(options)
    values = {
        field.name: _value_of(field, hints[field.name], texts[field.name])
        for field in flags_of(options)
        if field.name in texts
    }
    result = options(**{**(defaults or {}), **values})
    result.check_passed(frozenset(values))
    return result


def _value_of(field: Field, hint: Any, text: Any) -> Any:
    """Returns the value of a flag from its text, or from the list of its texts."""
    rules, (kind, is_list) = rules_of(field), _kind_of(hint)
    if kind is bool:
        return text
    read = rules.parse or kind
    try:
        if isinstance(text, list):
            return tuple(map(read, text))
        if is_list and rules.parse is None:
            return tuple(kind(item) for item in text.split(",")) if text else ()
        return read(text)
    except ValueError as error:
        message = str(error)
        if rules.parse is None:
            _, one, several = _KINDS[kind]
            expected = f"{several} with commas between them" if is_list else one
            message = f"expected {expected}, got {text!r}"
        raise ValueError(f"--{flag_name(field.name)}: {message}") from None
