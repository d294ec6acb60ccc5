"""Flags of a run: mode, batch sizes, length."""

from dataclasses import dataclass

from config.flag import FIXED, OWN, TRAIN, TRAIN_OR_INFERENCE, Rules, Values, requires
from config.sections.evaluation import evaluates, is_full_run

# Values of --preset.
AUTO, SMALL, TERABYTE, MLPERF = "auto", "small", "terabyte", "mlperf"


def _trains_in_batches(flags: Values) -> bool:
    """Returns whether --batch_size is read: it may also be the default of --valid_batch_size."""
    follows = flags.default("valid_batch_size") is None
    is_default = follows and "valid_batch_size" not in flags.explicit
    return flags.value("mode") == "train" or is_default


@dataclass(frozen=True)
class RunConfig:
    """Mode, batch sizes and length of the run."""

    mode: str = Rules(
        resume=OWN,
        choices=("train", "eval", "importance", "predict", "recommend", "inference", "deploy"),
    ).flag(
        "train",
        "task; train, or with a checkpoint eval (report its metrics), importance (measure how much "
        "they depend on each feature), predict (write a score per sample; labels may be absent), "
        "recommend (ncf.py, sim.py: write the top items of users), inference (measure throughput "
        "and latency; also without a checkpoint) or deploy (write a SavedModel, "
        "--saved_model_output_path)",
    )
    preset: str = Rules(resume=FIXED, modes=TRAIN, choices=(AUTO, SMALL, TERABYTE, MLPERF)).flag(
        AUTO,
        "values of flags that are not passed; terabyte: the published settings; small: for smaller "
        "data sets, computed from the number of training samples; auto: small or terabyte, chosen "
        "by that number; mlperf (dcnv2.py): MLPerf Training's DLRM-DCNv2, with its target AUC",
    )
    batch_size: int = Rules(resume=FIXED, at_least=1, read_when=_trains_in_batches).flag(
        65536, "global batch size of training"
    )
    valid_batch_size: int | None = Rules(at_least=1, read_when=evaluates).flag(
        65536, "global batch size of evaluation and inference; None: --batch_size"
    )
    epochs: int = Rules(modes=TRAIN, at_least=1, read_when=is_full_run).flag(
        1, "passes over the training samples"
    )
    max_steps: int = Rules(
        at_least=1, special=-1, modes=TRAIN_OR_INFERENCE, read_when=is_full_run
    ).flag(-1, "step after which the run ends; -1: no limit")
    seed: int | None = Rules(resume=FIXED, at_least=0, special=-1).flag(
        None,
        "seed of weights, shuffling and synthetic samples; by default and with -1 drawn at random "
        "and logged",
    )
    predictions_path: str | None = Rules(
        resume=OWN, is_local=True, needs=(requires("mode", "predict", "recommend"),)
    ).flag(
        None,
        "file of the scores of --mode predict, in sample order; .parquet, .csv or .npy; of the "
        "items of --mode recommend: .parquet or .csv",
    )
    predictions_keep: str | None = Rules(needs=(requires("mode", "predict"),)).flag(
        None,
        "features to write before the scores, such as user,item,time; original values where the "
        "data set has a vocabulary; any feature that the split stores",
    )


def _check_predictions_path(flags: Values) -> None:
    mode = flags.value("mode")
    suffixes = {"predict": ".parquet, .csv or .npy", "recommend": ".parquet or .csv"}
    if mode in suffixes and not flags.value("predictions_path"):
        raise ValueError(
            f"--mode {mode} needs a file for the scores: pass --predictions_path with a name that "
            f"ends in {suffixes[mode]}"
        )


def _check_predictions_keep(flags: Values) -> None:
    names = (flags.value("predictions_keep") or "").split(",")
    if flags.value("predictions_keep") is not None and len({*names, ""}) != len(names) + 1:
        raise ValueError(
            "--predictions_keep takes names of features separated by commas, each once, got "
            f"{flags.value('predictions_keep')!r}"
        )


def check_preset(flags: Values) -> None:
    """Raises ValueError for the preset of another model."""
    has_cross = flags.has("interaction") and flags.value("interaction") == "cross"
    if flags.value("preset") == MLPERF and not has_cross:
        raise ValueError(
            "--preset mlperf has the settings of a model with cross layers, MLPerf's DLRM-DCNv2: "
            "run dcnv2.py, or pass another --preset"
        )


RULES = (_check_predictions_path, _check_predictions_keep)
