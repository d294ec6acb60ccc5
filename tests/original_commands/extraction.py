"""Extracts command lines and code blocks from the documents of the original recipes.

The documents are text that was copied from web pages: fences of code blocks are lost in most of
them, one has dates of changes between its lines, and one has several commands in a line.
"""

import re
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "shared/seeds"
_DATE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d\d:\d\d")
# A line of a command; the optional prompt is not part of it.
_COMMAND = re.compile(
    r"(?:\$ )?((?:git (?:clone|submodule)|docker (?:build|run)|mkdir|cd|python|horovodrun|mpiexec"
    r"|sbatch|export|make [a-z]+_|cmd=|\w+=\d+$|\.?/?(?:\w+/)*\w+\.sh(?: |$))(?<!\bmain\.py).*)"
)
# A command in a sentence, and flags that a sentence appends to a command.
_QUOTED = re.compile(r"(?:running |`)(python \w+\.py --help)\b")
_APPENDED = re.compile(
    r"(?:append|add the|running with the|using the|passing the) "
    r"`?((?:--\w+(?: (?!option|to|flag|command)[\w<>]+)? ?)+)"
)
# The first line of a block that has no fence, and its other lines.
_BLOCK = re.compile(r"(?:(?:feature_spec|channel_spec|DATASET|TF_RECORD_PATH):|\{|DLLL \{.*)$")
_IN_BLOCK = re.compile(r"(?:\s*(?:- .*|\w+:(?: .*)?|[\[\]{}].*|\".*)|\s+[\w.]+|)\s*$")
# In a line of several commands: the start of the next command, of a comment or of output.
_NEXT = re.compile(
    r"(?<=\s)(?=docker run|cd /|git |make |export |python |horovodrun |#|\$ |=====|\[1,"
    r"|\d{4}-\d\d-\d\d )"
)
_HEADING = re.compile(r"^# ?\w+ ")
_LAUNCHERS = ("horovodrun ", "mpiexec ", "cmd=")


def document_path(number: str) -> Path | None:
    """Returns the file of a document, or None where the documents are absent."""
    return next(FOLDER.glob(f"{number}_*.txt"), None)


def extract(text: str) -> list[str]:
    """Returns commands and blocks in their order, each as one line.

    Continuation lines are joined. A block is its first line and the number of its lines that are
    not blank.
    """
    return [_in_one_line(entry) for entry in entries(text)]


def entries(text: str) -> list[str]:
    """Returns commands and blocks as printed; a command of several lines keeps its line breaks."""
    lines = [line.rstrip() for line in text.split("\n") if not _DATE.match(line)]
    fenced = any(line.strip().startswith("```") for line in lines)
    return [*_entries(lines, fenced)]


def _entries(lines: list[str], fenced: bool) -> Iterator[str]:
    position = 0
    while position < len(lines):
        line = lines[position].strip()
        if fenced and line.startswith("```"):
            end = next(i for i in range(position + 1, len(lines)) if lines[i].strip() == "```")
            block = lines[position + 1 : end]
            if any(_COMMAND.match(text.strip()) for text in block):
                yield from _commands(block)
            else:
                yield "\n".join(block)
            position = end + 1
            continue
        if not fenced and _BLOCK.match(line):
            end = position + 1
            while not line.startswith("DLLL") and end < len(lines) and _IN_BLOCK.match(lines[end]):
                end += 1
            yield "\n".join(lines[position:end]).rstrip()
            position = end
            continue
        if not fenced and len(line) > 150 and " import " in f" {line}"[:40]:
            yield line
        elif not fenced and _COMMAND.match(_HEADING.sub("", line)) and _holds_several(line):
            yield from _several(line)
        elif not fenced and _COMMAND.match(line):
            command = _continued(lines, position)
            yield from _commands(command)
            position += len(command) - 1
        else:
            for pattern in (_QUOTED, _APPENDED):
                yield from (match.strip() for match in pattern.findall(line))
        position += 1


def _continued(lines: list[str], position: int) -> list[str]:
    end = position
    while lines[end].endswith("\\"):
        end += 1
    return lines[position : end + 1]


def _commands(lines: list[str]) -> Iterator[str]:
    """Yields the commands of the lines of a block; comments are left out."""
    position = 0
    while position < len(lines):
        command = _continued(lines, position)
        text = "\n".join(part.strip() for part in command)
        if text and not text.startswith("#"):
            yield text.removeprefix("$ ")
        position += len(command)


def _holds_several(line: str) -> bool:
    return not line.endswith("\\") and len(_several(line)) > 1


def _several(line: str) -> list[str]:
    """Returns the commands of a line of several, whose continuations are a backslash and a space.

    A program that a launcher starts is part of its command.
    """
    parts: list[str] = []
    for part in _NEXT.split(line):
        if parts and part.startswith("python") and parts[-1].startswith(_LAUNCHERS):
            parts[-1] += part
        else:
            parts.append(part)
    commands = [part.replace(" \\ ", " ").removeprefix("$ ").strip() for part in parts]
    return [command for command in commands if command and _COMMAND.match(command)]


def _in_one_line(entry: str) -> str:
    lines = [line for line in entry.split("\n") if line.strip()]
    if _COMMAND.match(lines[0]) and (len(lines) == 1 or lines[0].endswith("\\")):
        return " ".join(line.removesuffix("\\").strip() for line in lines)
    if len(lines) == 1 and len(lines[0]) <= 150:
        return lines[0].strip()
    first = lines[0].strip()
    first = first if len(first) <= 150 else first[:60].rsplit(" ", 1)[0] + " …"
    return f"{first} (block of {len(lines)} line{'s' * (len(lines) > 1)})"
