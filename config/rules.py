"""Which flags go together: needs, ranges across flags, and what a mode leaves alone."""

import dataclasses
import math
from typing import Any

from config.sections import COLLABORATIVE, RANKING, SEQUENTIAL, TERABYTE, OptimizerConfig


def meaning(name: str, value: Any) -> Any:
    """What a flag's value says of the model: the same for all ways to compute the same."""
    return "dot" if name == "interaction" and str(value).startswith("dot_") else value


def read_loss_scale(text: str) -> float | str:
    """Returns the number of `--loss_scale`, or "dynamic".

    Raises:
      ValueError: neither, or a number below 1.
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


def _is_open(config: Any, name: str) -> bool:
    """Returns whether `--preset` may still choose the value of a flag."""
    waits = config.preset_note is None and config.run.preset != TERABYTE
    return waits and name not in config.given


def _with_adam(config: Any) -> bool:
    return _is_open(config, "optimizer") or any("adam" in name for name in _optimizers(config))


def _with_adagrad(config: Any) -> bool:
    return any("adagrad" in name for name in _optimizers(config))


def _optimizers(config: Any) -> tuple[str, str]:
    return config.optimizer.optimizer, config.optimizer.embedding_optimizer


def _draws_from_flags(config: Any) -> bool:
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
    (("loss_scale",), "--amp", lambda c: c.run.amp is not False),
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
    (
        ("plan_world_size", "plan_ranks_per_machine"),
        "--plan_only",
        lambda c: c.distribution.plan_only,
    ),
    (
        ("rank_timeout_s", "embedding_backend", "elastic", "rank_logs"),
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
            *("on_checkpoint_error", "checkpoint_memory_mb", "keep_best"),
        ),
        "--save_checkpoint_path or --resume",
        lambda c: c.checkpoint.save_checkpoint_path or c.checkpoint.resume,
    ),
    (("benchmark_steps",), "--benchmark", lambda c: c.run.benchmark),
    (
        ("gsu", "gsu_top_k", "long_seq_length"),
        "--model_type sim",
        lambda c: c.sequence.model_type == "sim",
    ),
    (
        ("stage_one_mlp_dims",),
        "--model_type sim and --gsu soft",
        lambda c: (c.sequence.model_type, c.sequence.gsu) == ("sim", "soft"),
    ),
    (
        ("aux_mlp_dims",),
        "--model_type sim or dien",
        lambda c: c.sequence.model_type in ("sim", "dien"),
    ),
    (("din_attention",), "--model_type din", lambda c: c.sequence.model_type == "din"),
    (
        ("factors",),
        "--model_type neumf or gmf",
        lambda c: c.collaborative.model_type in ("neumf", "gmf"),
    ),
    (
        ("layers", "dropout"),
        "--model_type neumf or mlp",
        lambda c: c.collaborative.model_type in ("neumf", "mlp"),
    ),
    (
        ("pretrained_gmf", "pretrained_mlp"),
        "--model_type neumf",
        lambda c: c.collaborative.model_type == "neumf",
    ),
    (
        ("alpha",),
        "--pretrained_gmf and --pretrained_mlp",
        lambda c: c.collaborative.pretrained_gmf and c.collaborative.pretrained_mlp,
    ),
    (("predictions_path",), "--mode predict", lambda c: c.run.mode == "predict"),
    (("xla",), "compiled functions, not with --run_eagerly", lambda c: not c.run.run_eagerly),
)

# Flags of the training command that the other modes leave alone. They are no error, so that
# `--restore_checkpoint_path CHECKPOINT --mode eval` can be appended to the command that trained.
_TRAINING_ONLY = frozenset(
    {
        *(field.name for field in dataclasses.fields(OptimizerConfig)),
        *("preset", "batch_size", "epochs", "evals_per_epoch", "auc_threshold", "print_freq"),
        "early_stopping",
        *("save_checkpoint_path", "resume", "checkpoint_every", "checkpoint_every_minutes"),
        *("keep_checkpoints", "on_checkpoint_error", "checkpoint_memory_mb", "elastic"),
        *("profiler_start_step", "profiler_steps", "profiled_rank"),
        *("shuffle", "shuffle_window_rows", "synthetic_dataset_train_batches"),
        *("drop_remainder", "repeat_count", "prebatch_train_size", "dropout_rate"),
        *("aux_mlp_dims", "evaluate_training_rows"),
        *("dropout", "negative_samples", "negative_exponent", "threshold", "grads_accumulated"),
        *("pretrained_gmf", "pretrained_mlp", "alpha", "keep_best"),
        *("embedding_trainable", "embedding_zeros_initializer"),
    }
)


def unused(config: Any) -> list[str]:
    """The given flags that are not read in this `--mode` or without evaluations."""
    names = set()
    if config.run.mode != "train":
        names |= _TRAINING_ONLY
    if config.run.mode in ("eval", "predict"):
        names.add("max_steps")
    if config.run.mode == "predict":
        names |= {"auc_thresholds", "topk", "valid_negative"}
    if config.recipe in SEQUENTIAL:
        if "valid_batch_size" not in config.given:
            names -= {"batch_size"}  # is that, too
        if config.run.mode != "train":
            names -= {"prebatch_train_size"}
            evaluated = config.data.eval_mapping == "train"
            names.add("prebatch_test_size" if evaluated else "prebatch_train_size")
    if config.run.benchmark:
        names |= {"epochs", "auc_thresholds"}
    if config.run.mode != "inference" and not config.run.benchmark:
        names.add("warmup_batches")
    if config.run.mode == "inference":
        names -= {"print_freq"}
    if config.run.mode == "inference" and not config.checkpoint.restore_checkpoint_path:
        names.add("auc_thresholds")
    if config.run.mode == "train" and config.run.benchmark:
        names.add("evals_per_epoch")
    if config.run.mode == "train" and (config.run.benchmark or not config.run.evals_per_epoch):
        names |= {"evaluate_training_rows", "prebatch_test_size", "prefetch_test_size"}
        names |= {"eval_mapping", "valid_batch_size", "auc_thresholds", "topk", "valid_negative"}
    return sorted(names & config.given)


def check(config: Any, complete: bool = True) -> None:
    """Checks flags against each other. Raises ValueError that names both and the way out.

    Args:
      config: the flags.
      complete: False where more will come from the checkpoint of a resumed training.
    """
    if complete:
        _check_needs(config)
    data, model, optimizer, run = config.data, config.model, config.optimizer, config.run
    read_loss_scale(run.loss_scale)
    saved = config.checkpoint
    wants_model = run.mode != "train" and not config.distribution.plan_only
    if config.recipe in SEQUENTIAL and run.mode == "inference":
        wants_model = False  # how fast it is can be measured without one
    if wants_model and not saved.restore_checkpoint_path:
        raise ValueError(
            f"--mode {run.mode} needs a trained model: give its folder with "
            "--restore_checkpoint_path (train one with --save_checkpoint_path)"
        )
    if run.log_path and "log_filename" in config.given:
        raise ValueError("--log_path and --log_filename both name the log's file: give one of them")
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
    if config.distribution.elastic and run.mode == "train" and saved.resume != "auto":
        raise ValueError(
            "--elastic goes on with a training from its newest checkpoint, in processes that join, "
            "too: it needs --resume auto and --save_checkpoint_path"
        )
    if saved.checkpoint_every_minutes == 0:
        raise ValueError("--checkpoint_every_minutes must be above 0, got 0; or leave it out")
    if saved.keep_best and not run.evals_per_epoch and run.mode == "train":
        raise ValueError(
            "--keep_best keeps what evaluated best: with it, set --evals_per_epoch to at least 1"
        )
    if run.early_stopping and not run.evals_per_epoch and run.mode == "train":
        raise ValueError(
            "--early_stopping counts evaluations, and --evals_per_epoch 0 means none: set "
            "--evals_per_epoch to at least 1, or leave --early_stopping out"
        )
    if run.mode == "predict" and not run.predictions_path:
        raise ValueError(
            "--mode predict needs a file for the scores: give --predictions_path with a name that "
            "ends in .parquet, .csv or .npy"
        )
    if run.max_steps == 0:
        raise ValueError("--max_steps must be -1 (no limit) or at least 1, got 0")
    if config.recipe in SEQUENTIAL:
        _check_sequences(config)
    if config.recipe in COLLABORATIVE:
        _check_collaborative(config)
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
    rate = max(optimizer.learning_rate, optimizer.embedding_learning_rate or 0)
    if rate * optimizer.weight_decay >= 1 and not _is_open(config, "learning_rate"):
        raise ValueError(
            f"--weight_decay {optimizer.weight_decay:g} times --learning_rate (or "
            f"--embedding_learning_rate) {rate:g} is 1 or more, so that a step would turn weights "
            "around: give a smaller --weight_decay"
        )
    for name in ("beta1", "beta2"):
        if getattr(optimizer, name) >= 1:
            raise ValueError(f"--{name} must be below 1, got {getattr(optimizer, name)}")


def _check_sequences(config: Any) -> None:
    """Raises ValueError for flags of sequential models that contradict each other."""
    run, rate = config.run, config.sequence.dropout_rate
    if rate != -1 and not 0 <= rate < 1:
        raise ValueError(f"--dropout_rate is a share in [0, 1), or -1 for none, got {rate}")
    if run.benchmark and run.mode not in ("train", "inference"):
        raise ValueError(
            f"--benchmark measures --mode train or inference, not {run.mode}: leave one out"
        )
    for name in ("save_checkpoint_path", "resume"):
        if run.benchmark and run.mode == "train" and getattr(config.checkpoint, name):
            raise ValueError(
                f"--benchmark measures steps, its model is not worth keeping: leave --{name} out"
            )
    for name in ("max_steps", "auc_threshold", "early_stopping"):
        if run.benchmark and name in config.given:
            raise ValueError(f"--benchmark has --benchmark_steps steps: leave --{name} out")


def _check_collaborative(config: Any) -> None:
    """Raises ValueError for flags of collaborative models that contradict each other."""
    own, saved = config.collaborative, config.checkpoint
    if not own.layers or own.layers[0] % 2:
        raise ValueError(
            "--layers starts with the width of a user's and an item's vector side by side, an even "
            f"number, got {','.join(map(str, own.layers)) or 'nothing'}"
        )
    if own.dropout >= 1:
        raise ValueError(f"--dropout is a share in [0, 1), got {own.dropout}")
    if not 0 < own.threshold <= 1:
        raise ValueError(f"--threshold is a hit rate in (0, 1], got {own.threshold}")
    if "threshold" in config.given and config.run.evals_per_epoch == 0:
        raise ValueError(
            "--threshold is only looked at when the model is evaluated: with it, set "
            "--evals_per_epoch to at least 1"
        )
    if own.alpha > 1:
        raise ValueError(f"--alpha is a share in [0, 1], got {own.alpha}")
    if bool(own.pretrained_gmf) != bool(own.pretrained_mlp):
        missing = "pretrained_mlp" if own.pretrained_gmf else "pretrained_gmf"
        raise ValueError(
            f"NeuMF starts from a trained GMF and a trained MLP: --{missing} is missing"
        )
    for name in ("restore_checkpoint_path", "resume"):
        other = getattr(saved, name) not in (None, "auto")
        if own.pretrained_gmf and config.run.mode == "train" and other:
            raise ValueError(
                f"--pretrained_gmf and --{name} both say what to start from: give one of them"
            )


def _check_needs(config: Any) -> None:
    """Raises ValueError for flags that would not be read, and where nothing says which rows."""
    for names, needed, holds in _NEEDS:
        for name in names:
            if name in config.given and not holds(config):
                raise ValueError(f"--{name} is only read with {needed}; or leave --{name} out")
    if not _draws_from_flags(config) and not config.data.dataset_path:
        or_else = ""
        if config.recipe in RANKING:
            or_else = ", or train on generated rows with --dataset_type synthetic"
        raise ValueError(
            f"--dataset_path is missing: give the folder that holds the feature spec{or_else}"
        )
