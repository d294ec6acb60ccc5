"""Findings of the checks of a data set, as its preparation stores them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from dataloading.spec.data_set_files import CHECKS_FILE

NOTE, WARNING = "note", "warning"


class Finding(NamedTuple):
    """Observation of a check of the data.

    Attributes:
        check: name of the check.
        level: `NOTE` for what the preparation took care of, else `WARNING`.
        columns: columns concerned; empty for the whole table.
        seen: what was seen, with numbers.
        why: why it matters.
        remedy: what to do about it.
    """

    check: str
    level: str
    columns: tuple[str, ...]
    seen: str
    why: str
    remedy: str


def write_findings(folder: Path, findings: Iterable[Finding], passed: Iterable[str]) -> None:
    """Writes findings, and the names of the checks that found nothing, to a data set."""
    content = {"passed": [*passed], "findings": [finding._asdict() for finding in findings]}
    (folder / CHECKS_FILE).write_text(json.dumps(content, indent=1) + "\n")


def read_findings(folder: Path) -> list[Finding]:
    """Returns the findings on a data set; none if it was made without checks.

    Raises:
        ValueError: the file is damaged.
    """
    path = folder / CHECKS_FILE
    if not path.is_file():
        return []
    try:
        findings = json.loads(path.read_text())["findings"]
        return [Finding(**{**each, "columns": tuple(each["columns"])}) for each in findings]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{path}: expected the findings of a preparation, got invalid content ({error}): "
            "prepare the data set again, or delete this file"
        ) from None
