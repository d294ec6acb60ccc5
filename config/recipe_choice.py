"""Choice of the recipe by a command line that does not start with its script."""

import re
from collections.abc import Mapping, Sequence

from config.command_line import flag_names
from config.family import Definition
from config.flag_file import arguments_of, separate

_FLAG = re.compile(r"--?([A-Za-z][\w-]*)")


def recipe_of(argv: Sequence[str], definitions: Mapping[str, Definition]) -> tuple[str, list[str]]:
    """Returns the recipe that a command line of `main.py` starts, a name or "module:NAME", and the
    line without `--model`.

    Args:
        argv: The command line, program name first.
        definitions: The recipes by name.

    Raises:
        ValueError: `--model` names no recipe, or a file of `--flagfile` cannot be read.
    """
    line, names, rest = iter(argv[1:]), list[str](), list(argv[:1])
    for argument in line:
        flag, equals, value = argument.partition("=")
        if flag in ("--model", "-model"):
            names.append(value if equals else next(line, ""))
        else:
            rest.append(argument)
    if names:
        if names[-1] not in definitions and ":" not in names[-1]:
            raise ValueError(
                f"--model: expected one of {', '.join(definitions)}, or module:NAME of a "
                f"Definition, got {names[-1]!r}"
            )
        return names[-1], rest

    from_files, others = separate(rest)
    arguments = [*arguments_of(from_files), *others[1:]]
    passed = {m[1].replace("-", "_") for m in map(_FLAG.match, arguments) if m}

    def count(recipe: str) -> int:
        return len(passed & flag_names(definitions[recipe]))

    return max(definitions, key=count), rest
