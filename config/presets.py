"""Presets: values of flags for a data set or a benchmark.

The defaults of the flags are the published settings for large data sets (`--preset terabyte`). With
them, smaller data sets would have batches larger than the data set, or end within the warm-up:
`--preset small` is computed from the number of training samples, by the family of the recipe. A
preset of a benchmark has its settings, whatever the data set.
"""

import dataclasses
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from config.config import Config
from config.flag import value_text
from config.sections.run import AUTO, SMALL, TERABYTE


class Choice(NamedTuple):
    """Preset chosen for a data set, the flags it sets, and the reason."""

    preset: str
    values: dict[str, Any]
    reason: str

    def __str__(self) -> str:
        values = ", ".join(f"{name} {value_text(value)}" for name, value in self.values.items())
        return f"preset {self.preset} ({self.reason}): {values or 'no flag is changed'}"


class Selection:
    """Values of all flags; those that are not pinned can be set."""

    def __init__(self, config: Config, pinned: Collection[str]):
        self.config, self.pinned = config, pinned
        self.chosen: dict[str, Any] = {}

    def set(self, **values: Any) -> None:
        """Sets flags; pinned ones keep their values."""
        self.chosen |= {k: v for k, v in values.items() if k not in self.pinned}

    def is_other(self, name: str, value: Any) -> bool:
        """Returns whether a flag is pinned with another value."""
        return name in self.pinned and self[name] != value

    def __getitem__(self, name: str) -> Any:
        return self.chosen.get(name, self.config.value(name))


def apply(
    config: Config,
    count: Callable[[], int | None],
    pinned: Collection[str],
    **facts: Any,
) -> Config:
    """Returns the flags with the values of `--preset`, and with a sentence on it (`preset_note`).

    `count`, which returns the number of training samples, is called only if it decides; the other
    arguments are those of `choose`.
    """
    num_samples = count() if config.run.preset in (AUTO, SMALL) else None
    choice = choose(config, num_samples, pinned, **facts)
    config = config.with_values({"preset": choice.preset, **choice.values})
    in_effect = config.in_effect()
    read = {name: value for name, value in choice.values.items() if name in in_effect}
    return dataclasses.replace(config, preset_note=str(choice._replace(values=read)))


def choose(
    config: Config, num_samples: int | None, pinned: Collection[str], **facts: Any
) -> Choice:
    """Chooses the values of the flags that are not pinned.

    Args:
        num_samples: samples (NCF: interactions) of the training split; None if unknown, for which
            the preset is `terabyte`.
        pinned: names of flags that keep their value: those of the command line, or of a checkpoint.
        facts: of the data set, see `Family.choose_small`.
    """
    preset, family = config.run.preset, config.family
    values = Selection(config, pinned)
    if preset in family.benchmarks:
        family.benchmarks[preset](values)
        return Choice(preset, values.chosen, "as requested")
    if preset == TERABYTE:
        return Choice(TERABYTE, {}, "as requested")
    if num_samples is None:
        return Choice(TERABYTE, {}, "the number of training samples is unknown")
    reason, limit = f"{num_samples:,} training samples", family.terabyte_from
    if preset == AUTO:
        reason += f", {'fewer than' if num_samples < limit else 'at least'} {limit:,}"
        if num_samples >= limit:
            return Choice(TERABYTE, {}, reason)
    family.choose_small(values, num_samples, **facts)
    return Choice(SMALL, values.chosen, reason)
