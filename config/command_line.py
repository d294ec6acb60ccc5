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
from config.flag import COLLABORATIVE, RANKING, SEQUENTIAL, rules_of
from config.sections.original import DOT_INTERACTIONS
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


def parse(
    argv: Sequence[str],
    recipe: str,
    defaults: Mapping[str, Any] | None = None,
    aliases: Mapping[str, str] | None = None,
    flags_of: str | None = None,
) -> Config:
    """Parses a command line, whose flags replace those of its files (`--flagfile`).

    Args:
        argv: the command line, program name first.
        recipe: name of the recipe.
        defaults: flags whose default differs in this recipe.
        aliases: other name of a flag -> its name; with an equals sign in both, another word for a
            value ("mode=test": "mode=eval").
        flags_of: recipe whose flags this one has; None for a built-in recipe.

    Raises:
        ValueError: an unknown flag, a value of the wrong type or out of range, a positional
            argument, or flags that contradict each other.
    """
    flag_set, aliases, defaults = flags_of or recipe, aliases or {}, defaults or {}
    lines, argv = flag_file.separate(argv)
    stored, explicit = dict[str, Any](), set[str]()
    if lines:
        try:
            from_files = flag_file.arguments_of(lines)
            stored, explicit = read_flags(from_files, flag_set, defaults, aliases)
        except ValueError as error:
            _report_line(lines, recipe, flag_set, aliases)
            raise ValueError(f"--flagfile: {error}") from None  # of several lines
    values, passed = read_flags(argv[1:], flag_set, {**defaults, **stored}, aliases)
    explicit |= passed
    if values["valid_batch_size"] is None:
        values["valid_batch_size"] = values["batch_size"]
    if values["seed"] == -1:
        values["seed"] = None
    if values["preset"] == AUTO:  # decides nothing, so that a resumed training keeps its preset
        explicit -= {"preset"}
    explicit |= _expand(flag_set, values, explicit)
    config = Config(recipe, frozenset(explicit), flags_of=flags_of).with_values(values)
    config.check_values(values)
    for check_rule in RULES:
        check_rule(config)
    if not config.awaits_checkpoint:
        config.check_complete()
    return config


def _report_line(
    lines: Sequence[flag_file.Line], recipe: str, flag_set: str, aliases: Mapping[str, str]
) -> None:
    """Raises ValueError for the first line of files that is an error without the others."""
    for path, number, arguments in lines:
        try:
            read_flags(arguments, flag_set, {}, aliases)
        except ValueError as error:
            note, other = "", flag_file.recipe_in(path)
            if other not in (None, recipe):
                note = f"; the file has the flags of a run of {other}, and this is {recipe}"
            raise ValueError(f"--flagfile {path}, line {number}: {error}{note}") from None


def read_flags(
    arguments: Sequence[str],
    flag_set: str,
    defaults: Mapping[str, Any],
    aliases: Mapping[str, str],
) -> tuple[dict[str, Any], set[str]]:
    """Returns the values of all flags of a built-in recipe, and the names of those that are passed.

    Args:
        arguments: the flags, without the name of a program.
        flag_set, defaults, aliases: as of `parse`.

    Raises:
        ValueError: an unknown flag, a value of the wrong type, or a positional argument.
    """
    argv = ["", *map(_underscored, arguments)]
    absl_flags = define_flags(flag_set, defaults, aliases)
    if flag_set in COLLABORATIVE:
        argv = _spell_out(argv, set(absl_flags), aliases)
    try:
        rest = absl_flags(_join_spaced_lists(argv, flag_set))
    except flags.Error as error:
        raise ValueError(f"{error} (see --help)") from None
    _check_spellings(absl_flags, aliases)
    if len(rest) > 1:
        raise ValueError(
            f"unexpected argument {rest[1]!r}: flags start with --, lists are written without "
            "spaces: a,b,c"
        )
    names = [field.name for _, field in fields_of(flag_set)]
    values: dict[str, Any] = {name: absl_flags[name].value for name in names}
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = _integers(name, value)
        elif f"{name}={value}" in aliases:
            values[name] = aliases[f"{name}={value}"].partition("=")[2]
    if "embedding_dim" in values:
        values["embedding_dim"] = _read_embedding_dim(values["embedding_dim"])
    return values, {name for name in names if absl_flags[name].present}


def flag_names(flag_set: str, aliases: Mapping[str, str]) -> set[str]:
    """Returns every name that a recipe's command line may have after its dashes."""
    names = {field.name for _, field in fields_of(flag_set)}
    names |= {alias for alias in aliases if "=" not in alias}
    return names | {f"no{name}" for name in names}


def define_flags(
    flag_set: str, defaults: Mapping[str, Any], aliases: Mapping[str, str]
) -> flags.FlagValues:
    """Defines a recipe's flags, with its own defaults and aliases, in a new absl `FlagValues`."""
    absl_flags = flags.FlagValues()
    for _, field in fields_of(flag_set):
        name, default = field.name, defaults.get(field.name, field.default)
        arguments: dict[str, Any] = {"name": name, "help": field.metadata["help"]}
        arguments["flag_values"] = absl_flags
        kind = flag_types(flag_set, name)[0]
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


