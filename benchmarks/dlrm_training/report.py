"""The results page of `dlrm_training`."""

import numpy as np

from benchmarks.dlrm_training import workload
from benchmarks.harness import machine, training
from benchmarks.harness.report import (
    command,
    machine_facts,
    page,
    steps_table,
    summary,
    table,
    target,
    verdicts,
)

TARGET_RATIO = {"float32": 1.5, "bfloat16": 1.7}
TARGET_SHARE_OF_FLOOR = {"float32": 0.9, "bfloat16": 0.7}


def render(measurements, args, sides: tuple[str, str, str]) -> tuple[str, bool]:
    """The page, and whether our side reaches its target.

    Args:
        measurements: `training.TrainingMeasurements`.
        args: the command's arguments.
        sides: names of our side, the peer, and the peer that keeps its memory.
    """
    sizes = dict.fromkeys(workload.PRECISIONS, workload.BATCH_SIZE)
    sections = {
        "Training steps": steps_table(measurements, "precision", sizes),
        "The floor: the matrix products alone": _products_table(measurements),
        "Milliseconds of every part of our step": _parts_table(measurements),
    }
    targets = dict(TARGET_RATIO)
    if not machine.has_fast_bfloat16():
        del targets["bfloat16"]
    lines, met = verdicts(measurements, sides[1:2], targets)
    lines += _shares_of_floor(measurements)
    title = "Training throughput of DLRM"
    return page(title, _setting(measurements, args, sides), sections, lines), met


def _setting(measurements, args, sides) -> list[str]:
    ours, peer, pooled = sides
    return [
        command("dlrm_training", args, ("rounds", "steps", "threads")),
        "",
        *machine_facts(),
        f"- {ours}: TensorFlow {measurements.versions[ours]}, the recipe `dlrm.py` with its loader",
        f"- {peer}: torch {measurements.versions[peer]}, `benchmarks/dlrm_training/peer.py`, "
        "default memory allocator",
        f"- {pooled}: the same, but glibc keeps freed memory (`GLIBC_TUNABLES`); for information",
        f"- batch {workload.BATCH_SIZE:,}, {workload.NUM_NUMERICAL} numerical features, "
        f"{len(workload.TABLE_ROWS)} tables with {sum(workload.TABLE_ROWS):,} rows of "
        f"{workload.EMBEDDING_DIM}, bottom {workload.BOTTOM_MLP_DIMS}, top "
        f"{workload.TOP_MLP_DIMS}, SGD; {args.warmup_rounds} rounds to warm up",
        "- bfloat16 has a target on processors with AMX or AVX512-BF16",
        *training.setting(measurements, args),
    ]


def _products_table(measurements) -> list[str]:
    gflop = sum(product.gflop for product in workload.products())
    rows = []
    for (side, precision), values in measurements.product_ms.items():
        ms = np.sum(values, axis=1)
        rows.append((precision, side, summary(ms), summary(gflop / ms * 1e3)))
    return [
        f"{gflop:.0f} GFLOP per step: for each layer X W, G W^T and X^T G, for the interaction "
        "X X^T and twice S X.",
        "",
        *table(("precision", "multiplied by", "ms of all products", "GFLOP/s"), rows, num_text=2),
    ]


def _parts_table(measurements) -> list[str]:
    columns = {precision: parts for (_, precision), parts in measurements.parts.items()}
    names = list(next(iter(columns.values()), ()))
    rows = [(part, *(f"{parts[part]:.1f}" for parts in columns.values())) for part in names]
    rows.append(("sum", *(f"{sum(parts.values()):.1f}" for parts in columns.values())))
    return [
        "From TensorFlow's trace of the real step, one operation at a time "
        "(`--inter_op_parallelism 1`).",
        "",
        *table(("part", *columns), rows),
    ]


def _shares_of_floor(measurements) -> list[str]:
    lines = []
    skipped = np.array([product.skipped for product in workload.products()])
    for precision in measurements.first_losses:
        ms = np.asarray(measurements.step_ms[measurements.ours, precision])
        product_ms = np.asarray(measurements.product_ms[measurements.ours, precision])
        share = float(np.median(product_ms.sum(axis=1) / ms))
        strict = float(np.median(product_ms[:, ~skipped].sum(axis=1) / ms))
        verdict, _ = target(share, TARGET_SHARE_OF_FLOOR[precision])
        lines.append(
            f"- {precision}: {share:.0%} of the floor's speed; {verdict} ({strict:.0%} counting "
            "only the products that our step computes)"
        )
    return lines
