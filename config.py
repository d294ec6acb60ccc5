"""Every command-line flag, once: defined, read into dataclasses, and checked against each other.

A field of a section below *is* the flag of the same name. A recipe changes defaults by name
(`parse(argv, defaults={"optimizer": "adam"})`) and never defines a flag again. Below `main.py`
nobody sees absl: everybody takes the values it needs from the `Config` that it is given.
"""

import dataclasses
import json
import os
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from absl import flags


def _flag(default: Any, help_text: str, choices: Sequence[str] = (), minimum: float | None = None):
    metadata = {"help": help_text, "choices": tuple(choices), "minimum": minimum}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class DataConfig:
    """Where the rows come from."""

    dataset_path: str | None = _flag(None, "folder of the data set; holds the feature spec")
    feature_spec: str = _flag(
        "feature_spec.yaml", "file name of the feature spec in --dataset_path"
    )
    dataset_type: str = _flag(
        "tf_raw",
        "tf_raw reads split binaries, split_tfrecords prebatched TFRecords, also with rows of any "
        "number of ids; synthetic draws rows with a known teacher on the fly",
        choices=("tf_raw", "split_tfrecords", "synthetic"),
    )
    eval_mapping: str = _flag(
        "auto",
        "which rows evaluation reads; auto is validation (else test) while training and test (else "
        "validation) in the other modes",
        choices=("auto", "train", "validation", "test"),
    )
    shuffle: bool = _flag(False, "read the training rows in a new seeded order each epoch")
    shuffle_window_rows: int = _flag(
        524_288, "rows among which --shuffle mixes freely, a multiple of 8192", minimum=1
    )
    prefetch_batches: int = _flag(2, "batches read ahead of the training step", minimum=0)
    synthetic_dataset_train_batches: int = _flag(
        64008, "training batches of the synthetic data set", minimum=1
    )
    synthetic_dataset_valid_batches: int = _flag(
        1350, "validation batches of the synthetic data set", minimum=1
    )
    synthetic_dataset_cardinalities: tuple[int, ...] = _flag(
        (1000,) * 26, "rows of each table of the synthetic data set", minimum=1
    )
    synthetic_dataset_hotness: tuple[int, ...] = _flag(
        (1,), "ids per row of each synthetic feature; one number serves all", minimum=1
    )
    synthetic_dataset_alpha: float = _flag(
        1.1, "synthetic ids follow a power law, P(id=k) ~ (k+1)^-alpha; 0 is uniform", minimum=0
    )
    synthetic_dataset_num_numerical_features: int = _flag(
        13, "numerical features of the synthetic data set", minimum=0
    )
    synthetic_dataset_use_feature_spec: bool = _flag(
        False, "take the synthetic data set's features from --dataset_path / --feature_spec"
    )


@dataclass(frozen=True)
class ModelConfig:
    """What is trained. A checkpoint remembers this section and restores it."""

    interaction: str = _flag(
        "dot",
        "how features meet: dot (DLRM's dot products, by the fastest implementation there is), "
        "dot_custom (by the fused op), dot_custom_cuda (by the op's GPU kernels and nothing "
        "else), dot_tensorflow (by TensorFlow's own operations) or cross (DCNv2's low-rank cross "
        "layers)",
        choices=("dot", "dot_custom", "dot_custom_cuda", "dot_tensorflow", "cross"),
    )
    embedding_dim: str = _flag(
        "128",
        "columns of the embedding tables: one integer, a list 16,32,... with one a table (cross "
        "only), or a JSON file with such a list",
    )
    bottom_mlp_dims: tuple[int, ...] = _flag(
        (512, 256, 128), "layer sizes of the MLP over the numerical features", minimum=1
    )
    top_mlp_dims: tuple[int, ...] = _flag(
        (1024, 1024, 512, 256, 1), "layer sizes of the MLP over the interactions", minimum=1
    )
    num_cross_layers: int = _flag(3, "number of cross layers (--interaction cross)", minimum=1)
    cross_layer_projection_dim: int = _flag(
        512, "rank of the cross layers' weight (--interaction cross)", minimum=1
    )
    embedding_trainable: bool = _flag(True, "update the embedding tables")
    embedding_zeros_initializer: bool = _flag(
        False, "start the tables at zero: quicker, for benchmarks and debugging"
    )


