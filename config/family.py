"""Recipes as config and the packages above it know them: `Family` and `Definition`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from config.flag import Values
from config.sections.optimizer import check_weight_decay


@dataclass(frozen=True)
class NoFlags:
    """No flags."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Family:
    """Flags, presets, model and data of a kind of model; each is an object in `recipes/<family>`.

    `config` are the flags of a run (`config.Config`), `spec` is the feature spec of its data set,
    None for samples that are drawn from flags, and `shape` the sizes of a model.

    Attributes:
        reads: kind of data sets that it reads (`dataloading.spec.locate`).
        section: dataclass of its own flags, `Config.family_flags`.
        rules: rules across them, see `config.config.RULES`.
        model_flags: flags that a checkpoint stores so that the model can be built again.
        parts: parts of the flags (`Rules.part`) that it has, next to the flags of all families.
        untrained_modes: values of --mode that also run with random weights, of those that
            otherwise need a checkpoint.
        reads_data: flags -> whether the run reads a data set, so that it needs the path of one.
        replaces_training: flags -> whether a training may follow an unfinished one in its folder.
        recommends_from_split: whether --mode recommend reads a split of the data set.
        expand: (values by name, flags of the command line) -> the flags that the user sets by
            flags that stand for them; their values are set.
        implied: flags -> names of those that others replace, or whose values follow from others or
            the data set; they are comments in the file of a run's flags.
        check_weight_decay: raises ValueError for a decay that is too large for the rate.
        terabyte_from: number of training samples from which on `--preset auto` is `terabyte`.
        choose_small: (`presets.Selection`, number of training samples, `preset_facts`) sets the
            flags of `--preset small`.
        preset_facts: (config, spec) -> arguments of `choose_small` that the data set decides.
        small: the rule by which `small` sets each flag, for `--help`.
        benchmarks: values of --preset that are a benchmark, and what sets the flags of a
            `presets.Selection`.
        build: (config, spec, world, device) -> `recipes.recipe.Recipe`, model and data of a run.
        build_model: (config, spec, world, device) -> the untrained model alone.
        model_config: (config, spec) -> shape.
        table_use: (config, spec, shape, world size) -> `recipes.from_flags.TableUse`.
        dense_bytes: shape -> bytes of the dense weights.
        spec_of_data: (config, spec) -> feature spec of the samples.
        open_data: (config, spec, world) -> samples to train on, samples to evaluate, and others.
        default_metric: metric by which a search compares trainings without `--metric`.
        baseline: name of the module whose `task(spec, config, max_rows)` is the comparison of
            simple models with a checkpoint; None: that of another family that `reads` the same.
        check_baseline: raises ValueError if a package of the simple models is not installed.
        serving: name of the module that splits a trained model for serving; None: the definition
            names one.
        own_serving: the same of a model of one's own (`Definition.build_model`).
    """

    reads: str
    section: type[Any] = NoFlags
    rules: Sequence[Callable[[Values], None]] = ()
    model_flags: Sequence[str]
    parts: frozenset[str] = frozenset()
    untrained_modes: tuple[str, ...] = ()
    reads_data: Callable[[Values], bool] = lambda flags: True
    replaces_training: Callable[[Values], bool] = lambda flags: False
    recommends_from_split: bool = False
    expand: Callable[[dict[str, Any], set[str]], set[str]] = lambda values, explicit: set()
    implied: Callable[[Values], set[str]] = lambda flags: set()
    check_weight_decay: Callable[[Values], None] = check_weight_decay
    terabyte_from: int
    choose_small: Callable[..., None]
    preset_facts: Callable[[Any, Any], Mapping[str, Any]] = lambda config, spec: {}
    small: Mapping[str, str]
    benchmarks: Mapping[str, Callable[[Any], None]] = field(default_factory=dict)
    build: Callable[..., Any]
    build_model: Callable[..., Any]
    model_config: Callable[..., Any]
    table_use: Callable[..., Any]
    dense_bytes: Callable[[Any], int]
    spec_of_data: Callable[..., Any] = lambda config, spec: spec
    open_data: Callable[..., tuple[Any, ...]]
    default_metric: str = "auc"
    baseline: str | None = None
    check_baseline: Callable[[], None] = lambda: None
    serving: str | None = None
    own_serving: str | None = None


@dataclass(frozen=True)
class Definition:
    """A recipe.

    Attributes:
        name: name of the recipe, e.g. `dlrm`.
        family: the family whose flags and presets it has.
        defaults: flags whose default differs.
        aliases: other name of a flag -> its name; with an equals sign in both, another word for a
            value ("mode=test": "mode=eval").
        log_names: (`--mode`, evaluated split or None, metric by which evaluations are compared) ->
            `runtime.logs.dlll.LogNames`; None: values have our names.
        build: as of the family, of a recipe with another loss, data or optimizers; None: that of
            the family.
        build_model: as of the family, for another model, whose tables have no plan; None: that of
            the family. For serving, it is also called with a spec of one id per feature.
        model_flags: of `build_model`, in place of those of the family.
        metrics: further metrics of its evaluations, functions feature spec ->
            `nn.metrics.metric.Metric`.
        serving: name of the module that splits a model of `build_model` for serving
            (`deployment.model.served_model.serving_of`); None: that of the family.
    """

    name: str
    family: Family
    defaults: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    log_names: Callable[[str, str | None, str], Any] | None = None
    build: Callable[..., Any] | None = None
    build_model: Callable[..., Any] | None = None
    model_flags: tuple[str, ...] = ()
    metrics: tuple[Callable[[Any], Any], ...] = ()
    serving: str | None = None

    @property
    def has_plan(self) -> bool:
        """True if the tables of the model are those of the family."""
        return self.build is None and self.build_model is None
