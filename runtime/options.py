"""Flags of command-line tools as fields of dataclasses.

A field made by `flag` holds the help text and limits; `add_flags` adds a flag of its name to a
parser, and `check_limits` checks the value.
"""

import argparse
import dataclasses
import sys
import typing
from typing import Any


def flag(
    default: Any,
    text: str,
    group: str = "",
    *,
    alias: str = "",
    at_least: float | None = None,
    at_most: float | None = None,
    read_by: tuple[str, ...] = (),
    **arguments: Any,
) -> Any:
    """Returns the dataclass field of a command-line flag.

    Args:
        default: value where the flag is not passed; `dataclasses.MISSING` if it is required.
        text: help text. A default that is a number or text is appended, unless the text has one.
        group: title of a group in the help.
        alias: another name of the flag, like --path.
        at_least, at_most: limits of a number, or of each in a tuple; see `check_limits`.
        read_by: for a tool with several backends, those that read the flag; empty: all.
        arguments: of `ArgumentParser.add_argument`, in place of those that follow from the type.
    """
    if not isinstance(default, bool) and isinstance(default, int | float | str):
        text += "" if "(default" in text else f" (default {default})"
    metadata = {
        "group": group,
        "alias": alias,
        "at_least": at_least,
        "at_most": at_most,
        "read_by": read_by,
        "arguments": {"help": text, **arguments},
    }
    return dataclasses.field(default=default, metadata=metadata)


def tool_parser(module: str, description: str, **settings: Any) -> argparse.ArgumentParser:
    """Returns the parser of `python -m MODULE`; `settings` are those of `ArgumentParser`."""
    return argparse.ArgumentParser(
        f"python -m {module}", description=description, allow_abbrev=False, **settings
    )


def add_flags(parser: argparse.ArgumentParser, options: type) -> None:
    """Adds the flags of a dataclass; names of fields lose `_bytes` at the end."""
    groups: dict[str, Any] = {"": parser}
    for field in dataclasses.fields(options):
        if not field.metadata:
            continue
        title = field.metadata["group"]
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        names = filter(None, [f"--{field.name.removesuffix('_bytes')}", field.metadata["alias"]])
        arguments = _arguments_of(field.type) | field.metadata["arguments"]
        if "action" in field.metadata["arguments"]:
            arguments.pop("type", None)
        if field.default is dataclasses.MISSING:
            arguments["required"] = True
        groups[title].add_argument(*names, **arguments)


def _arguments_of(annotation: Any) -> dict[str, Any]:
    kinds = typing.get_args(annotation) or (annotation,)  # of `int | None`, for example
    if kinds[0] is bool:
        return {"action": "store_true"}
    if typing.get_origin(annotation) is tuple:
        return {"nargs": "+", "type": kinds[0], "metavar": "FILE"}
    return {"type": kinds[0]}


def flags_of(options: type, group: str) -> list[str]:
    """Returns the names of the flags of a group."""
    return [
        field.name for field in dataclasses.fields(options) if field.metadata.get("group") == group
    ]


def check_limits(options: Any) -> None:
    """Raises ValueError for a field of a dataclass that is outside its limits."""
    for field in dataclasses.fields(options):
        least, most = field.metadata.get("at_least"), field.metadata.get("at_most")
        if least is not None:
            check_range(field.name, getattr(options, field.name), least, most)


def check_range(name: str, value: Any, at_least: float, at_most: float | None = None) -> None:
    """Raises ValueError for a number below its minimum, above its maximum, infinite or NaN.

    Args:
        name: of the flag.
        value: a number, a tuple of numbers, or None, which passes.
        at_least, at_most: the limits; None: any finite number.
    """
    for number in value if isinstance(value, tuple) else (value,):
        most = sys.float_info.max if at_most is None else at_most
        if number is None or at_least <= number <= most:
            continue
        upper = " or more" if at_most is None else f" to {at_most}"
        finite = " and finite" if isinstance(number, float) else ""
        raise ValueError(f"--{name}: expected {at_least}{upper}{finite}, got {number}")