@dataclass(frozen=True)
class OptimizerConfig:
    """How weights move."""

    optimizer: str = _flag(
        "sgd", "optimizer of the dense weights", choices=("sgd", "adagrad", "adam")
    )
    embedding_optimizer: str = _flag(
        "auto",
        "optimizer of the tables; auto is sgd, adagrad or lazy_adam, to match --optimizer",
        choices=("auto", "sgd", "adagrad", "rowwise_adagrad", "adam", "lazy_adam"),
    )
    learning_rate: float = _flag(24.0, "learning rate after the warm-up", minimum=0)
    embedding_learning_rate: float | None = _flag(
        None, "learning rate of the tables; --learning_rate where not given", minimum=0
    )
    warmup_steps: int = _flag(8000, "steps of linear warm-up", minimum=0)
    decay_start_step: int = _flag(48000, "step at which polynomial decay to zero starts", minimum=0)
    decay_steps: int = _flag(24000, "length of the decay in steps; 0 switches it off", minimum=0)
    decay_power: float = _flag(2.0, "exponent of the polynomial decay", minimum=0)
    beta1: float = _flag(0.9, "Adam: decay of the first moment", minimum=0)
    beta2: float = _flag(0.999, "Adam: decay of the second moment", minimum=0)
    epsilon: float = _flag(1e-7, "Adam and Adagrad: added to the denominator", minimum=0)

    adagrad_initial_accumulator: float = _flag(
        0.1, "Adagrad: start of the sum of squares", minimum=0
    )

    @property
    def sparse_optimizer(self) -> str:
        """The tables' optimizer; `auto` resolved. SGD stays SGD, Adam becomes lazy."""
        if self.embedding_optimizer != "auto":
            return self.embedding_optimizer
        return {"sgd": "sgd", "adagrad": "adagrad", "adam": "lazy_adam"}[self.optimizer]


@dataclass(frozen=True)
class RunConfig:
    """What is done, where, and for how long."""

    mode: str = _flag(
        "train",
        "train, or with a checkpoint: eval (its metrics), predict (its score of every row; labels "
        "may be absent) or inference (its throughput and latency)",
        choices=("train", "eval", "predict", "inference"),
    )
    batch_size: int = _flag(65536, "rows of a training step, over all processes", minimum=1)
    valid_batch_size: int = _flag(65536, "rows of an evaluation or inference step", minimum=1)
    epochs: int = _flag(1, "passes over the training rows", minimum=1)
    max_steps: int = _flag(-1, "stop after this many steps; -1 is no limit", minimum=-1)
    evals_per_epoch: int = _flag(1, "evaluations in an epoch, evenly spaced; 0 is none", minimum=0)
    auc_threshold: float | None = _flag(
        None, "stop training at this AUC and report the time it took", minimum=0
    )
    auc_thresholds: int | None = _flag(
        None, "AUC from this many bins in constant memory instead of the exact one", minimum=2
    )
    print_freq: int = _flag(1000, "steps between log lines", minimum=1)
    warmup_batches: int = _flag(10, "inference: first batches that are not counted", minimum=0)
    seed: int | None = _flag(
        None,
        "seed of weights, shuffling and synthetic rows; drawn and logged where not given",
        minimum=0,
    )
    deterministic: bool = _flag(
        False, "the same bits in every run on the same processors; slower on a GPU"
    )
    run_eagerly: bool = _flag(False, "run without tf.function, to debug")
    tfdata_debug: bool = _flag(False, "run tf.data eagerly, to debug")
    amp: bool = _flag(
        False, "mixed precision: float16 with loss scaling on a GPU, bfloat16 on a CPU"
    )
    loss_scale: float = _flag(65536.0, "static loss scale of float16 training (--amp)", minimum=1)
    xla: bool = _flag(False, "let XLA compile the operations that it can fuse")
    cpu: bool = _flag(False, "use no GPU")
    inter_op_parallelism: int | None = _flag(None, "threads that run operations", minimum=0)
    intra_op_parallelism: int | None = _flag(None, "threads inside an operation", minimum=0)
    run_dir: str | None = _flag(
        None, "folder of this run's log, plots and profile; runs/<recipe>-<time> where not given"
    )
    log_path: str | None = _flag(None, "file of DLLL log lines; <run_dir>/log.json where not given")
    tensorboard_dir: str | None = _flag(None, "also write TensorBoard summaries here")
    predictions_path: str | None = _flag(
        None, "predict: file of the scores, in row order; .parquet, .csv or .npy"
    )
    profiler_start_step: int | None = _flag(None, "step at which to start the profiler", minimum=0)
    profiler_steps: int = _flag(10, "steps that the profiler records", minimum=1)
    profiled_rank: int = _flag(0, "process that is profiled", minimum=0)


