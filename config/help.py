"""The texts of `--help`, one line per flag, and of `--helpfull`, with all details."""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from config.config import SECTIONS, Config, fields_of
from config.family import Definition
from config.flag import rules_of

WIDTH = 120
_INDENT = " " * 34
_FOOTNOTE = """
* another value for smaller data sets, see --preset
A flag that is on is switched off with --no before its name. Details: --helpfull
--flagfile FILE reads flags from a file."""


def usage(definition: Definition, full: bool = False) -> str:
    """Returns the text of `--help`: every flag of a recipe with its default, by section.

    Args:
        definition: the recipe.
        full: with the details of each flag and its values under `--preset small`, as `--helpfull`.
    """
    aliases, small = definition.aliases, definition.family.small
    lines: list[str] = []
    for section, field in fields_of(definition.family):
        title = f"\n{str(SECTIONS[section].__doc__).rstrip('.')}:"
        lines += [] if title in lines else [title]
        name, choices = field.name, rules_of(field).choices
        names = ", ".join((f"--{name}", *aliases_of(name, aliases)))
        start = f"  {names:{len(_INDENT) - 4}}  {field.metadata['help']}"
        default = _describe_default(Config(definition).default(name))
        if full:
            details = [field.metadata["details"], *values_of(name, aliases)]
            details += [f"--preset small: {small[name]}"] if name in small else []
            lines += _wrap(start + _in_parentheses(", ".join(choices), default), "")
            lines += [line for text in details for line in _wrap(text, _INDENT)]
        else:
            default += "*" if default and name in small else ""
            line = start + _in_parentheses("|".join(choices), default)
            lines.append(line if len(line) <= WIDTH else start + _in_parentheses(default))
    return "\n".join(lines if full else [*lines, _FOOTNOTE])


def _describe_default(value: Any) -> str:
    if value is None or value is False:
        return ""
    return f"default: {'on' if value is True else format_value(value)}"


def _in_parentheses(*notes: str) -> str:
    text = "; ".join(filter(None, notes))
    return f" ({text})" if text else ""


def _wrap(text: str, first_indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first_indent,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def format_value(value: Any) -> str:
    """Returns a default as it is written on the command line, long lists abbreviated."""
    if not isinstance(value, tuple | list):
        return str(value)
    items = [str(item) for item in value]
    return f"{items[0]} ({len(items)} times)" if len(items) > 9 else ",".join(items)


def aliases_of(name: str, aliases: Mapping[str, str]) -> list[str]:
    """Returns the other names of a flag with their dashes: `-b`, `--data`."""
    return [
        f"{'-' * min(2, len(alias))}{alias}" for alias, target in aliases.items() if target == name
    ]


def values_of(name: str, aliases: Mapping[str, str]) -> Iterator[str]:
    """Yields a sentence on each other word for a value of a flag."""
    for alias, target in aliases.items():
        if alias.startswith(f"{name}="):
            yield f"{alias.partition('=')[2]} is an alias of {target.partition('=')[2]}"
