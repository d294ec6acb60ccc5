"""Reads Dockerfiles: instructions, stages, and what variables stand for.

As much of the language as this project's files use; anything else is an error, never skipped.
"""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

KEYWORDS = {
    *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "LABEL", "RUN", "SHELL", "USER"),
    "WORKDIR",
}
VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::-([^}]*))?\})")


class Instruction(NamedTuple):
    """One instruction.

    Attributes:
      keyword: like "RUN".
      flags: what stands before the arguments, like ("--from=build",), variables as written.
      text: the arguments, without flags, comments and continuations.
      line: where it begins, from 1.
    """

    keyword: str
    flags: tuple[str, ...]
    text: str
    line: int

    def flag(self, name: str) -> str | None:
        """The value of `--name=value`, None without it."""
        values = [flag.partition("=")[2] for flag in self.flags if flag.startswith(f"--{name}=")]
        return values[0] if values else None

    def words(self) -> list[str]:
        """The arguments, of the exec form (a JSON list) or of the shell form."""
        return json.loads(self.text) if self.text.startswith("[") else shlex.split(self.text)

    def pairs(self) -> dict[str, str]:
        """The pairs of ENV, LABEL, and of ARG with a default."""
        return dict(word.split("=", 1) for word in self.words())

    def mounts(self) -> list[dict[str, str]]:
        """The fields of each --mount of a RUN."""
        mounts = [flag.partition("=")[2] for flag in self.flags if flag.startswith("--mount=")]
        return [dict(field.split("=", 1) for field in mount.split(",")) for mount in mounts]


class Stage(NamedTuple):
    """A stage: `image` is an image or an earlier stage, variables replaced; `name` may be empty."""

    image: str
    name: str
    instructions: tuple[Instruction, ...]


class Dockerfile(NamedTuple):
    """A file: `arguments` are the ARGs before the first FROM, as given or by default."""

    arguments: dict[str, str]
    stages: tuple[Stage, ...]

    def stage(self, name: str) -> Stage | None:
        """The stage of this name; None if it is an image's."""
        return next((stage for stage in self.stages if stage.name == name), None)

    def instructions(self, keyword: str) -> list[Instruction]:
        """All of this keyword, in any stage."""
        return [i for stage in self.stages for i in stage.instructions if i.keyword == keyword]


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replaces $NAME, ${NAME} and ${NAME:-default}; unknown ones become empty, as in Docker."""

    def value(match: re.Match) -> str:
        return variables.get(match[1] or match[2], "") or match[3] or ""

    return VARIABLE.sub(value, text)


def parse(text: str) -> list[Instruction]:
    """The instructions of a file; ValueError for one that is not known here."""
    instructions: list[Instruction] = []
    pending, begins = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or not line.strip():
            continue
        begins = begins or number
        pending += line.removesuffix("\\").strip() + " "
        if line.endswith("\\"):
            continue
        keyword, _, rest = pending.strip().partition(" ")
        if keyword.upper() not in KEYWORDS or "<<" in rest:
            raise ValueError(f"line {begins}: {keyword} is not read here, nor here-documents")
        flags = []
        while flag := re.match(r"--[a-z]+=\S+\s+", rest):
            flags.append(flag[0].strip())
            rest = rest[flag.end() :]
        instructions.append(Instruction(keyword.upper(), tuple(flags), rest.strip(), begins))
        pending, begins = "", 0
    if pending:
        raise ValueError(f"line {begins}: the file ends within an instruction")
    return instructions


def read(path: Path, arguments: Mapping[str, str] | None = None) -> Dockerfile:
    """A file's stages, with build arguments as `docker build --build-arg` gives them."""
    values = dict(arguments or {})
    declared: dict[str, str] = {}
    stages: list[tuple[str, str, list[Instruction]]] = []
    for instruction in parse(path.read_text()):
        if instruction.keyword == "FROM":
            image, *alias = instruction.words()
            name = alias[1] if alias else ""
            stages.append((expand(image, declared), expand(name, declared), []))
        elif stages:
            stages[-1][2].append(instruction)
        elif instruction.keyword == "ARG":
            for name, default in instruction.pairs().items():
                declared[name] = values.get(name, default)
        else:
            raise ValueError(f"line {instruction.line}: only ARG may stand before the first FROM")
    known = {*declared}
    for _, _, instructions in stages:
        known |= {i.text.partition("=")[0] for i in instructions if i.keyword == "ARG"}
    if unknown := values.keys() - known:
        raise ValueError(f"{path.name} has no ARG {sorted(unknown)}, but {sorted(known)}")
    return Dockerfile(declared, tuple(Stage(i, n, tuple(body)) for i, n, body in stages))
