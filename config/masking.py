"""Passwords in URIs, which must not appear in logs and files."""

import re
from typing import Any


def mask_passwords(value: Any) -> Any:
    """Returns a text without user and password of its URIs; other values unchanged.

    >>> mask_passwords("--mlflow_uri=postgresql://user:password@host/runs")
    '--mlflow_uri=postgresql://***@host/runs'
    """
    return re.sub(r"://\S+@", "://***@", value) if isinstance(value, str) else value