@dataclass(frozen=True)
class CheckpointConfig:
    """What is saved when, and where a run starts from."""

    save_checkpoint_path: str | None = _flag(
        None, "folder of this training's checkpoints; one is saved at the end in any case"
    )
    restore_checkpoint_path: str | None = _flag(
        None, "saved model to start from: a checkpoint, or a folder of them (the newest)"
    )
    resume: str | None = _flag(
        None,
        "go on with a training: auto is from the newest checkpoint in --save_checkpoint_path (from "
        "the start where there is none), else the path of a checkpoint or a folder of them",
    )
    checkpoint_every: int | None = _flag(None, "save every so many steps", minimum=1)
    checkpoint_every_minutes: float | None = _flag(None, "save every so many minutes", minimum=0)
    keep_checkpoints: int = _flag(2, "newest checkpoints to keep", minimum=1)
    on_checkpoint_error: str = _flag(
        "continue",
        "what to do when a checkpoint cannot be written (disk full): continue, or stop training",
        choices=("continue", "stop"),
    )
    checkpoint_memory_mb: int = _flag(
        32,
        "memory of each process (MiB) for what is copied and not written yet; with more, training "
        "waits less",
        minimum=8,
    )


@dataclass(frozen=True)
class DistributionConfig:
    """How the embedding tables are spread over processes (horovodrun -np N, mpirun, srun)."""

    plan_only: bool = _flag(False, "print the plan of the tables and stop: nothing is allocated")
    plan_world_size: int = _flag(8, "processes to plan for (--plan_only)", minimum=1)
    plan_device_memory_gb: float | None = _flag(
        None,
        "memory of each device in GB (10^9 bytes) that the plan keeps to; no limit where not given",
        minimum=0,
    )
    plan_host_memory_gb: float | None = _flag(
        None, "host memory of each process in GB for tables that do not fit its device", minimum=0
    )
    model_parallel_input: bool = _flag(
        False,
        "each process reads the ids of its own tables only, of the whole batch; they need no "
        "exchange then (no row-sliced or data-parallel tables)",
    )
    exchange_dtype: str = _flag(
        "auto",
        "dtype of embedding vectors between processes; auto is that of the model's activations",
        choices=("auto", "float32", "bfloat16", "float16"),
    )
    embedding_backend: str = _flag(
        "native",
        "whose distributed tables: ours, NVIDIA Merlin's distributed-embeddings, or that where it "
        "is installed",
        choices=("native", "merlin", "auto"),
    )
    rank_timeout_s: float = _flag(
        600.0, "seconds after which a process that does not answer ends the training", minimum=1
    )
    dist_strategy: str = _flag(
        "auto",
        "placement; auto is cost where that is better than memory_balanced",
        choices=("auto", "cost", "basic", "memory_balanced", "memory_optimized"),
    )
    column_slice_threshold: int | None = _flag(
        None, "elements above which a table is cut into column slices", minimum=1
    )
    row_slice_threshold: int | None = _flag(
        None, "elements from which on a table is cut into row slices, one a process", minimum=1
    )
    data_parallel_threshold: int | None = _flag(
        None, "elements up to which every process holds a copy of a table", minimum=1
    )
    cpu_offloading_threshold_gb: float | None = _flag(
        None, "GB of tables on a device above which the largest go to host memory", minimum=0
    )


