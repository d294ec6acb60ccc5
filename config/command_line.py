"""Command line: absl flags, aliases, and the text of `--help`."""

import dataclasses
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

from config import presets
from config.config import Config
from config.flag import COLLABORATIVE, flag_set, rules_of
from config.sections import SECTIONS, fields_of, flag_types
from config.sections.run import AUTO

_SCALARS: dict[type, Callable[..., Any]] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}


def parse(
    argv: Sequence[str],
    recipe: str,
    defaults: Mapping[str, Any] | None = None,
    aliases: Mapping[str, str] | None = None,
) -> Config:
    """Parses a command line.

    Args:
        argv: the command line, program name first.
        recipe: name of the recipe.
        defaults: flags whose default differs in this recipe.
        aliases: other name of a flag -> its name; with an equals sign in both, another word for a
            value ("mode=test": "mode=eval").

    Raises:
        ValueError: an unknown flag, a value of the wrong type or out of range, a positional
            argument, or flags that contradict each other.
    """
    absl_flags = define_flags(recipe, defaults)
    try:
        rest = absl_flags(_join_spaced_lists(_resolve_aliases(argv, aliases or {}), recipe))
    except flags.Error as error:
        raise ValueError(f"{error} (see --help)") from None
    if len(rest) > 1:
        raise ValueError(
            f"unexpected argument {rest[1]!r}: flags start with --, lists are written without "
            "spaces: a,b,c"
        )
    names = [field.name for _, field in fields_of(recipe)]
    values: dict[str, Any] = {name: absl_flags[name].value for name in names}
    values |= {k: _integers(k, v) for k, v in values.items() if isinstance(v, list)}
    if "embedding_dim" in values:
        values["embedding_dim"] = _read_embedding_dim(values["embedding_dim"])
    if values["valid_batch_size"] is None:
        values["valid_batch_size"] = values["batch_size"]
    if values["seed"] == -1:
        values["seed"] = None
    explicit = {name for name in names if absl_flags[name].present}
    if values["preset"] == AUTO:  # decides nothing, so that a resumed training keeps its preset
        explicit -= {"preset"}
    if flag_set(recipe) in COLLABORATIVE:
        explicit |= _expand_precision(values, explicit) | _expand_checkpoint_dir(values, explicit)
    config = Config(recipe, frozenset(explicit)).with_values(values)
    resumes = config.checkpoint.resume and config.run.mode == "train"
    config.check(complete=not (resumes or config.checkpoint.restore_checkpoint_path))
    return config


def define_flags(recipe: str, defaults: Mapping[str, Any] | None = None) -> flags.FlagValues:
    """Defines a recipe's flags, with its own defaults, in a new absl `FlagValues`."""
    absl_flags = flags.FlagValues()
    defaults = dict(defaults or {})
    for _, field in fields_of(recipe):
        _define(absl_flags, recipe, field, defaults.pop(field.name, field.default))
    if defaults:
        raise ValueError(f"defaults for flags that do not exist: {', '.join(sorted(defaults))}")
    return absl_flags


def _define(
    absl_flags: flags.FlagValues, recipe: str, field: "dataclasses.Field[Any]", default: Any
) -> None:
    arguments = {"name": field.name, "default": default, "help": field.metadata["help"]}
    arguments["flag_values"] = absl_flags
    kind = flag_types(recipe, field.name)[0]
    if choices := rules_of(field).choices:
        flags.DEFINE_enum(enum_values=list(choices), **arguments)
    elif kind is tuple:
        flags.DEFINE_list(**arguments | {"default": [str(item) for item in default]})
    else:
        _SCALARS[kind](**arguments)


def _expand_precision(values: dict[str, Any], explicit: set[str]) -> set[str]:
    """Sets `--amp` from NCF's `--opt_level`; returns the flags that this sets."""
    if values["opt_level"] is None:
        return set()
    if "amp" in explicit:
        raise ValueError("--opt_level and --amp are aliases: pass only one of them")
    values["amp"] = values["opt_level"] == "O2"
    return {"amp"}


