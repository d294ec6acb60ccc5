"""The code runs on the Python 3.10 of NVIDIA's container: nothing in it is of later ones.

`make test-floor` also runs the tests and small benchmarks there.
"""

import ast
import re
import subprocess

import pytest

# Additions to the standard library in Python 3.11 and 3.12 ("What's New" in its documentation).
LATER_MODULES = {"tomllib", "wsgiref.types"}
LATER_NAMES = {
    *("asyncio.Barrier", "asyncio.Runner", "asyncio.TaskGroup", "asyncio.timeout"),
    *("calendar.Month", "contextlib.chdir", "datetime.UTC", "enum.EnumCheck", "enum.ReprEnum"),
    *("enum.StrEnum", "enum.member", "enum.nonmember", "enum.verify", "hashlib.file_digest"),
    *("http.HTTPMethod", "inspect.getmembers_static", "itertools.batched", "locale.getencoding"),
    *("logging.getHandlerByName", "logging.getLevelNamesMapping", "math.cbrt", "math.exp2"),
    *("math.sumprod", "operator.call", "re.NOFLAG", "sys.exception", "sys.monitoring"),
    *("typing.LiteralString", "typing.Never", "typing.NotRequired", "typing.Required"),
    *("typing.Self", "typing.TypeVarTuple", "typing.Unpack", "typing.assert_never"),
    *("typing.assert_type", "typing.dataclass_transform", "typing.override"),
    *("typing.reveal_type",),
}
LATER_BUILTINS = {"BaseExceptionGroup", "ExceptionGroup"}
LATER_METHODS = {"add_note", "is_junction", "walk"}


WORDS = {name.rpartition(".")[2] for name in LATER_NAMES} | LATER_BUILTINS | LATER_METHODS
ANY_WORD = re.compile(rf"\b({'|'.join(sorted(WORDS | LATER_MODULES))})\b")


def later(source: str) -> list[str]:
    """Returns the names in a source that Python 3.10 does not have."""
    uses, modules = [], {}
    tree = ast.parse(source, feature_version=(3, 10))
    if not ANY_WORD.search(source):  # a look at every node takes much longer
        return []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {name.asname or name.name: name.name for name in node.names}
            uses += [name.name for name in node.names if name.name in LATER_MODULES]
        elif isinstance(node, ast.ImportFrom):
            uses += [node.module] if node.module in LATER_MODULES else []
            names = {f"{node.module}.{name.name}" for name in node.names}
            uses += sorted(names & LATER_NAMES)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{modules.get(node.value.id, '')}.{node.attr}"
            own = node.value.id in modules
            if name in LATER_NAMES or (node.attr in LATER_METHODS and not own):
                uses.append(name.strip("."))
        elif isinstance(node, ast.Name) and node.id in LATER_BUILTINS:
            uses.append(node.id)
    return uses


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        ("import tomllib", ["tomllib"]),
        ("from tomllib import loads", ["tomllib"]),
        ("from typing import Any, Self", ["typing.Self"]),
        ("import datetime as d\nd.UTC", ["datetime.UTC"]),
        ("raise ExceptionGroup('', [])", ["ExceptionGroup"]),
        ("error.add_note('')\nroot.walk()", ["add_note", "walk"]),
        ("import ast, os\nast.walk(os.walk('.'))", []),
    ],
)
def test_later_names(source, uses):
    assert later(source) == uses


def test_later_syntax():
    with pytest.raises(SyntaxError, match=r"only supported in Python 3.11|invalid syntax"):
        later("try:\n  pass\nexcept* ValueError:\n  pass\n")


@pytest.mark.long
def test_all_files(root):
    listed = subprocess.check_output(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=root,
        text=True,
    )
    names = listed.splitlines()
    uses_by_file = {}
    for name in names:
        if (root / name).exists() and (later_ones := later((root / name).read_text())):
            uses_by_file[name] = later_ones
    assert len(names) > 100 and not uses_by_file