def _spell_out(argv: Sequence[str], names: set[str], aliases: Mapping[str, str]) -> list[str]:
    """Returns the command line with the short forms of argparse in full.

    These are values attached to a flag of one letter (`-e30`), and unambiguous beginnings of names
    (`--learn 0.1`).
    """
    result = list(argv[:1])
    for argument in argv[1:]:
        dashes, name, value = re.findall(r"^(-{0,2})([^=]*)(.*)", argument, re.DOTALL)[0]
        is_negation = name.startswith("no") and name[2:] in names
        if name and dashes and name not in names and not is_negation:
            matches = sorted(known for known in names if known.startswith(name))
            if dashes == "-" and name[0] in aliases:
                argument = f"-{name[0]}={argument[2:]}"
            elif dashes == "--" and len({aliases.get(known, known) for known in matches}) == 1:
                argument = f"--{matches[0]}{value}"
        result.append(argument)
    return result


def _check_spellings(absl_flags: flags.FlagValues, aliases: Mapping[str, str]) -> None:
    for name in set(aliases.values()) & set(absl_flags):
        used = [a for a, target in aliases.items() if target == name and absl_flags[a].present]
        if absl_flags[name].present > sum(absl_flags[alias].present for alias in used):
            used.append(name)
        if len(used) > 1:
            raise ValueError(f"--{used[0]} and --{used[1]} are aliases: pass only one of them")


def _expand(flag_set: str, values: dict[str, Any], explicit: set[str]) -> set[str]:
    """Sets flags that others of a recipe stand for; returns the flags that the user so sets."""
    if flag_set in COLLABORATIVE:
        return _expand_flags(values, explicit)
    if flag_set in RANKING:
        return _expand_ranking_flags(values, explicit)
    return _expand_load(values, explicit) if flag_set in SEQUENTIAL else set()


def _expand_flags(values: dict[str, Any], explicit: set[str]) -> set[str]:
    """Sets the flags that NCF's `--opt_level` and `--checkpoint_dir` stand for.

    Returns:
        The flags that the command line sets by them.
    """
    expanded = set()
    if values["opt_level"] is not None:
        if "amp" in explicit:
            raise ValueError("--opt_level and --amp are aliases: pass only one of them")
        values["amp"] = values["opt_level"] == "O2"
        expanded.add("amp")
    trains, folder = values["mode"] == "train", values["checkpoint_dir"]
    name = "save_checkpoint_path" if trains else "restore_checkpoint_path"
    by_default = "checkpoint_dir" not in explicit
    is_overridden = name in explicit or values["resume"] not in (None, "auto")
    # Modes that save nothing load --load_checkpoint_path, and a default folder only if it exists.
    exists = not by_default or os.path.isdir(folder or "")
    is_unused = not trains and (name in explicit or not exists)
    if not folder or is_unused or (by_default and is_overridden):
        values["checkpoint_dir"] = None
        return expanded
    if name in explicit:
        raise ValueError(f"--checkpoint_dir and --{name} are aliases here: pass only one of them")
    best = os.path.join(folder, "best")
    values[name] = best if not trains and os.path.isdir(best) else folder
    return expanded if by_default else {*expanded, name}


def _expand_ranking_flags(values: dict[str, Any], explicit: set[str]) -> set[str]:
    """Sets the flags that flags of NVIDIA's releases stand for; returns their names."""
    expanded = set()
    if (word := values["dot_interaction"]) is not None:
        if "interaction" in explicit:
            raise ValueError(
                "--dot_interaction and --interaction are aliases: pass only one of them"
            )
        values["interaction"] = DOT_INTERACTIONS[word]
        expanded.add("interaction")
    if (by_sample := values["data_parallel_input"]) is not None:
        if "model_parallel_input" in explicit and values["model_parallel_input"] == by_sample:
            raise ValueError(
                "--data_parallel_input and --model_parallel_input are opposites: pass only one of "
                "them"
            )
        values["model_parallel_input"] = not by_sample
        expanded.add("model_parallel_input")
    if values["fp16"] and values["mode"] != "deploy":
        values["amp"] = True
        expanded.add("amp")
    return expanded


def _underscored(argument: str) -> str:
    """Returns an argument with underscores in the name of its flag: `--batch_size=64`."""
    match = re.match(r"--?[A-Za-z][\w-]*", argument)
    if match is None:
        return argument
    dashes = len(argument) - len(argument.lstrip("-"))
    name = argument[dashes : match.end()].replace("-", "_")
    return argument[:dashes] + name + argument[match.end() :]


def _expand_load(values: dict[str, Any], explicit: set[str]) -> set[str]:
    """Sets the flag that `--load_checkpoint_path` stands for outside training.

    Returns:
        The flags that the command line sets by it.
    """
    path = values["load_checkpoint_path"] = values["load_checkpoint_path"] or None
    if path is None or values["mode"] == "train":
        return set()
    if "restore_checkpoint_path" in explicit:
        raise ValueError(
            "--load_checkpoint_path and --restore_checkpoint_path are aliases here: pass only one "
            "of them"
        )
    values["restore_checkpoint_path"] = path
    return {"restore_checkpoint_path"}


def _join_spaced_lists(argv: Sequence[str], flag_set: str) -> list[str]:
    """Returns the command line with the items of spaced lists joined: `--layers 64,32`."""
    spaced = {f"--{field.name}" for _, field in fields_of(flag_set) if rules_of(field).spaced}
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
