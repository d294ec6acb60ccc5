"""Every command-line flag, once: a field of a section below *is* the flag of the same name."""

import dataclasses
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Recipes whose model is of the kind that a flag is for.
RANKING = ("dlrm", "dcnv2")
SEQUENTIAL = ("sim",)
COLLABORATIVE = ("ncf",)

# Values of --preset.
AUTO, SMALL, TERABYTE = "auto", "small", "terabyte"


def _flag(
    default: Any,
    help_text: str,
    choices: Sequence[str] = (),
    minimum: float | None = None,
    recipes: Sequence[str] = (),
    spaced: bool = False,
):
    """A flag.

    Args:
      recipes: names those that have it; none: all.
      spaced: a list's items may also be written apart: `--layers 64 32`.
    """
    metadata = {"help": help_text, "choices": tuple(choices), "minimum": minimum}
    metadata |= {"recipes": tuple(recipes), "spaced": spaced}
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
        recipes=RANKING,
    )
    eval_mapping: str = _flag(
        "auto",
        "which rows evaluation reads; auto is validation (else test) while training and test (else "
        "validation) in the other modes",
        choices=("auto", "train", "validation", "test"),
    )
    shuffle: bool = _flag(
        True,
        "shuffle the training samples, in a new order each epoch (a function of --seed); "
        "--noshuffle reads them in file order",
        recipes=RANKING + SEQUENTIAL,
    )
    shuffle_window_rows: int = _flag(
        524_288,
        "samples that --shuffle mixes freely, a multiple of 8192",
        minimum=1,
        recipes=RANKING,
    )
    prefetch_batches: int = _flag(
        2, "batches read ahead of the training step", minimum=0, recipes=RANKING + SEQUENTIAL
    )
    prefetch_test_size: int = _flag(
        2, "batches read ahead of the evaluation", minimum=0, recipes=SEQUENTIAL
    )
    num_parallel_calls: int | None = _flag(
        None,
        "batches that are read at the same time; half the process's cores, at least 2, where not "
        "given",
        minimum=1,
        recipes=SEQUENTIAL,
    )
    prebatch_train_size: int = _flag(
        0,
        "rows of a record of the training files; 0: what the data set says",
        minimum=0,
        recipes=SEQUENTIAL,
    )
    prebatch_test_size: int = _flag(
        0,
        "rows of a record of the other files; 0: what the data set says",
        minimum=0,
        recipes=SEQUENTIAL,
    )
    drop_remainder: bool = _flag(
        False, "leave out the last training batch of an epoch if it is short", recipes=SEQUENTIAL
    )
    repeat_count: int = _flag(
        0,
        "passes over the training rows that make an epoch; 0 is one",
        minimum=0,
        recipes=SEQUENTIAL,
    )
    disable_cache: bool = _flag(
        False, "decode the rows anew in each epoch instead of keeping them", recipes=SEQUENTIAL
    )
    synthetic_dataset_train_batches: int = _flag(
        64008, "training batches of the synthetic data set", minimum=1, recipes=RANKING
    )
    synthetic_dataset_valid_batches: int = _flag(
        1350, "validation batches of the synthetic data set", minimum=1, recipes=RANKING
    )
    synthetic_dataset_cardinalities: tuple[int, ...] = _flag(
        (1000,) * 26, "rows of each table of the synthetic data set", minimum=1, recipes=RANKING
    )
    synthetic_dataset_hotness: tuple[int, ...] = _flag(
        (1,),
        "ids per row of each synthetic feature; one number serves all",
        minimum=1,
        recipes=RANKING,
    )
    synthetic_dataset_alpha: float = _flag(
        1.1,
        "synthetic ids follow a power law, P(id=k) ~ (k+1)^-alpha; 0 is uniform",
        minimum=0,
        recipes=RANKING,
    )
    synthetic_dataset_num_numerical_features: int = _flag(
        13, "numerical features of the synthetic data set", minimum=0, recipes=RANKING
    )
    synthetic_dataset_use_feature_spec: bool = _flag(
        False,
        "take the synthetic data set's features from --dataset_path / --feature_spec",
        recipes=RANKING,
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
        recipes=RANKING,
    )
    embedding_dim: str = _flag(
        "128",
        "columns of the embedding tables: one integer, a list 16,32,... with one a table "
        "(with cross layers), or a JSON file with such a list",
        recipes=RANKING + SEQUENTIAL,
    )
    bottom_mlp_dims: tuple[int, ...] = _flag(
        (512, 256, 128),
        "layer sizes of the MLP over the numerical features",
        minimum=1,
        recipes=RANKING,
    )
    top_mlp_dims: tuple[int, ...] = _flag(
        (1024, 1024, 512, 256, 1),
        "layer sizes of the MLP over the interactions",
        minimum=1,
        recipes=RANKING,
    )
    num_cross_layers: int = _flag(
        3, "number of cross layers (--interaction cross)", minimum=1, recipes=RANKING
    )
    cross_layer_projection_dim: int = _flag(
        512, "rank of the cross layers' weight (--interaction cross)", minimum=1, recipes=RANKING
    )
    embedding_trainable: bool = _flag(True, "update the embedding tables")
    embedding_zeros_initializer: bool = _flag(
        False, "start the tables at zero: quicker, for benchmarks and debugging", recipes=RANKING
    )


