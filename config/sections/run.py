"""Flags of a run: mode, length, evaluation, precision, device, logs and profile."""

import functools
import math
from dataclasses import dataclass

from config.flag import (
    RANKING,
    SEQUENTIAL,
    TRAIN,
    TRAIN_OR_INFERENCE,
    Need,
    Rules,
    Values,
    excludes,
    flag,
    requires,
)

# Values of --preset.
AUTO, SMALL, TERABYTE = "auto", "small", "terabyte"


def evaluates(flags: Values) -> bool:
    """Returns whether the run reads samples outside training steps."""
    has_evaluations = flags.value("evals_per_epoch") > 0 and not flags.value("benchmark")
    return flags.value("mode") != "train" or has_evaluations


def _computes_auc(flags: Values) -> bool:
    has_model = flags.value("mode") != "inference" or flags.value("restore_checkpoint_path")
    return evaluates(flags) and _is_full_run(flags) and bool(has_model)


def _is_full_run(flags: Values) -> bool:
    return not flags.value("benchmark")


def _measures(flags: Values) -> bool:
    return flags.value("mode") == "inference" or bool(flags.value("benchmark"))


def _trains_in_batches(flags: Values) -> bool:
    """Returns whether --batch_size is read: it is also the default of --valid_batch_size."""
    is_default = flags.flag_set in SEQUENTIAL and "valid_batch_size" not in flags.explicit
    return flags.value("mode") == "train" or is_default


def read_loss_scale(text: str) -> float | str:
    """Returns the number of `--loss_scale`, or "dynamic".

    Raises:
        ValueError: the text is neither, or the number is below 1.
    """
    if text == "dynamic":
        return text
    try:
        scale = float(text)
    except ValueError:
        scale = math.nan
    if not 1 <= scale < math.inf:
        raise ValueError(
            f"--loss_scale: expected dynamic or a number of at least 1, got {text}; pass, for "
            "example, --loss_scale dynamic or --loss_scale 65536"
        )
    return scale


_training = functools.partial(Rules, modes=TRAIN)


