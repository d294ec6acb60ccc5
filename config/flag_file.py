"""Files of flags: `--flagfile FILE` on a command line, and the complete flags of a run.

A line is a flag, `--name=value` or `--name value`; empty lines and lines that start with # are
skipped. A line `--flagfile=FILE` includes another file, whose path is relative to the first one.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from config.config import Config, fields_of, sections_of
from config.flag import value_text

# Paths of logs, which a repetition must not overwrite.
_OF_THE_RUN = ("run_dir", "log_path", "rank_logs", "mlperf_log", "tensorboard_dir")
_HEADER = "# All flags of a run of "  # followed by the recipe
_NAMES = ("--flagfile", "-flagfile")


class Line(NamedTuple):
    """A line of a file of flags: the file, its number from 1 on, and its arguments."""

    path: str
    number: int
    arguments: list[str]


def separate(argv: Sequence[str]) -> tuple[list[Line], list[str]]:
    """Returns the lines of the files of a command line, and the line without `--flagfile`.

    Args:
        argv: the command line, program name first.

    Raises:
        ValueError: a file cannot be read, or a line of it is not a flag.
    """
    from_files: list[Line] = []
    rest, line = list(argv[:1]), iter(argv[1:])
    for argument in line:
        name, equals, path = argument.partition("=")
        if name not in _NAMES:
            rest.append(argument)
            continue
        path = path if equals else next(line, "")
        if not path:
            raise ValueError("--flagfile: expected the path of a file, got nothing")
        from_files += _lines(path)
    return from_files, rest


def arguments_of(lines: Sequence[Line]) -> list[str]:
    """Returns the flags of lines as arguments of a command line."""
    return [argument for line in lines for argument in line.arguments]


def read(path: str | Path) -> list[str]:
    """Returns the flags in a file as arguments of a command line; raises as `separate` does."""
    return arguments_of(list(_lines(path)))


def recipe_in(path: str | Path) -> str | None:
    """Returns the recipe of the run whose complete flags a file has; None of another file."""
    match = re.search(rf"^{_HEADER}(\S+);", _read_text(path), re.MULTILINE)
    return None if match is None else match[1]


def _lines(path: str | Path, including: tuple[Path, ...] = ()) -> Iterator[Line]:
    file = Path(path).expanduser()
    if file.resolve() in including:
        raise ValueError(f"--flagfile {path}: includes itself; remove one of its --flagfile lines")
    for number, line in enumerate(map(str.strip, _read_text(path).splitlines()), 1):
        if not line or line.startswith("#"):
            continue
        if not line.startswith("-"):
            raise ValueError(
                f"--flagfile {path}, line {number}: expected a flag such as --batch_size=512, or a "
                f"comment that starts with #, got {line!r}"
            )
        words = [line] if "=" in line.split()[0] else line.split(maxsplit=1)
        name, _, value = words[0].partition("=")
        if name in _NAMES:
            included = value or " ".join(words[1:])
            yield from _lines(file.parent / included, (*including, file.resolve()))
        else:
            yield Line(str(path), number, words)


def _read_text(path: str | Path) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"--flagfile {path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(
            f"--flagfile {path}: expected lines of text such as --batch_size=512, got a binary file"
        ) from None


def text(config: Config) -> str:
    """Returns the complete flags of a run as a file that repeats it.

    Flags without effect in the run, paths of its logs and masked URIs are comments.

    Args:
        config: the flags, those of the preset and of a checkpoint and the seed included.
    """
    comments = {*_OF_THE_RUN, *config.family.implied(config)}
    in_effect = config.with_values(dict.fromkeys(_OF_THE_RUN)).in_effect()
    lines = [
        f"{_HEADER}{config.recipe}; --flagfile repeats it. Comments name flags that",
        "# have no effect in this run, and the paths of its logs.",
    ]
    titles, values = set[str](), config.flat()
    for section, field in fields_of(config.family):
        name, value = field.name, values[field.name]
        if section not in titles:
            titles.add(section)
            lines += ["", f"# {str(sections_of(config.family)[section].__doc__).rstrip('.')}"]
        if value is None and config.default(name) is None:
            continue
        is_used = name in in_effect and value == config.value(name) and name not in comments
        lines.append(f"{'' if is_used else '# '}{argument(name, value)}")
    return "\n".join(lines) + "\n"


def argument(name: str, value: Any) -> str:
    """Returns a flag with its value as one argument of a command line: `--batch_size=512`."""
    if isinstance(value, bool):
        return f"--{'' if value else 'no'}{name}"
    return f"--{name}={'' if value is None else value_text(value)}"
