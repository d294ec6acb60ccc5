"""Meaning of the flags that all recipes share: data set, plan of the tables, evaluated split."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed_embeddings.collectives import World

from config.config import Config
from config.sections.data import is_drawn_from_flags
from config.sections.optimizer import OPTIMIZERS
from dataloading.spec import feature_spec as fs
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.spec.locate import check_family, find_feature_spec
from recipes.recipe import Dataset
from runtime.files import predictions
from runtime.hardware.device import Device
from runtime.hardware.memory import RankMemory

if TYPE_CHECKING:
    from distributed_embeddings.planner import MemoryBudget, Plan

    from dataloading.keys.kept_columns import KeptColumns
    from nn.metrics.group_metrics import Grouping
    from nn.metrics.held_out_ranking import HeldOutRanking
    from recipes.recommendation import Recommendation

ASSUMED_DEVICE_MEMORY_GB = 80  # of --plan_only: NVIDIA's A100 and H100 of that size

# Share of a rank's memory from which on a run notes what its tables take.
_NOTED_MEMORY = 0.1

# Folder in --dataset_path into which NVIDIA's preparation of 2022 writes the data set.
_NVIDIA_FOLDER = "binary_dataset"


def load_feature_spec(config: Config, known: FeatureSpec | None = None) -> FeatureSpec | None:
    """Returns the data set's description; None for samples that are generated from flags.

    Args:
        config: the flags.
        known: a description that was read before, which is returned if it is that of the data set.

    Raises:
        ValueError: the file does not exist, breaks a rule, or describes data of other recipes.
    """
    if not config.data.dataset_path or is_drawn_from_flags(config):
        return None
    folder, kind = Path(config.data.dataset_path), config.family.reads
    file = folder / _NVIDIA_FOLDER / config.data.feature_spec
    if not file.exists() or (folder / file.name).exists():
        file = find_feature_spec(folder, file.name, "--dataset_path", kind)
    if known is not None and known.origin == str(file):
        return known
    spec = FeatureSpec.from_yaml(file)
    check_family(spec, kind, config.recipe)
    return spec


def model_arguments(config: Config, device: Device, world: World) -> dict[str, Any]:
    """Returns the arguments that the constructors of all models take from the flags."""
    exchange_dtype = config.distribution.exchange_dtype
    return {
        "seed": config.run.seed,
        "dtype": device.policy,
        "world": world,
        "exchange_dtype": None if exchange_dtype == "auto" else exchange_dtype,
        "embedding_trainable": config.model.embedding_trainable,
    }


def grouping(
    config: Config, spec: FeatureSpec, channels: Mapping[str, Sequence[str]], allowed: Sequence[str]
) -> Grouping | None:
    """Returns the groups of samples by `--group_column`; None in modes that need none.

    Args:
        config: The flags.
        spec: The data set.
        channels: For each field of the inputs its features, in the order of the inputs.
        allowed: Features with one id per sample.

    Raises:
        ValueError: The feature has no id per sample.
    """
    from nn.metrics.group_metrics import Grouping
    from recipes.original_ids import original_ids

    name = config.evaluation.group_column
    if name is None or config.run.mode not in ("train", "eval", "inference"):
        return None
    if name not in allowed:
        some = ", ".join(allowed[:8]) + (", ..." if len(allowed) > 8 else "")
        raise ValueError(
            f"--group_column {name}: expected a feature of {spec.origin} with one id per sample: "
            f"{some or 'it has none'}"
        )
    field = next(field for field, features in channels.items() if name in features)
    index = list(channels[field]).index(name)
    first_id = 0
    if not is_drawn_from_flags(config):
        first_id = original_ids(spec, name, spec.cardinality(name))[0].first_id
    cutoffs = config.evaluation.group_cutoffs
    return Grouping(name, lambda inputs: getattr(inputs, field)[index], first_id, cutoffs)


def data_facts(train: Dataset | None, valid: Dataset | None) -> dict[str, int | str]:
    """Returns the number of training and of evaluated samples, and the evaluated split."""
    facts: dict[str, int | str] = {"training_rows": train.num_samples} if train else {}
    return facts | ({"evaluation_rows": f"{valid.num_samples:,} ({valid.split})"} if valid else {})


def note_test_split(mode: str, spec: fs.FeatureSpec, valid: Dataset | None, remedy: str) -> str:
    """Returns a note if a training evaluates test samples for lack of a validation split, or "".

    `remedy` describes how to make a validation split.
    """
    evaluates_test = mode == "train" and valid is not None and valid.split == fs.TEST
    if not evaluates_test or fs.VALIDATION in spec.source_spec:
        return ""
    return (
        "the data set has no validation split: training evaluates the test split, and whatever is "
        f"chosen by its metrics is chosen on test samples. For a validation split {remedy}"
    )


@dataclass(frozen=True)
class TableUse:
    """Embedding tables of a model, and how a training step uses them.

    Attributes:
        tables: (name, rows, columns) of each table, in the order of the lookups.
        hotness: ids per sample of each table's lookup.
        has_wide_ids: whether ids are sent as int64.
        is_pooled: whether the vectors of a lookup are pooled.
        max_samples: limit of the samples per batch that are looked up; None: the batch size.
        dense_bytes: memory of a rank for the dense weights, their gradients and optimizer state,
            and for activations beyond those that the planner counts.
        optimizer: optimizer of the tables; None: that of the flags.
    """

    tables: Sequence[tuple[str, int, int]]
    hotness: Sequence[int]
    has_wide_ids: bool
    is_pooled: bool = True
    max_samples: int | None = None
    dense_bytes: float = 0.0
    optimizer: str | None = None


def make_plan(
    config: Config, spec: FeatureSpec, world_size: int, memory: RankMemory | None = None
) -> Plan:
    """Returns the sharding plan that training follows and `--plan_only` prints.

    Args:
        config: the flags.
        spec: the feature spec of the samples.
        world_size: number of ranks.
        memory: memory of a rank, equal on all ranks; None: unknown.

    Raises:
        ValueError: the tables fit nowhere; the message names flags that help.
    """
    from distributed_embeddings.planner import (
        Feature,
        Limits,
        PlanError,
        Table,
        Workload,
        plan,
    )

    flags, run, family = config.distribution, config.run, config.family
    use: TableUse = family.table_use(config, spec, family.model_config(config, spec), world_size)
    budget = _memory_budget(config, memory, use.dense_bytes)
    optimizer = OPTIMIZERS[use.optimizer or config.optimizer.sparse_optimizer]
    itemsize = {"float32": 4, "bfloat16": 2, "float16": 2}.get(flags.exchange_dtype)
    limits = Limits(
        flags.column_slice_threshold,
        flags.row_slice_threshold,
        flags.data_parallel_threshold,
        _size_bytes(flags.cpu_offloading_threshold_gb),
    )
    features = tuple(Feature(t, hotness, use.is_pooled) for t, hotness in enumerate(use.hotness))
    try:
        workload = Workload(
            tuple(Table(*table) for table in use.tables),
            features,
            world_size,
            global_batch_size=min(run.batch_size, use.max_samples or run.batch_size),
            state_bytes_per_element=optimizer.state_bytes_per_element,
            state_bytes_per_row=optimizer.state_bytes_per_row,
            scratch_bytes_per_element=optimizer.scratch_bytes_per_element,
            exchange_itemsize=itemsize or (2 if config.device.amp else 4),
            id_itemsize=8 if use.has_wide_ids else 4,
            dp_input=not flags.model_parallel_input,
        )
        result = plan(workload, limits, flags.dist_strategy, budget)
    except PlanError as error:
        raise ValueError(_with_flags(f"{error}{budget.advice}")) from None
    largest = max(cost.device_bytes for cost in result.costs)
    is_asked = flags.plan_only or flags.plan_device_memory_gb is not None
    is_tight = largest >= _NOTED_MEMORY * (budget.device_bytes or 0)
    note = budget.describe(result) if is_asked or is_tight else ""
    return replace(result, memory_note=note)


def _memory_budget(config: Config, memory: RankMemory | None, dense_bytes: float) -> MemoryBudget:
    """Returns the memory of a rank that the tables may use.

    Flags override what was measured. `--plan_only`, which has no device, assumes one.
    """
    from distributed_embeddings.planner import MemoryBudget
    from distributed_embeddings.planner.types import RESERVED_FRACTION

    flags = config.distribution
    device_memory_gb = flags.plan_device_memory_gb
    device_bytes, host_bytes, source = memory or (None, None, "")
    if device_memory_gb is not None:
        device_bytes, source = _size_bytes(device_memory_gb), "--plan_device_memory_gb"
    elif flags.plan_only:
        device_bytes = _size_bytes(ASSUMED_DEVICE_MEMORY_GB)
        source = f"{ASSUMED_DEVICE_MEMORY_GB} GB assumed; --plan_device_memory_gb states another"
    if flags.plan_host_memory_gb is not None:
        host_bytes = _size_bytes(flags.plan_host_memory_gb)
    elif host_bytes is not None:
        host_bytes = int(host_bytes * (1 - RESERVED_FRACTION))
    return MemoryBudget(device_bytes, host_bytes, source, dense_bytes, device_memory_gb is None)


def report_plan(config: Config, spec: FeatureSpec | None) -> str:
    """Returns the output of `--plan_only`, the sharding plan for `--plan_world_size` ranks."""
    from distributed_embeddings.planner import report

    flags, family = config.distribution, config.family
    spec = family.spec_of_data(config, spec)
    plan, shape = make_plan(config, spec, flags.plan_world_size), family.model_config(config, spec)
    dense_bytes = family.dense_bytes(shape)  # ranks sum gradients of them in each step
    return report(plan, ranks_per_machine=flags.plan_ranks_per_machine, dense_bytes=dense_bytes)


def _size_bytes(gigabytes: float | None) -> int | None:
    return None if gigabytes is None else round(gigabytes * 1e9)


def _with_flags(text: str) -> str:
    """Replaces the planner's arguments in its solutions by flags."""
    text = re.sub(
        r"host_memory_bytes=(\d+)",
        lambda match: f"--plan_host_memory_gb {math.ceil(int(match[1]) / 1e7) / 100:g}",
        text,
    )
    return text.replace("cpu_offloading_threshold_bytes", "--cpu_offloading_threshold_gb")


