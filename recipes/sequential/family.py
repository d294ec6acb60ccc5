"""SIM, DIEN and DIN: models of user histories."""

from __future__ import annotations

from typing import Any

from config.family import Definition, Family
from config.flag import Values
from config.sections import optimizer
from config.sections.recommendation import EXCLUDE_SEEN_WORDS
from dataloading.spec.locate import HISTORIES
from recipes.sequential import preset
from recipes.sequential.build import build, open_data
from recipes.sequential.flags import SequentialFlags
from recipes.sequential.shape import build_model, dense_bytes_of, model_config, table_use
from recipes.small_preset import evaluates_validation_split
from runtime.logs.dlll import LATENCIES, LogNames


def _expand(values: dict[str, Any], explicit: set[str]) -> set[str]:
    """Sets the flag that `--load_checkpoint_path` stands for outside training.

    Returns:
        The flags that the command line sets by it.
    """
    path = values["load_checkpoint_path"] = values["load_checkpoint_path"] or None
    if path is None or values["mode"] == "train":
        return set()
    if "restore_checkpoint_path" in explicit:
        raise ValueError(
            "--load_checkpoint_path and --restore_checkpoint_path are aliases here: pass only one "
            "of them"
        )
    values["restore_checkpoint_path"] = path
    return {"restore_checkpoint_path"}


def _check_weight_decay(flags: Values) -> None:
    """Raises ValueError for a decay that is too large; NVIDIA's is not times the rate."""
    if flags.value("variant") != "nvidia":
        optimizer.check_weight_decay(flags)
    elif (decay := flags.value("weight_decay")) >= 1:
        raise ValueError(
            "--weight_decay of --variant nvidia must be below 1, because it is not multiplied "
            f"by the learning rate; got {decay:g}"
        )


def _log_names(mode: str, split: str | None, goal: str) -> LogNames:
    metrics = {"auc": f"{split}_auc", "log_loss": f"{split}_loss"} if split else {}
    elapsed = "time_to_train" if mode == "train" else "time"
    return LogNames(
        step={"loss": "total_loss", "throughput": "samples/s", **metrics},
        epoch={"epoch_s": "time", **metrics},
        summary={"elapsed_s": elapsed, **metrics},
        epoch_line=("epoch_s", *LATENCIES, "throughput"),
    )


SEQUENTIAL = Family(
    section=SequentialFlags,
    model_flags=(
        *("embedding_dim", "model_type", "stage_one_mlp_dims", "stage_two_mlp_dims"),
        *("aux_mlp_dims", "long_seq_length", "gsu", "gsu_top_k", "din_attention", "variant"),
        "history_product",
    ),
    parts=frozenset({"sequential", "clicks", "recommendation"}),
    recommends_from_split=True,
    expand=_expand,
    implied=lambda flags: set() if flags.value("mode") == "train" else {"load_checkpoint_path"},
    check_weight_decay=_check_weight_decay,
    terabyte_from=preset.TERABYTE_FROM,
    choose_small=preset.choose_small,
    small=preset.SMALL,
    reads=HISTORIES,
    build=build,
    build_model=build_model,
    model_config=model_config,
    table_use=table_use,
    dense_bytes=dense_bytes_of,
    open_data=open_data,
    preset_facts=lambda config, spec: {
        "held_out": (lambda number: 0) if evaluates_validation_split(config, spec) else None
    },
    baseline="recipes.baseline.histories",
    serving="deployment.model.served_sequence",
)

SIM = Definition(
    "sim",
    SEQUENTIAL,
    {
        "embedding_dim": "16",
        "optimizer": "adam",
        "learning_rate": 0.01,
        "warmup_steps": 0,
        "decay_steps": 0,
        "epochs": 3,
        "batch_size": 131072,
        "valid_batch_size": None,
        "prefetch_batches": 10,
        "print_freq": 10,
        "warmup_batches": 20,
        "affinity": "socket_unique_interleaved",
        "seed": -1,
        "loss_scale": "dynamic",
    },
    {
        "dataset_dir": "dataset_path",
        "global_batch_size": "batch_size",
        "lr": "learning_rate",
        "prefetch_train_size": "prefetch_batches",
        "results_dir": "run_dir",
        "benchmark_warmup_steps": "warmup_batches",
        "affinity=single": "affinity=socket_single",
        "affinity=single_unique": "affinity=socket_single_unique",
        **EXCLUDE_SEEN_WORDS,
    },
    _log_names,
)