@dataclass(frozen=True)
class SequenceConfig:
    """What is trained on histories. A checkpoint remembers this section and restores it."""

    model_type: str = _flag(
        "sim",
        "sim (search in the long history, DIEN over the short one), dien, din, or no_history (the "
        "user and the target item alone: what a history is worth is measured against it)",
        choices=("sim", "dien", "din", "no_history"),
        recipes=SEQUENTIAL,
    )
    stage_one_mlp_dims: tuple[int, ...] = _flag(
        (200,),
        "hidden layers of the MLP over the search's result (sim)",
        minimum=1,
        recipes=SEQUENTIAL,
    )
    stage_two_mlp_dims: tuple[int, ...] = _flag(
        (200, 80), "hidden layers of the MLP that gives the score", minimum=1, recipes=SEQUENTIAL
    )
    aux_mlp_dims: tuple[int, ...] = _flag(
        (100, 50),
        "hidden layers of the MLP of DIEN's auxiliary loss (sim, dien)",
        minimum=1,
        recipes=SEQUENTIAL,
    )
    long_seq_length: int = _flag(
        90,
        "first steps of a history that are searched, the others are the short history (sim)",
        minimum=1,
        recipes=SEQUENTIAL,
    )
    gsu: str = _flag(
        "soft",
        "how the long history is searched: soft by inner products, hard by the target's last "
        "feature, its category (sim)",
        choices=("soft", "hard"),
        recipes=SEQUENTIAL,
    )
    gsu_top_k: int = _flag(50, "items that the search selects (sim)", minimum=1, recipes=SEQUENTIAL)
    din_attention: str = _flag(
        "dot",
        "how an item of the history is weighed: dot by inner product, unit by DIN's activation "
        "unit (din)",
        choices=("dot", "unit"),
        recipes=SEQUENTIAL,
    )
    dropout_rate: float = _flag(
        -1.0,
        "share of the MLPs' hidden units that a training step drops; -1 drops none",
        minimum=-1,
        recipes=SEQUENTIAL,
    )


