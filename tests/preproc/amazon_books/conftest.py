"""Fixtures of the preparation of histories."""

import pytest

from dataloading import compiled


@pytest.fixture(params=["compiled", "plain"])
def implementation(request, monkeypatch):
    """With compiled functions, and without them."""
    if request.param == "plain":
        monkeypatch.setattr(compiled, "library", lambda: None)
    elif compiled.library() is None:
        pytest.skip("dataloading-kernels is not installed: run `make op`")
    return request.param
