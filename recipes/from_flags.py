"""What flags mean to every recipe: the plan of its tables, the rows that it evaluates on."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from config import Config
from dataloading.spec import feature_spec as fs
from dataloading.spec.feature_spec import FeatureSpec

ASSUMED_DEVICE_MEMORY_GB = 80  # of --plan_only: NVIDIA's A100 and H100 of that size

# Raw data of the public data sets, and what prepares them.
_RAW_DATA = {
    "day_*": "preproc.criteo",
    "train*.txt": "preproc.criteo",
    "ratings*": "preproc.movielens",
    "*.json.gz": "preproc.amazon_books",
    "*.csv": "dataloading.transcode",
}


def load_feature_spec(config: Config) -> FeatureSpec | None:
    """Returns the data set's description; None for rows that are generated from flags.

    Raises:
      ValueError: the file does not exist, or it breaks a rule.
    """
    if not config.data.dataset_path:
        return None
    folder = Path(config.data.dataset_path)
    if folder.is_file():
        raise ValueError(
            f"--dataset_path {folder}: expected the folder of a data set, got a file; give its "
            f"folder, {folder.parent}"
        )
    file = folder / config.data.feature_spec
    if folder.is_dir() and not file.exists() and (tool := _preparation_of(folder)):
        raise ValueError(
            f"--dataset_path {folder}: expected a prepared data set with {file.name}, got raw "
            f"data; prepare it: python -m {tool} --input {folder} --output PREPARED"
        )
    return FeatureSpec.from_yaml(file)


def _preparation_of(folder: Path) -> str | None:
    """Returns the module that prepares the raw data in a folder; None without raw data."""
    return next((tool for names, tool in _RAW_DATA.items() if any(folder.glob(names))), None)


def model_arguments(config: Config, device, world) -> dict[str, Any]:
    """What the constructors of all models take from the flags.

    Args:
      device: `runtime.hardware.device.Device`.
      world: the ranks among which tables are spread.
    """
    exchange_dtype = config.distribution.exchange_dtype
    return {
        "seed": config.run.seed,
        "dtype": device.policy,
        "world": world,
        "exchange_dtype": None if exchange_dtype == "auto" else exchange_dtype,
        "embedding_trainable": config.model.embedding_trainable,
    }


def row_facts(train, valid) -> dict[str, int | str]:
    """Returns the numbers of training and of evaluated samples, and the split of these, for the
    log."""
    facts = {"training_rows": train.num_rows} if train else {}
    return facts | ({"evaluation_rows": f"{valid.num_rows} ({valid.split})"} if valid else {})


def split_note(mode: str, spec: fs.FeatureSpec, valid, way_out: str) -> str:
    """Returns a note where a training evaluates test samples for want of a validation split, else
    an empty text.

    Args:
      way_out: how to make a validation split.
    """
    wants_validation = mode == "train" and valid and valid.split == fs.TEST
    if not wants_validation or fs.VALIDATION in spec.source_spec:
        return ""
    return (
        "the data set has no validation split: training evaluates the test split, and whatever is "
        f"chosen by its metrics is chosen on test samples. For a validation split {way_out}"
    )


def plan_of_tables(
    config: Config,
    tables: Sequence[tuple[str, int, int]],
    world_size: int,
    *,
    hotness: Sequence[int],
    wide_ids: bool,
    input_table_map: Sequence[int] | None = None,
    combined: Sequence[bool] | None = None,
    most_samples: int | None = None,
    memory=None,
    dense_bytes: float = 0.0,
):
    """Plans these tables (`nn.embedding.planner.plan`) as the flags specify.

    Args:
      tables: (name, rows, columns) of each.
      hotness: ids a sample of each feature.
      wide_ids: whether ids travel as int64.
      input_table_map, combined: see `nn.embedding.planner.make_features`.
      most_samples: bound of the samples of a batch that are looked up, where there is another than
        the batch's own size.
      memory: `runtime.hardware.memory.Memory` of a rank, the same on every rank; None: not known.
      dense_bytes: memory of a rank for the dense weights, their gradients and optimizer state, and
        for activations beyond those that `storage_reservation.step_bytes` counts.

    Raises:
      ValueError: the tables fit nowhere; the message has the ways out as flags.
    """
    from nn.embedding.planner import Limits, PlanError, Table, Workload, make_features, plan

    wanted = config.distribution
    budget = memory_budget(config, memory, dense_bytes)
    optimizer = config.optimizer.sparse_optimizer
    itemsize = {"float32": 4, "bfloat16": 2, "float16": 2}.get(wanted.exchange_dtype)

    try:
        inputs = range(len(tables)) if input_table_map is None else input_table_map
        workload = Workload(
            tuple(Table(*table) for table in tables),
            make_features(inputs, hotness, combined),
            world_size,
            global_batch_size=min(config.run.batch_size, most_samples or config.run.batch_size),
            state_bytes_per_element={"adagrad": 4, "adam": 8, "lazy_adam": 8}.get(optimizer, 0),
            state_bytes_per_row={"rowwise_adagrad": 4}.get(optimizer, 0),
            scratch_bytes_per_element={"adam": 8}.get(optimizer, 0),
            exchange_itemsize=itemsize or (2 if config.run.amp else 4),
            id_itemsize=8 if wide_ids else 4,
            dp_input=not wanted.model_parallel_input,
        )
        limits = Limits(
            wanted.column_slice_threshold,
            wanted.row_slice_threshold,
            wanted.data_parallel_threshold,
            _size_bytes(wanted.cpu_offloading_threshold_gb),
        )
        result = plan(workload, limits, wanted.dist_strategy, budget)
    except PlanError as error:
        raise ValueError(_with_flags(f"{error}{budget.advice}")) from None
    return replace(result, memory_note=budget.describe(result))


def memory_budget(config: Config, memory, dense_bytes: float):
    """Returns the memory of a rank that the tables may use (`nn.embedding.planner.MemoryBudget`).

    Flags win over what was read; `--plan_only`, which has no device, assumes one.

    Args:
      memory: `runtime.hardware.memory.Memory` of a rank, the same on every rank; None: not known.
      dense_bytes: see `plan_of_tables`.
    """
    from nn.embedding.planner import MemoryBudget
    from nn.embedding.planner.types import RESERVED_FRACTION

    wanted = config.distribution
    stated = wanted.plan_device_memory_gb
    device_bytes, host_bytes, source = memory or (None, None, "")
    if stated is not None:
        device_bytes, source = _size_bytes(stated), "--plan_device_memory_gb"
    elif wanted.plan_only:
        device_bytes = _size_bytes(ASSUMED_DEVICE_MEMORY_GB)
        source = f"{ASSUMED_DEVICE_MEMORY_GB} GB assumed; --plan_device_memory_gb states another"
    if wanted.plan_host_memory_gb is not None:
        host_bytes = _size_bytes(wanted.plan_host_memory_gb)
    elif host_bytes is not None:
        host_bytes = int(host_bytes * (1 - RESERVED_FRACTION))
    return MemoryBudget(device_bytes, host_bytes, source, dense_bytes, stated is None)


def _size_bytes(gigabytes: float | None) -> int | None:
    return None if gigabytes is None else round(gigabytes * 1e9)


def _with_flags(text: str) -> str:
    """Replaces the planner's arguments in its solutions by flags."""
    text = re.sub(
        r"host_memory_bytes=(\d+)",
        lambda found: f"--plan_host_memory_gb {math.ceil(int(found[1]) / 1e7) / 100:g}",
        text,
    )
    return text.replace("cpu_offloading_threshold_bytes", "--cpu_offloading_threshold_gb")


def evaluation_mapping(wanted: str, mode: str, spec: fs.FeatureSpec) -> str:
    """What `--eval_mapping auto` means: never the test rows while there are validation rows."""
    if wanted != "auto":
        return wanted
    first, second = fs.VALIDATION, fs.TEST
    if mode != "train":
        first, second = second, first
    if first not in spec.source_spec and second not in spec.source_spec:
        way_out = ", or not at all with --evals_per_epoch 0" if mode == "train" else ""
        raise ValueError(
            f"{spec.origin}: source_spec has neither '{first}' nor '{second}' rows to evaluate on: "
            f"evaluate on training rows with --eval_mapping train{way_out}"
        )
    return first if first in spec.source_spec else second
