"""Scales that few values decide, numbers that are not scaled, and columns of one value."""

from collections.abc import Mapping
from dataclasses import dataclass

from preproc.checks.report import NOTE, PASSED, WARNING, Check
from preproc.checks.telling_columns import LeftOutColumn
from preproc.encoding.profile import ColumnProfile
from preproc.fitting.infer import ColumnFacts
from preproc.fitting.scale import LOG, NONE, STANDARDIZE, Scale

LARGE = 100  # a mean or a standard deviation above it is worth a warning
_LEAST_ROWS = 20


@dataclass(frozen=True)
class ChosenScales(Check):
    """Features that `--transform auto` does not standardize.

    Attributes:
        transformations: feature -> transformation.
    """

    name = "chosen_scales"
    why = "few values would decide mean and standard deviation, and the others nearly coincide"
    transformations: Mapping[str, str]

    @property
    def level(self) -> str:
        return NOTE if self.transformations else PASSED

    @property
    def seen(self) -> str:
        texts = [f"'{name}' by {how}" for name, how in self.transformations.items()]
        return f"--transform auto transforms {', '.join(texts)}"

    @property
    def remedy(self) -> str:
        return f"--transform auto,{next(iter(self.transformations), '')}=standardize overrides it"

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.transformations)


@dataclass(frozen=True)
class RequestedScale(Check):
    """A feature whose transformation was requested.

    Attributes:
        feature: its name.
        scale: its shape.
    """

    name = "requested_scale"
    why = "numbers that nearly coincide train badly"
    feature: str
    scale: Scale

    @property
    def level(self) -> str:
        return WARNING if self.scale.is_decided_by_few else PASSED

    @property
    def seen(self) -> str:
        return f"'{self.feature}', --transform {self.scale.transformation}: {self.scale}"

    @property
    def remedy(self) -> str:
        return f"use --transform {self.scale.transformation},{self.feature}=auto"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.feature,)


@dataclass(frozen=True)
class UnscaledNumbers(Check):
    """Large numbers that are not scaled.

    Attributes:
        sizes: feature -> mean or standard deviation, the larger one.
    """

    name = "unscaled_numbers"
    why = "large numbers train badly"
    sizes: Mapping[str, float]

    @property
    def level(self) -> str:
        return WARNING if self.columns else PASSED

    @property
    def seen(self) -> str:
        listed = ", ".join(f"'{name}'" for name in self.columns)
        return f"{listed}: mean or standard deviation above {LARGE} in train"

    @property
    def remedy(self) -> str:
        return "use --transform auto"

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name, size in self.sizes.items() if size > LARGE)


def scales(fitted: Mapping[str, Scale], profile: Mapping[str, ColumnProfile]) -> list[Check]:
    """Returns the checks of the scales of numbers.

    Args:
        fitted: feature -> shape.
        profile: of the columns, which have the names of the features.
    """
    checks: list[Check] = []
    chosen = {n: own.transformation for n, own in fitted.items() if own.is_chosen}
    if chosen:
        others = {name: how for name, how in chosen.items() if how != STANDARDIZE}
        checks.append(ChosenScales(others))
    for name, own in fitted.items():
        if not own.is_chosen and own.transformation in (STANDARDIZE, LOG):
            checks.append(RequestedScale(name, own))
    unscaled = [name for name, own in fitted.items() if own.transformation == NONE]
    if unscaled:
        own = {name: profile[name] for name in unscaled}
        sizes = {n: max(abs(p.mean or 0), p.deviation or 0) for n, p in own.items()}
        checks.append(UnscaledNumbers(sizes))
    return checks


@dataclass(frozen=True)
class ConstantColumn(LeftOutColumn):
    """A column with one value in all rows.

    Attributes:
        present, missing, distinct: numbers of values.
    """

    name = "constant_column"
    why = "nothing follows from a value that each row has"
    present: int = 0
    missing: int = 0
    distinct: int = 0

    @property
    def level(self) -> str:
        is_constant = self.distinct == 1 and not self.missing and self.present >= _LEAST_ROWS
        return super().level if is_constant else PASSED

    @property
    def seen(self) -> str:
        return f"'{self.column}' has one value in all {self.present:,} rows of train"


def constant_columns(facts: Mapping[str, ColumnFacts]) -> list[ConstantColumn]:
    """Returns the checks of columns of single values."""
    return [
        ConstantColumn(name, present=own.present, missing=own.missing, distinct=own.distinct)
        for name, own in facts.items()
        if not own.list_form
    ]
