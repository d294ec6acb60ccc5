"""Names of tests are equal in all processes; otherwise pytest's workers refuse to begin."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

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
