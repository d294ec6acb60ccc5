"""Collection of tests: the cases of `make test`, and names.

The names are equal in all processes; otherwise pytest's workers refuse to begin.
"""

import os
import shutil
import subprocess
import sys

import pytest

# That of the collection: tests may import what writes into it (Merlin chooses Protocol Buffers in
# Python, whose messages pytest names otherwise).
ENVIRONMENT = dict(os.environ)

# A day later, where a time (gzip writes one into its header) would show in the tests' names.
COLLECT = """
import sys, time
time.time = lambda real=time.time: real() + 86_400
import pytest
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


CASES = """
import pytest

@pytest.mark.quick("1-*", {pattern!r})
@pytest.mark.parametrize("second", ["a", "b"])
@pytest.mark.parametrize("first", [1, 2])
def test_product(first, second):
    pass
"""


@pytest.mark.parametrize(
    ("pattern", "arguments", "expected"),
    [
        ("2-b", [], "3 passed, 1 skipped"),
        ("2-b", ["--long"], "4 passed"),
        ("3-b", ["--long"], "4 passed"),
        ("3-b", ["test_cases.py::test_product[1-a]"], "1 passed"),
        ("3-b", [], "quick: no case has the id of test_cases.py::test_product[3-b]"),
    ],
)
def test_quick_cases(pattern, arguments, expected, root, tmp_path):
    shutil.copy(root / "conftest.py", tmp_path)
    (tmp_path / "test_cases.py").write_text(CASES.format(pattern=pattern))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=tmp_path,
        env={**ENVIRONMENT, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert expected in done.stdout + done.stderr


@pytest.mark.long
def test_names_in_another_process(request, root):
    """pytest-xdist's workers collect for themselves, at different times and hash seeds."""
    names = [item.nodeid for item in request.session.items]
    files = {name.partition("::")[0] for name in names}
    seed = "1" if ENVIRONMENT.get("PYTHONHASHSEED") != "1" else "2"
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, *sorted(files)],
        cwd=root,
        env={**ENVIRONMENT, "PYTHONHASHSEED": seed, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    missing = set(names) - set(done.stdout.splitlines())
    assert not missing, f"in another process these have another name: {sorted(missing)[:5]}"
