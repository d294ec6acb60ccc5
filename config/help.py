"""The texts of `--help`, the flags that most runs need, and of `--helpfull`, all of them."""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from config.config import Config, fields_of, sections_of
from config.family import Definition
from config.flag import rules_of

WIDTH = 120
_INDENT = " " * 34
# Flags of `--help`, of those that a recipe has.
_COMMON = (
    *("dataset_path", "mode", "save_checkpoint_path", "restore_checkpoint_path", "run_dir"),
    *("predictions_path", "preset", "model_type", "epochs", "batch_size", "learning_rate"),
    *("embedding_dim", "factors", "metric", "early_stopping", "baseline", "seed"),
)
# Flags without which a recipe does not have a mode.
_FLAG_OF_MODE = {
    "deploy": "saved_model_output_path",
    "importance": "importance_repeats",
    "recommend": "top",
}
_FOOTNOTE = """
--helpfull describes all flags; with --dataset_path, both have the values for this data set.
A flag that is on is switched off with --no before its name.
--flagfile FILE reads flags from a file."""


def usage(definition: Definition, full: bool = False, config: Config | None = None) -> str:
    """Returns the text of `--help`: the flags that most runs need, with their values.

    Args:
        definition: the recipe.
        full: all flags with their details, by section, as `--helpfull`.
        config: flags of a data set; None: values are those of the presets.
    """
    aliases, sections = definition.aliases, sections_of(definition.family)
    fields = {field.name: (section, field) for section, field in fields_of(definition.family)}
    lines = [""]
    if config is not None:
        note, _, _ = config.preset_note.partition(":")
        lines = [f"\nValues here: those for {config.data.dataset_path}, {note}."]
    for name in fields if full else filter(fields.__contains__, _COMMON):
        section, field = fields[name]
        title = f"\n{str(sections[section].__doc__).rstrip('.')}:"
        lines += [title] if full and title not in lines else []
        names = ", ".join((f"--{name}", *aliases_of(name, aliases)))
        start = f"  {names:{len(_INDENT) - 4}}  {field.metadata['help']}"
        own = [word for word in rules_of(field).choices if _FLAG_OF_MODE.get(word, name) in fields]
        values = (", ".join(own), _describe_value(name, definition, config))
        lines += _wrap(start + _in_parentheses(*values), "")
        if full:
            details = [field.metadata["details"], *values_of(name, aliases)]
            lines += [line for text in details for line in _wrap(text, _INDENT)]
    return "\n".join([*lines, _FOOTNOTE])


def _describe_value(name: str, definition: Definition, config: Config | None) -> str:
    """Returns the value for the flags of a data set, else those of the presets or the default."""
    default, small = Config(definition).default(name), definition.family.small.get(name)
    if config is not None and config.value(name) != default:
        return f"here: {describe(config.value(name))}"
    if config is None and small is not None:
        return f"small: {small}; terabyte: {describe(default)}"
    return "" if default is None or default is False else f"default: {describe(default)}"


def describe(value: Any) -> str:
    """Returns a value of a flag for people."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else format_value(value)


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
