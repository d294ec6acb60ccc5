"""`Config`: the values of all flags, checked against each other."""

import dataclasses
import functools
import types
import typing
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from config.family import Definition, Family
from config.flag import mask_passwords, rules_of
from config.sections import checkpoint, evaluation, original, recommendation, run
from config.sections.checkpoint import CheckpointConfig
from config.sections.data import DataConfig, SyntheticConfig, check_dataset_path
from config.sections.device import DeviceConfig
from config.sections.distribution import DistributionConfig
from config.sections.evaluation import EvaluationConfig
from config.sections.logs import LogConfig
from config.sections.model import ModelConfig, canonical_value
from config.sections.optimizer import OptimizerConfig, check_loss
from config.sections.original import OriginalConfig
from config.sections.recommendation import RecommendationConfig
from config.sections.run import RunConfig

# Rules across flags: each raises ValueError for values that contradict each other.
RULES = (*run.RULES, *evaluation.RULES, *checkpoint.RULES, *original.RULES, *recommendation.RULES)
# Those of flags that a checkpoint may set.
COMPLETE_RULES = (
    check_dataset_path,
    check_loss,
    run.check_preset,
    evaluation.check_evaluations,
    original.check_dummy_model,
)


@dataclass(frozen=True)
class Config:
    """The values of all flags, in sections.

    Attributes:
        definition: the recipe; flags that it does not have keep their defaults.
        explicit: names of the flags that the command line sets; the others have their defaults.
        preset_note: a sentence on the preset and its values, "" if a checkpoint has all values.
        family_flags: flags of the family alone (`Family.section`).
    """

    definition: Definition
    explicit: frozenset[str] = frozenset()
    preset_note: str = ""
    data: DataConfig = field(default_factory=DataConfig)
    run: RunConfig = field(default_factory=RunConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    family_flags: Any = None
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    recommendation: RecommendationConfig = field(default_factory=RecommendationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    logs: LogConfig = field(default_factory=LogConfig)
    device: DeviceConfig = field(default_factory=DeviceConfig)
    distribution: DistributionConfig = field(default_factory=DistributionConfig)
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)
    original: OriginalConfig = field(default_factory=OriginalConfig)

    def __post_init__(self) -> None:
        if self.family_flags is None:
            object.__setattr__(self, "family_flags", self.family.section())

    @property
    def recipe(self) -> str:
        """Name of the recipe."""
        return self.definition.name

    @property
    def model_name(self) -> str:
        """Type of the recipe's model; without types, and of a model of one's own, the recipe."""
        has_types = self.has("model_type") and self.definition.build_model is None
        return str(self.value("model_type")) if has_types else self.recipe

    @property
    def family(self) -> Family:
        """The family of the recipe."""
        return self.definition.family

    @property
    def model_flags(self) -> dict[str, Any]:
        """Values that a checkpoint stores so that the model can be built again."""
        owner = self.definition if self.definition.build_model else self.family
        return {name: canonical_value(name, self.value(name)) for name in owner.model_flags}

    def value(self, name: str) -> Any:
        """Returns the value of a flag."""
        return getattr(getattr(self, _sections_by_flag(self.family)[name]), name)

    def has(self, name: str) -> bool:
        """Returns whether the recipe has the flag."""
        return any(field.name == name for _, field in fields_of(self.family))

    def default(self, name: str) -> Any:
        """Returns the recipe's default of a flag."""
        fields = (field for _, field in fields_of(self.family) if field.name == name)
        return self.definition.defaults.get(name, next(fields).default)

    def flat(self) -> dict[str, Any]:
        """Returns the values of the recipe's flags by name, for the checkpoint.

        Passwords in URIs are masked.
        """
        flags = (flag.name for _, flag in fields_of(self.family))
        return {name: mask_passwords(self.value(name)) for name in flags}

    def in_effect(self) -> dict[str, Any]:
        """Returns those of `flat` that have an effect in this run."""
        flags = dataclasses.replace(self, explicit=frozenset(self.flat()))
        without = {name.partition(" ")[0] for name in flags.unused()}
        for _, flag in fields_of(self.family):
            if not all(need.holds(flags) for need in rules_of(flag).needs):
                without.add(flag.name)
        return {name: value for name, value in self.flat().items() if name not in without}

    def replace(self, **values: Any) -> "Config":
        """Returns a copy in which flags have other values, after a check of these."""
        config = self.with_values(values)
        config.check_values(values)
        config.check_complete()
        return config

    def with_values(self, values: dict[str, Any]) -> "Config":
        """Returns an unchecked copy in which flags have other values."""
        sections: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            sections.setdefault(_sections_by_flag(self.family)[name], {})[name] = value
        changes = {
            section: dataclasses.replace(getattr(self, section), **changed)
            for section, changed in sections.items()
        }
        return dataclasses.replace(self, **changes)

    @property
    def awaits_checkpoint(self) -> bool:
        """True if the run reads a checkpoint, which may set further flags."""
        if self.run.mode == "deploy" or self.distribution.plan_only:
            return False
        paths = self.checkpoint
        resumed = (paths.resume or paths.load_checkpoint_path) and self.run.mode == "train"
        return bool(resumed or paths.restore_checkpoint_path)

    def check_values(self, names: Collection[str]) -> None:
        """Raises ValueError for a flag that is out of range."""
        for _, flag in fields_of(self.family):
            if flag.name in names:
                rules_of(flag).check_value(flag.name, self.value(flag.name))

    def check_complete(self) -> None:
        """Raises ValueError for flags that contradict each other, or that have no effect.

        It is called once per run: by `parse`, or with the flags of a checkpoint.
        """
        for _, flag in fields_of(self.family):
            if flag.name in self.explicit:
                rules_of(flag).check_needs(flag.name, self)
        for check_rule in COMPLETE_RULES:
            check_rule(self)

    def unused(self) -> list[str]:
        """Returns the explicit flags without effect, sorted, with the condition of each.

        Flags that this `--mode` or a model of one's own does not read have no condition.
        """
        unused = []
        for section, flag in fields_of(self.family):
            rules = rules_of(flag)
            is_read = rules.is_read(self) and not self._is_foreign(section, flag.name)
            if flag.name in self.explicit and not is_read:
                unused.append(flag.name)
            elif flag.name in self.explicit and (need := rules.unmet(self)):
                unused.append(f"{flag.name} (read {need.text})")
        return sorted(unused)

    def _is_foreign(self, section: str, name: str) -> bool:
        """Returns whether a flag is one of the family's model, and the recipe has its own model."""
        is_of_model = section in ("model", "distribution") or name in self.family.model_flags
        own = (*self.definition.model_flags, "rank_timeout_s")
        return self.definition.build_model is not None and is_of_model and name not in own


@functools.cache
def sections_of(family: Family) -> dict[str, type]:
    """Returns the sections of a family's flags by name, in the order of `--help`."""
    hints = typing.get_type_hints(Config) | {"family_flags": family.section}
    names = [section.name for section in dataclasses.fields(Config)]
    return {name: hints[name] for name in names[names.index("data") :]}


@functools.cache
def fields_of(family: Family) -> tuple[tuple[str, "dataclasses.Field[Any]"], ...]:
    """Returns (section, field) of each flag of a family."""
    return tuple(
        (section, field)
        for section, kind in sections_of(family).items()
        for field in dataclasses.fields(kind)
        if rules_of(field).part in ("", *family.parts)
    )


@functools.cache
def _sections_by_flag(family: Family) -> dict[str, str]:
    """Returns the section of each flag; the common ones have flags, too, that the family lacks."""
    return {
        field.name: section
        for section, kind in sections_of(family).items()
        for field in dataclasses.fields(kind)
    }


@functools.cache
def flags_with(family: Family, **rules: Any) -> frozenset[str]:
    """Returns the names of a family's flags whose rules have these values."""
    return frozenset(
        field.name
        for _, field in fields_of(family)
        if all(getattr(rules_of(field), name) == value for name, value in rules.items())
    )


def flag_types(family: Family, name: str) -> tuple[type, ...]:
    """Returns the Python types that the value of a flag may have."""
    hint = typing.get_type_hints(sections_of(family)[_sections_by_flag(family)[name]])[name]
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = tuple(typing.get_origin(kind) or kind for kind in kinds)
    return (*kinds, int) if float in kinds else kinds