@dataclass(frozen=True)
class Config:
    """All that was asked for.

    Attributes:
      recipe: name of the recipe, `dlrm` or `dcnv2`.
      given: names of the flags that stood on the command line (the others are defaults).
    """

    recipe: str
    given: frozenset[str] = frozenset()
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    run: RunConfig = RunConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    distribution: DistributionConfig = DistributionConfig()

    def flat(self) -> dict[str, Any]:
        """All flags and their values in one dictionary, for the log and the checkpoint."""
        return {name: getattr(getattr(self, section), name) for name, section in _homes().items()}

    def replace(self, **values: Any) -> "Config":
        """A copy in which the named flags have other values; checked again."""
        sections: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            sections.setdefault(_homes()[name], {})[name] = value
        changed = {
            section: dataclasses.replace(getattr(self, section), **new)
            for section, new in sections.items()
        }
        config = dataclasses.replace(self, **changed)
        check(config)
        return config


SECTIONS: dict[str, type] = {
    "data": DataConfig,
    "model": ModelConfig,
    "optimizer": OptimizerConfig,
    "run": RunConfig,
    "checkpoint": CheckpointConfig,
    "distribution": DistributionConfig,
}


def _homes() -> dict[str, str]:
    return {
        field.name: section
        for section, kind in SECTIONS.items()
        for field in dataclasses.fields(kind)
    }


def kinds_of(name: str) -> tuple[type, ...]:
    """The Python types that a flag's value may have."""
    hint = typing.get_type_hints(SECTIONS[_homes()[name]])[name]
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = tuple(typing.get_origin(kind) or kind for kind in kinds)
    return (*kinds, int) if float in kinds else kinds


def define_flags(defaults: Mapping[str, Any] | None = None) -> flags.FlagValues:
    """Defines all flags, with a recipe's own defaults, in a fresh absl `FlagValues`."""
    values = flags.FlagValues()
    defaults = dict(defaults or {})
    for section, kind in SECTIONS.items():
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            default = defaults.pop(field.name, field.default)
            _define(values, section, field, hints[field.name], default)
    if defaults:
        raise ValueError(f"defaults for flags that do not exist: {', '.join(sorted(defaults))}")
    return values


def _define(values: flags.FlagValues, section: str, field, hint, default) -> None:
    options = {"flag_values": values, "module_name": section}
    help_text, choices = field.metadata["help"], field.metadata["choices"]
    if isinstance(hint, types.UnionType):
        (hint,) = (kind for kind in typing.get_args(hint) if kind is not type(None))
    if choices:
        flags.DEFINE_enum(field.name, default, list(choices), help_text, **options)
    elif hint is bool:
        flags.DEFINE_bool(field.name, default, help_text, **options)
    elif hint is int:
        flags.DEFINE_integer(field.name, default, help_text, **options)
    elif hint is float:
        flags.DEFINE_float(field.name, default, help_text, **options)
    elif hint is str:
        flags.DEFINE_string(field.name, default, help_text, **options)
    else:
        flags.DEFINE_list(field.name, [str(item) for item in default], help_text, **options)


