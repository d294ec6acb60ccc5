"""Findings of the checks of a data set, as its preparation stores them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from dataloading.spec.data_set_files import CHECKS_FILE

NOTE, WARNING = "note", "warning"
_SHOWN = 3  # warnings in a line


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


def describe_warnings(folder: Path) -> str:
    """Returns the open warnings on a data set in one line; empty without any."""
    try:
        seen = [finding.seen for finding in read_findings(folder) if finding.level == WARNING]
    except (ValueError, OSError) as error:  # no reason to end a training
        return str(error)
    if not seen:
        return ""
    more = f"; and {len(seen) - _SHOWN} more" if len(seen) > _SHOWN else ""
    number = f"{len(seen)} warning{'s' * (len(seen) > 1)}"
    return (
        f"checks of the data set: {number}: {'; '.join(seen[:_SHOWN])}{more} (remedies: "
        f"{folder / CHECKS_FILE})"
    )


def names_of_warnings(folder: Path) -> str:
    """Returns a clause with the checks that warn, and their columns; empty without any."""
    try:
        findings = [each for each in read_findings(folder) if each.level == WARNING]
    except (ValueError, OSError):
        return ""
    names = dict.fromkeys(
        each.check + (f" ({', '.join(each.columns)})" if each.columns else "") for each in findings
    )
    return f"; checks of the data set that warn: {', '.join(names)}" if names else ""
