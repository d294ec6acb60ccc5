"""`Config`: the values of all flags, checked against each other."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from config.flag import rules_of
from config.sections import RULES, fields_of, sections_by_flag
from config.sections.checkpoint import CheckpointConfig
from config.sections.collaborative import CollaborativeConfig
from config.sections.data import DataConfig, check_dataset_path
from config.sections.distribution import DistributionConfig
from config.sections.model import ModelConfig, SequentialConfig
from config.sections.optimizer import OptimizerConfig
from config.sections.run import TERABYTE, RunConfig


@dataclass(frozen=True)
class Config:
    """The values of all flags.

    Attributes:
        recipe: name of the recipe, e.g. `dlrm`; flags that it does not have keep their defaults.
        explicit: names of the flags that the command line sets; the others have their defaults.
        preset_note: a sentence on the preset and its values, "" if a checkpoint has all values;
            None before a preset is chosen.
    """

    recipe: str
    explicit: frozenset[str] = frozenset()
    preset_note: str | None = None
    data: DataConfig = field(default_factory=DataConfig)
    run: RunConfig = field(default_factory=RunConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    sequence: SequentialConfig = field(default_factory=SequentialConfig)
    collaborative: CollaborativeConfig = field(default_factory=CollaborativeConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    distribution: DistributionConfig = field(default_factory=DistributionConfig)

    def value(self, name: str) -> Any:
        """Returns the value of a flag."""
        return getattr(getattr(self, sections_by_flag(self.recipe)[name]), name)

    def flat(self) -> dict[str, Any]:
        """Returns the values of the recipe's flags by name, for the log and the checkpoint."""
        return {flag.name: self.value(flag.name) for _, flag in fields_of(self.recipe)}

    def replace(self, **values: Any) -> "Config":
        """Returns a copy in which flags have other values; checked again."""
        config = self.with_values(values)
        config.check()
        return config

    def with_values(self, values: dict[str, Any]) -> "Config":
        """Returns an unchecked copy in which flags have other values."""
        sections: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            sections.setdefault(sections_by_flag(self.recipe)[name], {})[name] = value
        changes = {
            section: dataclasses.replace(getattr(self, section), **changed)
            for section, changed in sections.items()
        }
        return dataclasses.replace(self, **changes)

    def awaits_preset(self, name: str) -> bool:
        """Returns whether `--preset` may still choose the value of a flag."""
        is_open = self.preset_note is None and self.run.preset != TERABYTE
        return is_open and name not in self.explicit

    def check(self, complete: bool = True) -> None:
        """Raises ValueError for flags out of range, or that contradict each other.

        Args:
            complete: False if a checkpoint that is not read yet sets further flags.
        """
        for _, flag in fields_of(self.recipe):
            rules_of(flag).check_value(flag.name, self.value(flag.name))
            if complete and flag.name in self.explicit:
                rules_of(flag).check_needs(flag.name, self)
        if complete:
            check_dataset_path(self)
        for check_rule in RULES:
            check_rule(self)

    def unused(self) -> list[str]:
        """Returns the explicit flags that this `--mode` does not read, sorted."""
        return sorted(
            flag.name
            for _, flag in fields_of(self.recipe)
            if flag.name in self.explicit and not rules_of(flag).is_read(self)
        )
