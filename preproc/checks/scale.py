"""Scales that few values decide, and numbers that are not scaled."""

from collections.abc import Mapping

from preproc.checks.report import NOTE, PASSED, WARNING, Finding, Kind
from preproc.encoding.profile import ColumnProfile
from preproc.fitting.transformation import LOG, NONE, STANDARDIZE, Scale

_LARGE = 100  # a mean or a standard deviation above it is worth a warning
_CHOSEN = Kind(
    "chosen_scales",
    "few values would decide mean and standard deviation, and the others nearly coincide",
)
_REQUESTED = Kind("requested_scale", "numbers that nearly coincide train badly")
_UNSCALED = Kind("unscaled_numbers", "large numbers train badly")


def scales(fitted: Mapping[str, Scale], profile: Mapping[str, ColumnProfile]) -> list[Finding]:
    """Returns the checks of the scales of numbers.

    Args:
        fitted: feature -> shape.
        profile: of the columns, which have the names of the features.
    """
    checks = []
    chosen = {n: own.transformation for n, own in fitted.items() if own.is_chosen}
    if chosen:
        others = {name: how for name, how in chosen.items() if how != STANDARDIZE}
        listed = ", ".join(f"'{name}' by {how}" for name, how in others.items())
        finding = _CHOSEN.finding(
            NOTE if others else PASSED,
            others,
            f"--transform auto transforms {listed}",
            f"--transform auto,{next(iter(others), '')}=standardize overrides it",
        )
        checks.append(finding)
    for name, own in fitted.items():
        if not own.is_chosen and own.transformation in (STANDARDIZE, LOG):
            finding = _REQUESTED.finding(
                WARNING if own.is_decided_by_few else PASSED,
                (name,),
                f"'{name}', --transform {own.transformation}: {own}",
                f"use --transform {own.transformation},{name}=auto",
            )
            checks.append(finding)
    unscaled = [name for name, own in fitted.items() if own.transformation == NONE]
    if unscaled:
        sizes = {n: max(abs(profile[n].mean or 0), profile[n].deviation or 0) for n in unscaled}
        large = [name for name in unscaled if sizes[name] > _LARGE]
        listed = ", ".join(f"'{name}'" for name in large)
        finding = _UNSCALED.finding(
            WARNING if large else PASSED,
            large,
            f"{listed}: mean or standard deviation above {_LARGE} in train",
            "use --transform auto",
        )
        checks.append(finding)
    return checks