def kept_columns(
    config: Config,
    spec: FeatureSpec,
    valid: Dataset | None,
    world: World,
    tables: Mapping[str, str] | None = None,
) -> KeptColumns | None:
    """Returns the columns of `--predictions_keep` on rank 0; None without any.

    Args:
        config: the flags.
        spec: the data set.
        valid: the samples to predict.
        world: the ranks.
        tables: of a data set of histories, see `history_columns`.

    Raises:
        ValueError: the split does not store a feature, or it cannot be written.
    """
    names, path = config.run.predictions_keep, config.run.predictions_path
    if names is None or valid is None or path is None or config.run.mode != "predict":
        return None
    from dataloading.keys import kept_columns as keys
    from recipes.original_ids import decoders

    features, split = names.split(","), valid.split
    predictions.check_kept(path, [(feature,) for feature in features])
    if not world.is_chief:
        return None
    if tables is not None:
        return keys.history_columns(spec, split, features, tables, decoders(spec, features, tables))
    if config.data.dataset_type == "synthetic":
        return keys.generated_columns(spec, split, features, config.run.seed or 0)
    return keys.stored_columns(spec, split, features, decoders(spec, features))


def rankings(
    module: str, config: Config, spec: FeatureSpec, model: Any, world: World, **facts: Any
) -> tuple[Recommendation | None, Sequence[HeldOutRanking]]:
    """Returns the recommendations of `--mode recommend`, and the rankings of `--mode eval`.

    Args:
        module: of the family, which has `recommendation` and `held_out_rankings`.
        facts: of the latter.
    """
    if config.run.mode not in ("eval", "recommend"):
        return None, ()
    own = importlib.import_module(module)  # with TensorFlow
    if config.run.mode == "recommend":
        return own.recommendation(config, spec, model, world), ()
    return None, own.held_out_rankings(config, spec, model, world, **facts)


def evaluation_split(split: str, mode: str, spec: fs.FeatureSpec) -> str:
    """Returns the split to evaluate, by `--eval_mapping` (`split`) and `--mode`.

    Raises:
        ValueError: the data set has neither a validation nor a test split for "auto".
    """
    if split != "auto":
        return split
    # Features are chosen by their importance, which must not be on test samples.
    chooses = mode in ("train", "importance")
    first, second = (fs.VALIDATION, fs.TEST) if chooses else (fs.TEST, fs.VALIDATION)
    if first not in spec.source_spec and second not in spec.source_spec:
        remedy = ", or not at all with --evals_per_epoch 0" if mode == "train" else ""
        raise ValueError(
            f"{spec.origin}: source_spec has neither '{first}' nor '{second}' rows to evaluate on: "
            "prepare the data with --split 0.8,0.1,0.1, evaluate on training rows with "
            f"--eval_mapping train{remedy}"
        )
    return first if first in spec.source_spec else second