def parse(argv: Sequence[str], recipe: str, defaults: Mapping[str, Any] | None = None) -> Config:
    """Reads a command line into a `Config`.

    Args:
      argv: the command line, program name first.
      recipe: name of the recipe that runs.
      defaults: flags whose default differs in this recipe.

    Raises:
      ValueError: an unknown flag, a value of the wrong kind or out of range, a left-over
        argument, or flags that contradict each other; the message says the way out.
    """
    values = define_flags(defaults)
    try:
        rest = values(list(argv))
    except flags.Error as error:
        raise ValueError(f"{error} (see --help)") from None
    if len(rest) > 1:
        raise ValueError(
            f"{rest[1]!r} is no flag; flags start with --, lists are written without spaces: a,b,c"
        )
    sections = {}
    for section, kind in SECTIONS.items():
        read = {}
        for field in dataclasses.fields(kind):
            value = values[field.name].value
            if isinstance(value, list):
                value = _integers(field.name, value)
            _check_range(field, value)
            if field.name == "embedding_dim":
                value = _read_embedding_dim(value)
            read[field.name] = value
        sections[section] = kind(**read)
    given = frozenset(name for name in _homes() if values[name].present)
    config = Config(recipe=recipe, given=given, **sections)
    check(config, complete=not (config.checkpoint.resume and config.run.mode == "train"))
    return config


def usage(defaults: Mapping[str, Any] | None = None) -> str:
    """The text of `--help`: every flag with its default, section by section."""
    values = define_flags(defaults)
    lines = []
    for section, kind in SECTIONS.items():
        lines.append(f"\n{section}: {kind.__doc__.splitlines()[0]}")
        for field in dataclasses.fields(kind):
            default = values[field.name].default
            shown = ",".join(default) if isinstance(default, list) else default
            choices = "|".join(field.metadata["choices"])
            lines.append(
                f"  --{field.name}{f' {choices}' if choices else ''}\n"
                f"      {field.metadata['help']} (default: {shown})"
            )
    return "\n".join(lines)


def _integers(name: str, items: Sequence[str]) -> tuple[int, ...]:
    try:
        return tuple(int(item) for item in items if item.strip())
    except ValueError:
        raise ValueError(
            f"--{name} takes integers separated by commas, got {','.join(items)!r}"
        ) from None


def _check_range(field, value) -> None:
    minimum = field.metadata["minimum"]
    if minimum is None or value is None:
        return
    for item in value if isinstance(value, tuple) else (value,):
        if not item >= minimum:
            raise ValueError(f"--{field.name} must be at least {minimum}, got {item}")


def meaning(name: str, value: Any) -> Any:
    """What a flag's value says of the model: the same for all ways to compute the same."""
    return "dot" if name == "interaction" and str(value).startswith("dot_") else value


def _with_adam(config: "Config") -> bool:
    return any("adam" in name for name in _optimizers(config))


def _with_adagrad(config: "Config") -> bool:
    return any("adagrad" in name for name in _optimizers(config))


def _optimizers(config: "Config") -> tuple[str, str]:
    return config.optimizer.optimizer, config.optimizer.embedding_optimizer


def _draws_from_flags(config: "Config") -> bool:
    data = config.data
    return data.dataset_type == "synthetic" and not data.synthetic_dataset_use_feature_spec


