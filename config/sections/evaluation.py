"""Flags of evaluations and benchmarks."""

import functools
from dataclasses import dataclass

from config.flag import OWN, TRAIN, TRAIN_OR_INFERENCE, Need, Rules, Values, excludes, requires
from config.sections.checkpoint import SAVES

IMPORTANCE = ("importance",)


def evaluates(flags: Values) -> bool:
    """Returns whether the run reads samples outside training steps."""
    if flags.value("mode") == "recommend":
        return bool(flags.family.recommends_from_split)
    has_evaluations = flags.value("evals_per_epoch") > 0 and not flags.value("benchmark")
    return flags.value("mode") != "train" or has_evaluations


is_full_run = excludes("benchmark").holds  # with epochs and evaluations


def _computes_auc(flags: Values) -> bool:
    has_model = flags.value("restore_checkpoint_path") or flags.value("saved_model_input_path")
    measures_only = flags.value("mode") == "inference" and not has_model
    return evaluates(flags) and is_full_run(flags) and not measures_only


def _has_groups(flags: Values) -> bool:
    trains_on_groups = flags.value("mode") == "train" and flags.value("training_loss") != "log_loss"
    return trains_on_groups or _computes_auc(flags)


def _measures(flags: Values) -> bool:
    return flags.value("mode") == "inference" or bool(flags.value("benchmark"))


_training = functools.partial(Rules, modes=TRAIN)
_STORED = Need(
    "with a data set in --dataset_path",
    lambda flags: bool(flags.value("dataset_path")) and flags.value("dataset_type") != "synthetic",
)


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation and benchmarks."""

    evals_per_epoch: int = _training(at_least=0, read_when=is_full_run).flag(
        1, "evaluations per epoch, evenly spaced; 0: none"
    )
    metric: str | None = _training(read_when=is_full_run).flag(
        None,
        "metric by which evaluations are compared; that of --early_stopping, --keep_best and "
        "recipes.search: auc, log_loss, normalized_entropy, pr_auc, or those of --group_column; "
        "NCF: hr@k, ndcg@k or log_loss; log_loss and normalized_entropy are better if lower; by "
        "default the AUC, NCF: the hit rate",
    )
    early_stopping: int | None = _training(at_least=1).flag(
        None,
        "evaluations without a better --metric after which training stops; with "
        "--save_checkpoint_path the best checkpoint is kept, as with --keep_best; dlrm.py and "
        "dcnv2.py hold out the last tenth of train for these evaluations if the data set has no "
        "validation split and --eval_mapping is auto",
    )
    auc_threshold: float | None = _training(above=0, at_most=1, part="clicks").flag(
        None,
        "AUC at which training stops; whatever --metric is; the time to reach it is reported",
    )
    auc_thresholds: int | None = Rules(
        at_least=2,
        part="clicks",
        modes=("train", "eval", "importance", "inference"),
        read_when=_computes_auc,
    ).flag(None, "bins of an approximate AUC; memory is constant; by default the AUC is exact")
    group_column: str | None = Rules(
        part="clicks",
        modes=("train", "eval", "inference"),
        read_when=_has_groups,
    ).flag(
        None,
        "categorical feature with one id per sample, such as the user; logs gauc, ndcg@k, mrr@k "
        "and hr@k, the quality of the order within the samples of each of its ids; --loss listwise "
        "and pairwise train this order",
    )
    group_cutoffs: tuple[int, ...] = Rules(
        at_least=1,
        part="clicks",
        modes=("train", "eval", "inference"),
        used_with=(requires("group_column"),),
    ).flag((5, 10), "numbers k of first places of ndcg@k, mrr@k and hr@k")
    importance_repeats: int = Rules(at_least=1, part="clicks", modes=IMPORTANCE).flag(
        3, "permutations of each feature; the importance is the mean over them"
    )
    warmup_batches: int = Rules(resume=OWN, at_least=0, read_when=_measures).flag(
        10, "batches before a measurement; --mode inference and --benchmark leave them out"
    )
    baseline: bool = Rules(resume=OWN, modes=TRAIN, needs=(SAVES, _STORED)).flag(
        False,
        "compare the model with simple models on the test samples when the training ends; "
        "baseline.json and baseline.png are in the folder of the run (python -m recipes.baseline); "
        "the best checkpoint counts, or else the last one",
    )
    benchmark: bool = Rules(resume=OWN, part="sequential").flag(
        False,
        "measure --benchmark_steps steps; they follow --warmup_batches and there is no "
        "evaluation; the samples are read repeatedly if there are fewer",
    )
    benchmark_steps: int = Rules(
        resume=OWN,
        at_least=0,
        part="sequential",
        read_when=requires("benchmark").holds,
    ).flag(200, "steps to measure; 0: those of --epochs")


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


def check_evaluations(flags: Values) -> None:
    """Raises ValueError for flags that act on evaluations, in a training without any."""
    if flags.value("mode") != "train" or flags.value("evals_per_epoch"):
        return
    names = [n for n in ("auc_threshold", "mlperf_log") if flags.value(n)]
    acting = ("early_stopping", "keep_best", "metric", "threshold")  # checkpoints have some of them
    names += [n for n in acting if n in flags.explicit and flags.value(n)]
    if names:
        raise ValueError(
            f"--{names[0]} acts on evaluations, and --evals_per_epoch is 0: set --evals_per_epoch "
            f"to at least 1, or leave --{names[0]} out"
        )


def _check_importance(flags: Values) -> None:
    if flags.value("mode") not in IMPORTANCE:
        return
    if not flags.has("importance_repeats"):
        raise ValueError(
            f"--mode importance permutes the features of samples; {flags.recipe}.py has only the "
            "user and the item: use --mode eval"
        )
    if flags.value("dataset_type") == "synthetic":
        raise ValueError(
            "--mode importance reads samples in random order, expected a stored data set, got "
            "--dataset_type synthetic: write the samples with python -m dataloading.synthetic"
        )


RULES = (_check_benchmark, _check_importance)