@dataclass(frozen=True)
class RunConfig:
    """Mode, length, evaluation, precision, device, logs and profile."""

    mode: str = Rules(choices=("train", "eval", "predict", "inference")).flag(
        "train",
        "train, or with a checkpoint: eval (report its metrics), predict (write a score per "
        "sample; labels may be absent) or inference (measure throughput and latency)",
    )
    preset: str = _training(choices=(AUTO, SMALL, TERABYTE)).flag(
        AUTO,
        "values of flags that are not passed: terabyte (the defaults shown here, those of the "
        "published recipes), small (for smaller data sets; computed from the number of training "
        "samples) or auto (chosen by that number)",
    )
    batch_size: int = Rules(at_least=1, read_when=_trains_in_batches).flag(
        65536, "global batch size of training"
    )
    valid_batch_size: int | None = Rules(at_least=1, read_when=evaluates).flag(
        65536, "global batch size of evaluation and inference; None: --batch_size"
    )
    epochs: int = _training(at_least=1, read_when=_is_full_run).flag(
        1, "passes over the training samples"
    )
    max_steps: int = Rules(at_least=1, special=-1, modes=TRAIN_OR_INFERENCE).flag(
        -1, "number of steps after which the run ends; -1: no limit"
    )
    evals_per_epoch: int = _training(at_least=0, read_when=_is_full_run).flag(
        1, "evaluations per epoch, evenly spaced; 0: none"
    )
    auc_threshold: float | None = _training(above=0, at_most=1, recipes=RANKING + SEQUENTIAL).flag(
        None, "AUC at which training stops and the time to reach it is reported"
    )
    auc_thresholds: int | None = Rules(
        at_least=2,
        recipes=RANKING + SEQUENTIAL,
        modes=("train", "eval", "inference"),
        read_when=_computes_auc,
    ).flag(
        None, "number of bins of an approximate AUC in constant memory; by default the AUC is exact"
    )
    early_stopping: int | None = _training(at_least=1).flag(
        None,
        "number of consecutive evaluations without a better AUC (NCF: hit rate) after which "
        "training stops; with --save_checkpoint_path the best checkpoint is kept, as with "
        "--keep_best",
    )
    print_freq: int = Rules(at_least=1, modes=TRAIN_OR_INFERENCE).flag(
        1000, "steps between log lines; the first ones are at 10, 20, 50, 100, ... steps"
    )
    evaluate_training_rows: bool = _training(recipes=SEQUENTIAL, read_when=evaluates).flag(
        True, "also evaluate on the training samples (train_auc, train_loss)"
    )
    warmup_batches: int = Rules(at_least=0, read_when=_measures).flag(
        10, "warm-up batches excluded from the measurement (--mode inference, --benchmark)"
    )
    benchmark: bool = Rules(recipes=SEQUENTIAL).flag(
        False,
        "measure --benchmark_steps steps after --warmup_batches, without evaluation; the samples "
        "are read repeatedly if there are fewer",
    )
    benchmark_steps: int = Rules(
        at_least=1, recipes=SEQUENTIAL, needs=(requires("benchmark"),)
    ).flag(200, "steps to measure (--benchmark)")
    seed: int | None = Rules(at_least=0, special=-1).flag(
        None,
        "seed of weights, shuffling and synthetic samples; by default and with -1 drawn at random "
        "and logged",
    )
    deterministic: bool = flag(
        False, "make runs on the same hardware bitwise reproducible; slower on a GPU"
    )
    run_eagerly: bool = flag(False, "run without tf.function, for debugging")
    tfdata_debug: bool = flag(False, "run tf.data eagerly, for debugging")
    amp: bool | None = flag(
        False, "use mixed precision: float16 with loss scaling on a GPU, bfloat16 on a CPU"
    )
    loss_scale: str = Rules(
        check=read_loss_scale,
        needs=(Need("with --amp", lambda flags: flags.value("amp") is not False),),
    ).flag(
        "65536",
        "loss scale of float16 training (--amp): a number of at least 1, or dynamic, which starts "
        "at 32768, halves at a non-finite gradient and doubles after 2,000 steps without one",
    )
    xla: bool = Rules(needs=(excludes("run_eagerly"),)).flag(
        False, "compile operations with XLA where it can fuse them"
    )
    cpu: bool = flag(False, "do not use GPUs")
    affinity: str = Rules(
        choices=(
            *("disabled", "socket", "socket_single", "socket_single_unique"),
            *("socket_unique_interleaved", "socket_unique_continuous"),
        )
    ).flag(
        "disabled",
        "cores that each process is pinned to: those of its GPU's socket (socket), one of them "
        "(socket_single), one that no other process has (socket_single_unique), or an exclusive "
        "share of them, assigned round-robin (socket_unique_interleaved) or in contiguous blocks "
        "(socket_unique_continuous)",
    )
    inter_op_parallelism: int | None = Rules(at_least=0).flag(
        None, "threads that run operations concurrently"
    )
    intra_op_parallelism: int | None = Rules(at_least=0).flag(None, "threads within an operation")
    run_dir: str | None = flag(
        None, "folder of the run's log, plots and profile; by default runs/<recipe>-<time>"
    )
    log_filename: str = Rules(needs=(excludes("log_path"),)).flag(
        "log.json", "file name of the DLLogger log in --run_dir"
    )
    log_path: str | None = flag(None, "path of the DLLogger log, instead of --log_filename")
    rank_logs: str | None = Rules(needs=(excludes("plan_only"),)).flag(
        None,
        "folder of per-rank log files (stdout, stderr and crash traces), written in addition to "
        "the terminal",
    )
    tensorboard_dir: str | None = flag(None, "folder of TensorBoard summaries; by default none")
    predictions_path: str | None = Rules(needs=(requires("mode", "predict"),)).flag(
        None, "file of the scores of --mode predict, in sample order; .parquet, .csv or .npy"
    )
    profiler_start_step: int | None = _training(at_least=0).flag(
        None, "step at which the profiler starts"
    )
    profiler_steps: int = _training(at_least=1, needs=(requires("profiler_start_step"),)).flag(
        10, "steps that the profiler records"
    )
    profiled_rank: int = _training(at_least=0, needs=(requires("profiler_start_step"),)).flag(
        0, "rank that is profiled"
    )


def _check_predictions_path(flags: Values) -> None:
    if flags.value("mode") == "predict" and not flags.value("predictions_path"):
        raise ValueError(
            "--mode predict needs a file for the scores: pass --predictions_path with a name that "
            "ends in .parquet, .csv or .npy"
        )


def _check_benchmark(flags: Values) -> None:
    if not flags.value("benchmark"):
        return
    mode = flags.value("mode")
    if mode not in TRAIN_OR_INFERENCE:
        raise ValueError(
            f"--benchmark measures --mode train or inference, got --mode {mode}: leave one out"
        )
    excluded = ["max_steps", "auc_threshold", "early_stopping"]
    if mode == "train":
        excluded += ["save_checkpoint_path", "resume"]
    for name in excluded:
        if name in flags.explicit:
            raise ValueError(
                f"--benchmark runs --benchmark_steps steps and keeps no model: leave --{name} out"
            )


def _check_evaluations(flags: Values) -> None:
    """Raises ValueError for flags that act on evaluations of a training that has none."""
    if flags.value("mode") != "train" or flags.value("evals_per_epoch"):
        return
    names = [n for n in ("auc_threshold", "early_stopping", "keep_best") if flags.value(n)]
    names += ["threshold"] if "threshold" in flags.explicit else []
    if names:
        raise ValueError(
            f"--{names[0]} acts on evaluations, and --evals_per_epoch is 0: set --evals_per_epoch "
            f"to at least 1, or leave --{names[0]} out"
        )


RULES = (_check_predictions_path, _check_benchmark, _check_evaluations)