# Flags that only mean something together with others: given without them they would be ignored.
_NEEDS: tuple[tuple[tuple[str, ...], str, Any], ...] = (
    (("shuffle_window_rows",), "--shuffle", lambda c: c.data.shuffle),
    (
        ("num_cross_layers", "cross_layer_projection_dim"),
        "--interaction cross",
        lambda c: c.model.interaction == "cross",
    ),
    (("loss_scale",), "--amp", lambda c: c.run.amp),
    (
        ("profiler_steps", "profiled_rank"),
        "--profiler_start_step",
        lambda c: c.run.profiler_start_step is not None,
    ),
    (
        ("shuffle", "eval_mapping"),
        "--dataset_type tf_raw or split_tfrecords",
        lambda c: c.data.dataset_type != "synthetic",
    ),
    (
        (
            "synthetic_dataset_train_batches",
            "synthetic_dataset_valid_batches",
            "synthetic_dataset_use_feature_spec",
        ),
        "--dataset_type synthetic",
        lambda c: c.data.dataset_type == "synthetic",
    ),
    (
        (
            "synthetic_dataset_cardinalities",
            "synthetic_dataset_hotness",
            "synthetic_dataset_alpha",
            "synthetic_dataset_num_numerical_features",
        ),
        "--dataset_type synthetic and without --synthetic_dataset_use_feature_spec",
        _draws_from_flags,
    ),
    (
        ("dataset_path", "feature_spec"),
        "--dataset_type tf_raw, split_tfrecords or --synthetic_dataset_use_feature_spec",
        lambda c: not _draws_from_flags(c),
    ),
    (
        ("embedding_optimizer", "embedding_learning_rate"),
        "--embedding_trainable",
        lambda c: c.model.embedding_trainable,
    ),
    (("beta1", "beta2"), "--optimizer or --embedding_optimizer adam", _with_adam),
    (
        ("adagrad_initial_accumulator",),
        "--optimizer or --embedding_optimizer adagrad",
        _with_adagrad,
    ),
    (
        ("epsilon",),
        "--optimizer or --embedding_optimizer adam or adagrad",
        lambda c: _with_adam(c) or _with_adagrad(c),
    ),
    (("plan_world_size",), "--plan_only", lambda c: c.distribution.plan_only),
    (
        ("rank_timeout_s", "embedding_backend"),
        "a model, not with --plan_only",
        lambda c: not c.distribution.plan_only,
    ),
    (
        ("row_slice_threshold", "data_parallel_threshold"),
        "ids of all tables on every process, not with --model_parallel_input",
        lambda c: not c.distribution.model_parallel_input,
    ),
    (
        ("restore_checkpoint_path", "save_checkpoint_path", "resume"),
        "a model, not with --plan_only",
        lambda c: not c.distribution.plan_only,
    ),
    (
        (
            *("checkpoint_every", "checkpoint_every_minutes", "keep_checkpoints"),
            *("on_checkpoint_error", "checkpoint_memory_mb"),
        ),
        "--save_checkpoint_path or --resume",
        lambda c: c.checkpoint.save_checkpoint_path or c.checkpoint.resume,
    ),
    (("predictions_path",), "--mode predict", lambda c: c.run.mode == "predict"),
    (("xla",), "compiled functions, not with --run_eagerly", lambda c: not c.run.run_eagerly),
)

# Flags of the training command that the other modes leave alone. They are no error, so that
# `--restore_checkpoint_path CHECKPOINT --mode eval` can be appended to the command that trained.
_TRAINING_ONLY = frozenset(
    {
        *(field.name for field in dataclasses.fields(OptimizerConfig)),
        *("batch_size", "epochs", "evals_per_epoch", "auc_threshold", "print_freq"),
        *("save_checkpoint_path", "resume", "checkpoint_every", "checkpoint_every_minutes"),
        *("keep_checkpoints", "on_checkpoint_error", "checkpoint_memory_mb"),
        *("profiler_start_step", "profiler_steps", "profiled_rank"),
        *("shuffle", "shuffle_window_rows", "synthetic_dataset_train_batches"),
        *("embedding_trainable", "embedding_zeros_initializer"),
    }
)


def unused(config: Config) -> list[str]:
    """The given flags that are not read in this `--mode` or without evaluations."""
    names = set()
    if config.run.mode != "train":
        names |= _TRAINING_ONLY
    if config.run.mode in ("eval", "predict"):
        names.add("max_steps")
    if config.run.mode == "predict":
        names.add("auc_thresholds")
    if config.run.mode != "inference":
        names.add("warmup_batches")
    if config.run.mode == "train" and not config.run.evals_per_epoch:
        names |= {"eval_mapping", "valid_batch_size", "auc_thresholds"}
    return sorted(names & config.given)


