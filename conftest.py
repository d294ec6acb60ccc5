"""Option of the tests in tests/ and in distributed-embeddings/tests/."""

import os
import re

import pytest

# The variables of `make test PYTHON=...` would reach the `make` that tests start.
_variables = re.findall(r"(\w+)=", os.environ.get("MAKEFLAGS", ""))
for _name in ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", *_variables):
    os.environ.pop(_name, None)


def pytest_addoption(parser):
    """Adds the option that runs long tests."""
    parser.addoption("--long", action="store_true", help="also run the tests marked `long`")


def pytest_collection_modifyitems(config, items):
    """Skips long tests without the option."""
    if config.getoption("--long"):
        return
    skip = pytest.mark.skip(reason="a long sweep: run `make test-all`")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip)
