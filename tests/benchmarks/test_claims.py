"""The benchmarks meet the targets that they print; minutes each, so only with `make test-all`."""

import re
import subprocess

import pytest

TARGETS = {
    *("bench", "bench-op", "bench-preparation"),
    *("bench-sequence", "bench-sequence-preparation", "bench-ncf", "bench-embedding"),
    *("bench-mlperf", "bench-serving"),
}


@pytest.mark.long
@pytest.mark.parametrize("target", sorted(TARGETS))
def test_targets(target, root):
    done = subprocess.run(
        ["make", target], cwd=root, capture_output=True, text=True, timeout=3600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\bmet\b", done.stdout)


def test_targets_of_the_table(root):
    table = (root / "benchmarks/README.md").read_text()
    targets = re.findall(r"^\| `make ([a-z-]+)`", table, re.MULTILINE)
    makefile = (root / "Makefile").read_text()
    assert set(targets) == TARGETS
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