def check(config: Config, complete: bool = True) -> None:
    """Checks flags against each other. Raises ValueError that names both and the way out.

    Args:
      config: the flags.
      complete: False where more will come from the checkpoint of a resumed training.
    """
    if complete:
        _check_needs(config)
    data, model, optimizer, run = config.data, config.model, config.optimizer, config.run
    saved = config.checkpoint
    wants_model = run.mode != "train" and not config.distribution.plan_only
    if wants_model and not saved.restore_checkpoint_path:
        raise ValueError(
            f"--mode {run.mode} needs a trained model: give its folder with "
            "--restore_checkpoint_path (train one with --save_checkpoint_path)"
        )
    if saved.resume and run.mode == "train":
        if saved.restore_checkpoint_path:
            raise ValueError(
                "--resume goes on with a training, --restore_checkpoint_path starts a new one from "
                "its weights: give one of them"
            )
        if saved.resume == "auto" and not saved.save_checkpoint_path:
            raise ValueError(
                "--resume auto looks for checkpoints in --save_checkpoint_path, which is missing; "
                "or give the path of a checkpoint"
            )
    if saved.checkpoint_every_minutes == 0:
        raise ValueError("--checkpoint_every_minutes must be above 0, got 0; or leave it out")
    if run.mode == "predict" and not run.predictions_path:
        raise ValueError(
            "--mode predict needs a file for the scores: give --predictions_path with a name that "
            "ends in .parquet, .csv or .npy"
        )
    if run.max_steps == 0:
        raise ValueError("--max_steps must be -1 (no limit) or at least 1, got 0")
    if not model.top_mlp_dims or model.top_mlp_dims[-1] != 1:
        raise ValueError(
            "--top_mlp_dims must end with 1, the click logit, got "
            f"{','.join(map(str, model.top_mlp_dims)) or 'nothing'}"
        )
    if run.auc_threshold is not None and not 0 < run.auc_threshold <= 1:
        raise ValueError(f"--auc_threshold is an AUC in (0, 1], got {run.auc_threshold}")
    if run.auc_threshold is not None and run.evals_per_epoch == 0:
        raise ValueError(
            "--auc_threshold is only looked at when the model is evaluated: "
            "with it, set --evals_per_epoch to at least 1"
        )
    if data.shuffle_window_rows % 8192:
        raise ValueError(
            f"--shuffle_window_rows must be a multiple of 8192, got {data.shuffle_window_rows}"
        )
    if optimizer.decay_power == 0:
        raise ValueError("--decay_power must be above 0, got 0; --decay_steps 0 switches decay off")
    for name in ("beta1", "beta2"):
        if getattr(optimizer, name) >= 1:
            raise ValueError(f"--{name} must be below 1, got {getattr(optimizer, name)}")


def _check_needs(config: Config) -> None:
    """Raises ValueError for flags that would not be read, and where nothing says which rows."""
    for names, needed, holds in _NEEDS:
        for name in names:
            if name in config.given and not holds(config):
                raise ValueError(f"--{name} is only read with {needed}; or leave --{name} out")
    if not _draws_from_flags(config) and not config.data.dataset_path:
        raise ValueError(
            "--dataset_path is missing: give the folder that holds the feature spec, or train on "
            "generated rows with --dataset_type synthetic"
        )


def _read_embedding_dim(text: str) -> str:
    """`--embedding_dim` as text: the content of a JSON file with a list, or the text itself."""
    if not os.path.exists(text):
        return text
    with open(text) as file:
        try:
            items = json.load(file)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"--embedding_dim {text}: not a JSON file ({error})") from None
    return ",".join(str(item) for item in (items if isinstance(items, list) else [items]))


def parse_embedding_dims(text: str, num_tables: int) -> tuple[int, ...]:
    """Reads `--embedding_dim`: one integer for all tables, or a list.

    Raises:
      ValueError: not integers, not positive, or not one a table.
    """
    try:
        dims = [int(item) for item in text.split(",")]
    except ValueError:
        raise ValueError(
            f"--embedding_dim must be an integer, a list like 16,32 or a JSON file with a list of "
            f"integers, got {text!r}"
        ) from None
    if len(dims) == 1:
        dims = dims * num_tables
    if len(dims) != num_tables:
        raise ValueError(
            f"--embedding_dim lists {len(dims)} sizes, the data set has {num_tables} categorical "
            "features: give one integer for all, or one a feature"
        )
    if any(dim < 1 for dim in dims):
        raise ValueError(f"--embedding_dim must be at least 1, got {min(dims)}")
    return tuple(dims)
