"""DLRM and DCNv2: models that rank by numerical features and ids."""

from __future__ import annotations

from typing import Any

from config.family import Definition, Family
from config.sections.original import DOT_INTERACTIONS
from config.sections.run import MLPERF
from dataloading.spec.feature_spec import CATEGORICAL_CHANNEL, TEST, VALIDATION
from dataloading.spec.locate import CLICKS
from recipes.baseline.after_training import check_packages
from recipes.ranking import preset
from recipes.ranking.build import build
from recipes.ranking.data import held_out, open_data, spec_of_data
from recipes.ranking.flags import RankingFlags
from recipes.ranking.numerical_bins import has_bins
from recipes.ranking.shape import build_model, model_config, table_use
from runtime.logs.dlll import LogNames

# Values of the summary of --mode inference in NVIDIA's logs.
_INFERENCE: dict[str, tuple[str, float]] = {
    "mean_inference_throughput": ("throughput", 1),
    **{f"{n}_inference_latency": (f"latency_{n}", 1e3) for n in ("mean", "p90", "p95", "p99")},
}


def _expand(values: dict[str, Any], explicit: set[str]) -> set[str]:
    """Sets the flags that flags of NVIDIA's releases stand for; returns their names."""
    expanded = set()
    if (word := values["dot_interaction"]) is not None:
        if "interaction" in explicit:
            raise ValueError(
                "--dot_interaction and --interaction are aliases: pass only one of them"
            )
        values["interaction"] = DOT_INTERACTIONS[word]
        expanded.add("interaction")
    if (by_sample := values["data_parallel_input"]) is not None:
        if "model_parallel_input" in explicit and values["model_parallel_input"] == by_sample:
            raise ValueError(
                "--data_parallel_input and --model_parallel_input are opposites: pass only one of "
                "them"
            )
        values["model_parallel_input"] = not by_sample
        expanded.add("model_parallel_input")
    if values["fp16"] and values["mode"] != "deploy":
        values["amp"] = True
        expanded.add("amp")
    return expanded


def _log_names(mode: str, split: str | None, goal: str) -> LogNames:
    """Returns NVIDIA's names of values; a loss of an evaluation has the name of its split."""
    if mode != "train":
        loss: dict[str, tuple[str, float]] = {f"{split}_loss": ("log_loss", 1)} if split else {}
        return LogNames(added={**loss, **(_INFERENCE if mode == "inference" else {})})
    names = {"loss": "train_loss", "step_time_ms": "mean_step_time_ms"}
    if split in (VALIDATION, TEST):
        names["lowest_log_loss"] = f"{split}_loss"
    return LogNames(summary=names, further=tuple(names), unprinted=tuple(names))


RANKING = Family(
    section=RankingFlags,
    model_flags=(
        *("interaction", "embedding_dim", "bottom_mlp_dims", "top_mlp_dims"),
        *("num_cross_layers", "cross_layer_projection_dim"),
        *("numerical_embedding", "numerical_bins", "wide", "variant"),
    ),
    parts=frozenset({"ranking", "clicks"}),
    expand=_expand,
    implied=lambda flags: {"dot_interaction"},
    terabyte_from=preset.TERABYTE_FROM,
    choose_small=preset.choose_small,
    small=preset.SMALL,
    benchmarks={MLPERF: preset.choose_mlperf},
    reads=CLICKS,
    build=build,
    build_model=build_model,
    model_config=model_config,
    table_use=table_use,
    dense_bytes=lambda shape: 4 * shape.num_dense_weights,
    open_data=open_data,
    spec_of_data=spec_of_data,
    preset_facts=lambda config, spec: {
        "held_out": held_out(config, spec),
        "has_bins": has_bins(spec),
        "largest_table": max(spec.cardinalities(CATEGORICAL_CHANNEL), default=0),
    },
    check_baseline=check_packages,
    baseline="recipes.baseline.comparison",
    serving="deployment.model.served_ctr",
    own_serving="deployment.model.own_ctr",
)

# Other names of flags: of the release of October 2022, and of what the log calls `loss`.
_ALIASES = {"use_merlin_de_embeddings": "use_mde_embeddings", "loss": "training_loss"}

DLRM = Definition("dlrm", RANKING, aliases=_ALIASES, log_names=_log_names)
DCNV2 = Definition(
    "dcnv2",
    RANKING,
    # Defaults that differ from DLRM: cross layers, and Adam in place of SGD.
    {
        "interaction": "cross",
        "optimizer": "adam",
        "learning_rate": 0.0001,
        "warmup_steps": 100,
    },
    _ALIASES,
    _log_names,
)
