"""Scales that few values decide, and numbers that are not scaled."""

from collections.abc import Mapping

from preproc.checks.report import NOTE, PASSED, WARNING, Finding, Kind
from preproc.encoding.profile import ColumnProfile
from preproc.fitting.transformation import LOG, NONE, STANDARDIZE, Scale

LARGE = 100  # a mean or a standard deviation above it is worth a warning
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
    checks: list[Finding] = []
    chosen = {n: own.transformation for n, own in fitted.items() if own.is_chosen}
    if chosen:
        checks.append(chosen_scales({n: how for n, how in chosen.items() if how != STANDARDIZE}))
    for name, own in fitted.items():
        if not own.is_chosen and own.transformation in (STANDARDIZE, LOG):
            checks.append(requested_scale(name, own))
    unscaled = [name for name, own in fitted.items() if own.transformation == NONE]
    if unscaled:
        own = {name: profile[name] for name in unscaled}
        sizes = {n: max(abs(p.mean or 0), p.deviation or 0) for n, p in own.items()}
        checks.append(unscaled_numbers(sizes))
    return checks


def chosen_scales(transformations: Mapping[str, str]) -> Finding:
    """Returns the features that `--transform auto` does not standardize, and by what instead."""
    texts = [f"'{name}' by {how}" for name, how in transformations.items()]
    return _CHOSEN.finding(
        NOTE if transformations else PASSED,
        transformations,
        f"--transform auto transforms {', '.join(texts)}",
        f"--transform auto,{next(iter(transformations), '')}=standardize overrides it",
    )


def requested_scale(feature: str, scale: Scale) -> Finding:
    """Returns whether few values decide the scale of a feature whose transformation was
    requested."""
    return _REQUESTED.finding(
        WARNING if scale.is_decided_by_few else PASSED,
        (feature,),
        f"'{feature}', --transform {scale.transformation}: {scale}",
        f"use --transform {scale.transformation},{feature}=auto",
    )


def unscaled_numbers(sizes: Mapping[str, float]) -> Finding:
    """Returns which features are large numbers that are not scaled; sizes: feature -> mean or
    standard deviation, the larger one."""
    large = [name for name, size in sizes.items() if size > LARGE]
    listed = ", ".join(f"'{name}'" for name in large)
    return _UNSCALED.finding(
        WARNING if large else PASSED,
        large,
        f"{listed}: mean or standard deviation above {LARGE} in train",
        "use --transform auto",
    )
