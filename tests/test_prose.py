"""Wording rules of docstrings, comments, messages and pages: standard technical English.

The rules are in wording_rules.tsv. A line that ends in `prose: ok` and a reason is an
exception; there are few.
"""

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
MARK = "prose: ok"
MAX_EXCEPTIONS = 20


class Rule(NamedTuple):
    """A line of wording_rules.tsv: words that are not used.

    Attributes:
        pattern: regular expression, without regard to case.
        replacement: what to write instead.
        example: a text with such words.
    """

    pattern: str
    replacement: str
    example: str


_HEADER, *_LINES = (ROOT / "tests/wording_rules.tsv").read_text().splitlines()
RULES = [Rule(*line.split("\t")) for line in _LINES]
COMPILED = [(re.compile(rule.pattern, re.IGNORECASE), rule.replacement) for rule in RULES]
OPENING = re.compile(r"(As|How|Of|That|The same|Those|What|Where|Whether|Which|Who|Whose)\b")
NAMES = {"asked", "begun", "found", "given", "held", "made", "of", "said", "told"}


def tracked(*patterns: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.splitlines() if "/results/" not in name]


def python_findings(text: str) -> Iterator[tuple[int, str]]:
    """Yields (line, finding) of the strings, comments and variable names of a module."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in NAMES:
            yield node.lineno, f"variable {node.id!r}: a noun that names its content"
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield from ((node.lineno, finding) for finding in findings(node.value))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            docstring = (ast.get_docstring(node) or "").strip()
            if OPENING.match(docstring):
                yield node.body[0].lineno, f"{docstring[:30]!r}: begin with a verb or a noun phrase"
    for number, line in enumerate(lines, 1):
        comment = re.search(r"(?:^|\s)#\s(.*)$", line)
        if comment:
            yield from ((number, finding) for finding in findings(comment[1]))


def page_findings(text: str) -> Iterator[tuple[int, str]]:
    """Yields (line, finding) of the prose of a Markdown page; code is skipped."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield from ((number, finding) for finding in findings(line))


def findings(text: str) -> list[str]:
    return [
        f"{match[0]!r}: write {replacement}"
        for pattern, replacement in COMPILED
        for match in pattern.finditer(text)
    ]


@functools.cache
def lines_of(name: str) -> list[str]:
    return (ROOT / name).read_text().splitlines()


def is_exception(name: str, line: int) -> bool:
    return MARK in lines_of(name)[line - 1]


FOLDERS = sorted({name.split("/")[0] for name in tracked("*.py", "*.md")})


@pytest.mark.parametrize("folder", FOLDERS)
def test_wording(folder):
    errors = []
    for name in tracked(folder):
        readers = {".py": python_findings, ".md": page_findings}
        reader = readers.get(Path(name).suffix)
        if reader is None or name == "tests/test_prose.py":
            continue
        text = "\n".join(lines_of(name))
        errors += [
            f"{name}:{line}: {finding}"
            for line, finding in reader(text)
            if not is_exception(name, line)
        ]
    assert not errors, "\n".join(errors)


def test_number_of_exceptions():
    marked = [
        f"{name}:{number}"
        for name in tracked("*.py", "*.md")
        if name != "tests/test_prose.py"
        for number, line in enumerate(lines_of(name), 1)
        if MARK in line
    ]
    assert len(marked) <= MAX_EXCEPTIONS, marked


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.example)
def test_rules(rule):
    assert findings(rule.example)
    assert findings("The file is not a list.") == []
