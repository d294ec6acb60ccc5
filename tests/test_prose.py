"""Wording rules of docstrings, comments, messages and pages: standard technical English.

Each rule has a pattern and its replacement. A line that ends in `prose: ok` and a reason is an
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
UNITS = (
    "bytes|elements|files?|ids|lines?|messages?|milliseconds|ms|rows?|samples?|seconds|tables?|"
    "values"
)
SCOPES = (
    "batch|core|day|device|feature|file|id|line|machine|process|rank|request|row|sample|second|step|"
    "table|user"
)


class Rule(NamedTuple):
    """Words that are not used.

    Attributes:
        pattern: regular expression, without regard to case.
        replacement: what to write instead.
    """

    pattern: str
    replacement: str


RULES = (
    Rule(r"\b(is|are|was|were) (?-i:none)\b", "'there is no ...' or 'is not a ...'"),
    Rule(r"(?<!there )\b(is|are|was|were) no (?!longer)", "'is not a ...' or 'is invalid'"),
    Rule(r"\b(say|says|said|saying)\b", "'reports', 'states', 'prints' or 'specifies'"),
    Rule(r"\b(tell|tells|told|hear|hears)\b", "'reports', 'notifies' or 'receives'"),
    Rule(r"\bso many\b", "the name of the quantity"),
    Rule(r"\b(nobody|somebody|whoever)\b", "the actor, or the passive voice"),
    Rule(r"\b(anew|likewise|for ever)\b", "'again', 'also' or 'forever'"),
    Rule(
        r"\b(mend(s|ed)?|perhaps|meanwhile|alike)\b", "'fix', 'possibly', 'during this', 'equally'"
    ),
    Rule(r"\b(go|goes|going|went) on\b", "'continue' or 'resume'"),
    Rule(r"\b(to and fro|ways? out|of no account|without a word|by itself)\b", "the plain term"),
    Rule(r"\blook-ups?\b", "'lookup'"),
    Rule(r"\bnumericals\b", "'numerical features'"),
    Rule(rf"\b({UNITS}|one) an? ({SCOPES})\b", "'per ...'"),
    Rule(r"\b(stands?|stood) (at|behind|beside|in|on|once|twice)\b", "'is in' or 'appears in'"),
    Rule(r"\bbeside\b", "'next to', 'in addition to' or 'compared with'"),
    Rule(r"\bbehind (an?|each|every|it|the|them)\b", "'after'"),
    Rule(r"\bin front of\b", "'before'"),
    Rule(r"\bwhat (are|is|was|were) (asked|held|left|missing|said|there)\b", "the noun"),
    Rule(r"\basked for\b", "'requested'"),
)
COMPILED = [(re.compile(rule.pattern, re.IGNORECASE), rule.replacement) for rule in RULES]
OPENING = re.compile(
    r"(As|How|Likewise|Of|That|The same|Those|What|Where|Whether|Which|Who|Whose)\b"
)
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


@pytest.mark.parametrize(
    ("text", "count"),
    [("There is no such file.", 0), ("The file is no list.", 1), ("32 bytes a row", 1), ("", 0)],
)
def test_rules(text, count):
    assert len(findings(text)) == count
