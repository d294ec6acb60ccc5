"""What flags mean to every recipe: the plan of its tables, the rows that it evaluates on."""

import math
import re
from collections.abc import Sequence
from typing import Any

from config import Config
from dataloading import feature_spec as fs


def model_arguments(config: Config, device, world) -> dict[str, Any]:
    """What the constructors of all models take from the flags.

    Args:
      device: `runtime.device.Device`.
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


def row_facts(train, valid) -> dict[str, int]:
    """How many rows a run trains and evaluates on, for the log."""
    rows = {"training_rows": train, "evaluation_rows": valid}
    return {name: of.num_rows for name, of in rows.items() if of}


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
):
    """The plan (nn/embedding/plan.py) of these tables that the flags ask for.

    Args:
      tables: (name, rows, columns) of each.
      hotness: ids a sample of each feature.
      wide_ids: whether ids travel as int64.
      input_table_map, combined: as `nn.embedding.plan.plan` has them.
      most_samples: bound of the samples of a batch that are looked up, where there is another than
        the batch's own size.

    Raises:
      ValueError: the tables fit nowhere; the message has the ways out as flags.
    """
    from nn.embedding.plan import PlanError, Table, plan

    wanted = config.distribution
    optimizer = config.optimizer.sparse_optimizer
    itemsize = {"float32": 4, "bfloat16": 2, "float16": 2}.get(wanted.exchange_dtype)

    def size_bytes(gigabytes: float | None) -> int | None:
        return None if gigabytes is None else round(gigabytes * 1e9)

    try:
        return plan(
            [Table(*table) for table in tables],
            world_size,
            strategy=wanted.dist_strategy,
            input_table_map=input_table_map,
            combined=combined,
            hotness=hotness,
            column_slice_threshold=wanted.column_slice_threshold,
            row_slice_threshold=wanted.row_slice_threshold,
            data_parallel_threshold=wanted.data_parallel_threshold,
            cpu_offloading_threshold_bytes=size_bytes(wanted.cpu_offloading_threshold_gb),
            device_memory_bytes=size_bytes(wanted.plan_device_memory_gb),
            host_memory_bytes=size_bytes(wanted.plan_host_memory_gb),
            global_batch_size=min(config.run.batch_size, most_samples or config.run.batch_size),
            state_bytes_per_element={"adagrad": 4, "adam": 8, "lazy_adam": 8}.get(optimizer, 0),
            state_bytes_per_row={"rowwise_adagrad": 4}.get(optimizer, 0),
            exchange_itemsize=itemsize or (2 if config.run.amp else 4),
            id_itemsize=8 if wide_ids else 4,
            dp_input=not wanted.model_parallel_input,
        )
    except PlanError as error:
        raise ValueError(_with_flags(str(error))) from None


def _with_flags(text: str) -> str:
    """The planner's ways out in the words of the command line."""
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
