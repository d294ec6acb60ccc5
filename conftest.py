"""Option of the tests in tests/ and in distributed-embeddings/tests/."""

import fnmatch
import os
import re
import sys

import pytest

# The variables of `make test PYTHON=...` would reach the `make` that tests start.
_variables = re.findall(r"(\w+)=", os.environ.get("MAKEFLAGS", ""))
for _name in ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", *_variables):
    os.environ.pop(_name, None)

# Where it is set, each process would compile its modules and rewrite their assertions again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_addoption(parser):
    """Adds the option that runs long tests."""
    parser.addoption("--long", action="store_true", help="also run the tests marked `long`")


def pytest_configure(config):
    """Sets how many random problems a test of plans solves."""
    if config.getoption("--long"):
        os.environ["RANDOM_PLANS"] = "500"


def pytest_collection_modifyitems(config, items):
    """Skips long tests, and cases that a test's `quick` does not name, without the option."""
    if config.getoption("--long"):
        return
    skip = pytest.mark.skip(reason="a long sweep: run `make test-all`")
    is_used = {}  # (test, pattern of `quick`) -> it names a case
    for item in items:
        quick = item.get_closest_marker("quick")
        patterns = quick.args if quick else ()
        test = item.nodeid.partition("[")[0]
        matches = {(test, p): fnmatch.fnmatchcase(item.callspec.id, p) for p in patterns}
        for pair, match in matches.items():
            is_used[pair] = match or is_used.get(pair, False)
        if "long" in item.keywords or (quick and not any(matches.values())):
            item.add_marker(skip)
    names_cases = any("::" in argument for argument in config.args)
    unknown = [f"{test}[{pattern}]" for (test, pattern), used in is_used.items() if not used]
    if unknown and not names_cases:
        raise pytest.UsageError(f"quick: no case has the id of {', '.join(unknown)}")