def _expand_checkpoint_dir(values: dict[str, Any], explicit: set[str]) -> set[str]:
    """Sets the path that NCF's `--checkpoint_dir` stands for; returns the flags that this sets."""
    trains, folder = values["mode"] == "train", values["checkpoint_dir"]
    name = "save_checkpoint_path" if trains else "restore_checkpoint_path"
    by_default = "checkpoint_dir" not in explicit
    is_overridden = name in explicit or values["resume"] not in (None, "auto")
    if not folder or (by_default and is_overridden):
        values["checkpoint_dir"] = None
        return set()
    if name in explicit:
        raise ValueError(f"--checkpoint_dir and --{name} are aliases here: pass only one of them")
    best = os.path.join(folder, "best")
    values[name] = best if not trains and os.path.isdir(best) else folder
    return set() if by_default else {name}


def _resolve_aliases(argv: Sequence[str], aliases: Mapping[str, str]) -> list[str]:
    """Returns the command line with every flag and value under its defined name."""
    resolved: list[str] = []
    spelling: dict[str, str] = {}  # flag -> the name under which the command line has it
    for argument in argv:
        value_of = f"{resolved[-1].lstrip('-')}=" if resolved else ""
        if value_of + argument in aliases:
            resolved.append(aliases[value_of + argument].removeprefix(value_of))
            continue
        flag = re.fullmatch(r"--?([\w-]+)(=.*)?", argument, re.DOTALL)
        if flag:
            name = aliases.get(flag[1], flag[1])
            if spelling.setdefault(name, flag[1]) != flag[1]:
                raise ValueError(
                    f"--{spelling[name]} and --{flag[1]} are aliases: pass only one of them"
                )
            argument = f"--{name}{flag[2] or ''}" if flag[1] in aliases else argument
            assignment = aliases.get(argument.lstrip("-"))
            argument = f"--{assignment}" if assignment else argument
        resolved.append(argument)
    return resolved


def _join_spaced_lists(argv: Sequence[str], recipe: str) -> list[str]:
    """Returns the command line with the items of spaced lists joined: `--layers 64,32`."""
    spaced = {f"--{field.name}" for _, field in fields_of(recipe) if rules_of(field).spaced}
    joined: list[str] = []
    items: list[str] | None = None
    for argument in argv:
        if items is not None and not argument.startswith("-"):
            items.append(argument)
            joined[-1] = ",".join(items)
            continue
        joined.append(argument)
        items = [] if argument in spaced else None
        if items is not None:
            joined.append("")
    return joined


def usage(
    recipe: str,
    defaults: Mapping[str, Any] | None = None,
    aliases: Mapping[str, str] | None = None,
) -> str:
    """Returns the text of `--help`: every flag with its default, by section."""
    absl_flags = define_flags(recipe, defaults)
    small = presets.describe_small(recipe)
    lines: list[str] = []
    for section, field in fields_of(recipe):
        title = f"\n{str(SECTIONS[section].__doc__).rstrip('.')}:"
        lines += [] if title in lines else [title]
        name, default = field.name, absl_flags[field.name].default
        default = ",".join(default) if isinstance(default, list) else default
        choices = rules_of(field).choices
        values = f" {'|'.join(choices)}" if choices else ""
        others = _spellings(name, aliases or {})
        also = f" (also {', '.join(others)})" if others else ""
        preset = f" (--preset small: {small[name]})" if name in small else ""
        shown = "" if default is None else f" (default: {default})"
        lines.append(f"  --{name}{values}{also}\n      {field.metadata['help']}{shown}{preset}")
    return "\n".join(lines)


def _spellings(name: str, aliases: Mapping[str, str]) -> list[str]:
    """Returns the aliases of a flag, and of its values ("test for eval")."""
    names = [f"{'-' * min(2, len(a))}{a}" for a, target in aliases.items() if target == name]
    values = [
        f"{alias.partition('=')[2]} for {target.partition('=')[2]}"
        for alias, target in aliases.items()
        if alias.startswith(f"{name}=")
    ]
    return names + values


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