@dataclass(frozen=True)
class CollaborativeConfig:
    """What is trained on interactions of users with items, and how it is judged."""

    model_type: str = _flag(
        "neumf",
        "neumf (both branches), gmf (the product of user and item vectors) or mlp (layers over "
        "them)",
        choices=("neumf", "gmf", "mlp"),
        recipes=COLLABORATIVE,
    )
    factors: int = _flag(
        64, "numbers in a user's and an item's vector of GMF", minimum=1, recipes=COLLABORATIVE
    )
    layers: tuple[int, ...] = _flag(
        (256, 256, 128, 64),
        "widths of the MLP: that of its input, a user's and an item's vector side by side, then of "
        "its layers",
        minimum=1,
        recipes=COLLABORATIVE,
        spaced=True,
    )
    dropout: float = _flag(
        0.5,
        "share of each layer's units that a training step drops; 0 drops none",
        minimum=0,
        recipes=COLLABORATIVE,
    )
    negative_samples: int = _flag(
        4,
        "items drawn for each interaction as examples of what did not happen, anew in each epoch",
        minimum=1,
        recipes=COLLABORATIVE,
    )
    negative_exponent: float = _flag(
        0.0,
        "draw these items in proportion to their interactions to this power: 0 draws all alike; "
        "the higher, the less the model favours popular items",
        minimum=0,
        recipes=COLLABORATIVE,
    )
    valid_negative: int = _flag(
        100,
        "items among which a held-out one must be found: the first so many that the data set "
        "stores (all, if it has fewer and this is not given), or as many drawn where it has none",
        minimum=1,
        recipes=COLLABORATIVE,
    )
    topk: int = _flag(
        10,
        "places of a ranking that count: held-out items there are hits",
        minimum=1,
        recipes=COLLABORATIVE,
    )
    threshold: float = _flag(
        1.0,
        "stop training at this hit rate and report the time it took (time_to_target)",
        minimum=0,
        recipes=COLLABORATIVE,
    )
    grads_accumulated: int = _flag(
        1,
        "batches whose gradients are averaged before weights move; memory is that of one",
        minimum=1,
        recipes=COLLABORATIVE,
    )
    pretrained_gmf: str | None = _flag(
        None,
        "trained GMF to start NeuMF from: its checkpoint, or the folder",
        recipes=COLLABORATIVE,
    )
    pretrained_mlp: str | None = _flag(
        None, "trained MLP to start NeuMF from, likewise", recipes=COLLABORATIVE
    )
    alpha: float = _flag(
        0.5,
        "weight of GMF's output at such a start; 1 - alpha is the MLP's",
        minimum=0,
        recipes=COLLABORATIVE,
    )
    checkpoint_dir: str | None = _flag(
        None,
        "folder of checkpoints: training saves there and keeps its best (--keep_best), other modes "
        "read the best",
        recipes=COLLABORATIVE,
    )
    opt_level: str | None = _flag(
        None,
        "O2 is --amp, O0 is --noamp; O2 on a GPU and O0 on a CPU where neither is given",
        choices=("O0", "O2"),
        recipes=COLLABORATIVE,
    )
    local_rank: int | None = _flag(
        None,
        "number of this process on its machine; must be what the launcher (horovodrun, mpirun, "
        "srun) made it",
        minimum=0,
        recipes=COLLABORATIVE,
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
    weight_decay: float = _flag(
        0.0,
        "share of a weight that a step takes away, times the learning rate (AdamW's decoupled "
        "decay); of tables only rows that occur in the batch, all with --embedding_optimizer adam",
        minimum=0,
    )
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
    preset: str = _flag(
        AUTO,
        "values of flags that are not given: terabyte is the defaults shown here, those of the "
        "published recipes; small is for less data and follows from the number of training "
        "samples; auto chooses by that number",
        choices=(AUTO, SMALL, TERABYTE),
    )
    batch_size: int = _flag(65536, "rows of a training step, over all processes", minimum=1)
    valid_batch_size: int | None = _flag(
        65536, "rows of an evaluation or inference step; None: --batch_size", minimum=1
    )
    epochs: int = _flag(1, "passes over the training rows", minimum=1)
    max_steps: int = _flag(-1, "stop after this many steps; -1 is no limit", minimum=-1)
    evals_per_epoch: int = _flag(1, "evaluations in an epoch, evenly spaced; 0 is none", minimum=0)
    auc_threshold: float | None = _flag(
        None,
        "stop training at this AUC and report the time it took",
        minimum=0,
        recipes=RANKING + SEQUENTIAL,
    )
    auc_thresholds: int | None = _flag(
        None,
        "AUC from this many bins in constant memory instead of the exact one",
        minimum=2,
        recipes=RANKING + SEQUENTIAL,
    )
    early_stopping: int | None = _flag(
        None,
        "stop training after this many evaluations in a row without a higher AUC (NCF: hit rate); "
        "with --save_checkpoint_path the best checkpoint is kept as by --keep_best",
        minimum=1,
    )
    print_freq: int = _flag(
        1000, "steps between log lines; the first ones are at 10, 20, 50, 100, ... steps", minimum=1
    )
    evaluate_training_rows: bool = _flag(
        True, "evaluate on the training rows, too (train_auc, train_loss)", recipes=SEQUENTIAL
    )
    warmup_batches: int = _flag(
        10, "batches that are not counted yet (--mode inference, --benchmark)", minimum=0
    )
    benchmark: bool = _flag(
        False,
        "measure --benchmark_steps steps after --warmup_batches, without evaluation; the rows are "
        "read again as often as that needs",
        recipes=SEQUENTIAL,
    )
    benchmark_steps: int = _flag(
        200, "steps that are measured (--benchmark)", minimum=1, recipes=SEQUENTIAL
    )
    seed: int | None = _flag(
        None,
        "seed of weights, shuffling and synthetic rows; drawn and logged where not given or -1",
        minimum=-1,
    )
    deterministic: bool = _flag(
        False, "the same bits in every run on the same processors; slower on a GPU"
    )
    run_eagerly: bool = _flag(False, "run without tf.function, to debug")
    tfdata_debug: bool = _flag(False, "run tf.data eagerly, to debug")
    amp: bool | None = _flag(
        False,
        "mixed precision: float16 with loss scaling on a GPU, bfloat16 on a CPU",
    )
    loss_scale: str = _flag(
        "65536",
        "loss scale of float16 training (--amp): a number of at least 1, or dynamic, which starts "
        "at 32768, halves at a non-finite gradient and doubles after 2,000 steps without one",
    )
    xla: bool = _flag(False, "let XLA compile the operations that it can fuse")
    cpu: bool = _flag(False, "use no GPU")
    affinity: str = _flag(
        "disabled",
        "cores that each process may use: those of its GPU's socket (socket), one of them "
        "(socket_single), one that no other process has (socket_single_unique), or a share of them "
        "of its own, dealt in turns (socket_unique_interleaved) or in runs "
        "(socket_unique_continuous)",
        choices=(
            *("disabled", "socket", "socket_single", "socket_single_unique"),
            *("socket_unique_interleaved", "socket_unique_continuous"),
        ),
    )
    inter_op_parallelism: int | None = _flag(None, "threads that run operations", minimum=0)
    intra_op_parallelism: int | None = _flag(None, "threads inside an operation", minimum=0)
    run_dir: str | None = _flag(
        None, "folder of this run's log, plots and profile; runs/<recipe>-<time> where not given"
    )
    log_filename: str = _flag("log.json", "file of DLLL log lines in --run_dir")
    log_path: str | None = _flag(
        None, "file of DLLL log lines anywhere, in place of --log_filename"
    )
    rank_logs: str | None = _flag(
        None,
        "folder with a log of each process, rank-00003.log, of all that it and its libraries say, "
        "and of its crash; it still says so on the terminal",
    )
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
    keep_best: bool | None = _flag(
        None,
        "save after each evaluation that is the best so far, and keep that checkpoint, too: the "
        "link `best` in --save_checkpoint_path; None: with --early_stopping and NCF's "
        "--checkpoint_dir",
    )
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
    plan_ranks_per_machine: int = _flag(
        8,
        "of these so many run on each machine, and on the last one what is left (--plan_only)",
        minimum=1,
    )
    plan_device_memory_gb: float | None = _flag(
        None,
        "memory of each device in GB (10^9 bytes) that the plan keeps to, less 15 %, instead of "
        "the memory that is read (of the GPU, without one the available memory divided by the "
        "processes; --plan_only assumes 80); the plan then also cuts tables to even out the work",
        minimum=0,
    )
    plan_host_memory_gb: float | None = _flag(
        None,
        "host memory of each process in GB for tables that do not fit its device, instead of 85 % "
        "of the available memory divided by the processes (with GPUs; --plan_only assumes none)",
        minimum=0,
    )
    model_parallel_input: bool = _flag(
        False,
        "each process reads the ids of its own tables only, of the whole batch; they need no "
        "exchange then (no row-sliced or data-parallel tables)",
        recipes=RANKING,
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
        recipes=RANKING,
    )
    rank_timeout_s: float = _flag(
        600.0, "seconds after which a process that does not answer ends the training", minimum=1
    )
    elastic: bool = _flag(
        False,
        "go on from the last checkpoint with the processes that are left when some are lost, and "
        "with more when hosts join (horovodrun --min-np N --max-np M --host-discovery-script FILE)",
    )
    dist_strategy: str = _flag(
        "auto",
        "placement; auto is cost where that is better than memory_balanced",
        choices=("auto", "cost", "basic", "memory_balanced", "memory_optimized"),
    )
    column_slice_threshold: int | None = _flag(
        None,
        "elements above which a table is cut into column slices; where not given, tables are cut "
        "that do not fit the memory otherwise",
        minimum=1,
    )
    row_slice_threshold: int | None = _flag(
        None,
        "elements from which on a table is cut into row slices, one per process; where not given, "
        "the largest tables are if they fit the memory in no other way",
        minimum=1,
    )
    data_parallel_threshold: int | None = _flag(
        None, "elements up to which every process holds a copy of a table", minimum=1
    )
    cpu_offloading_threshold_gb: float | None = _flag(
        None, "GB of tables on a device above which the largest go to host memory", minimum=0
    )


SECTIONS: dict[str, type] = {
    "data": DataConfig,
    "model": ModelConfig,
    "sequence": SequenceConfig,
    "collaborative": CollaborativeConfig,
    "optimizer": OptimizerConfig,
    "run": RunConfig,
    "checkpoint": CheckpointConfig,
    "distribution": DistributionConfig,
}


def homes(recipe: str) -> dict[str, str]:
    """The section of each flag that a recipe has, and of the others.

    Two sections may have a flag of one name, for different recipes.
    """
    found: dict[str, str] = {}
    for section, kind in SECTIONS.items():
        for field in dataclasses.fields(kind):
            if has_flag(recipe, field) or field.name not in found:
                found[field.name] = section
    return found


def kinds_of(recipe: str, name: str) -> tuple[type, ...]:
    """The Python types that the value of a recipe's flag may have."""
    hint = typing.get_type_hints(SECTIONS[homes(recipe)[name]])[name]
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = tuple(typing.get_origin(kind) or kind for kind in kinds)
    return (*kinds, int) if float in kinds else kinds


def has_flag(recipe: str, field: dataclasses.Field) -> bool:
    """Whether a recipe has a flag."""
    recipes = field.metadata["recipes"]
    return not recipes or recipe in recipes
