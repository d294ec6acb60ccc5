"""The results page of `dlrm_training`."""

import numpy as np

from benchmarks.dlrm_training import workload
from benchmarks.harness import machine

TARGET_RATIO = {"float32": 1.5, "bfloat16": 1.7}
TARGET_SHARE_OF_FLOOR = {"float32": 0.9, "bfloat16": 0.7}


def render(measurements, versions: dict, args, sides: tuple[str, str, str]) -> tuple[str, bool]:
    """The page as Markdown, and whether our side reaches its target.

    Args:
      measurements: `dlrm_training.Measurements`.
      versions: what each side says about itself.
      args: the command's arguments.
      sides: names of our side, the peer, and the peer that keeps its memory.
    """
    ours, peer, _ = sides
    page = ["# Training throughput of DLRM", "", *_setting(measurements, versions, args, sides)]
    page += ["", "## Training steps", "", *_steps_table(measurements, sides)]
    page += ["", "## The floor: the matrix products alone", ""]
    page += _products_table(measurements, (ours, peer))
    page += ["", "## Milliseconds of every part of our step", "", *_parts_table(measurements)]
    verdicts, met = _verdicts(measurements, ours, peer)
    return "\n".join([*page, "", "## Verdict", "", *verdicts, ""]), met


def summary(values, form: str = ".0f") -> str:
    """Median and quartiles."""
    low, middle, high = np.percentile(values, [25, 50, 75])
    return f"{middle:{form}} [{low:{form}}, {high:{form}}]"


def _setting(measurements, versions, args, sides) -> list[str]:
    ours, peer, pooled = sides
    command = f"python -m benchmarks.dlrm_training --rounds {args.rounds} --steps {args.steps}"
    losses = ", ".join(f"{loss:.4f}" for loss in measurements.first_losses["float32"])
    rows = sum(workload.TABLE_ROWS)
    return [
        f"`{command} --threads {args.threads}`",
        "",
        *(f"- {name}: {fact}" for name, fact in machine.describe().items()),
        f"- {ours}: TensorFlow {versions[ours]['version']}, the recipe `dlrm.py` with its loader",
        f"- {peer}: torch {versions[peer]['version']} (float32 products by "
        f"{versions[peer]['blas']}), `benchmarks/dlrm_training/peer.py`, default memory allocator",
        f"- {pooled}: the same, but glibc keeps freed memory (`GLIBC_TUNABLES`); for information, "
        "the targets speak of the plain one",
        f"- batch {workload.BATCH_SIZE:,}, {workload.NUM_NUMERICAL} numericals, "
        f"{len(workload.TABLE_ROWS)} tables with {rows:,} rows of {workload.EMBEDDING_DIM}, "
        f"bottom {workload.BOTTOM_MLP_DIMS}, top {workload.TOP_MLP_DIMS}, SGD; same rows and "
        f"initial weights on all sides (first float32 losses {losses} on each)",
        f"- {args.threads} threads a side, one side at a time, {args.rounds} rounds after "
        f"{args.warmup_rounds} to warm up, {args.steps} steps a turn; median [quartiles] over the "
        "rounds",
        "- other processes on this machine kept "
        f"{summary(measurements.foreign_cpu, '.2f')} cores busy during the turns",
    ]


def _steps_table(measurements, sides) -> list[str]:
    ours = sides[0]
    table = [
        "| precision | side | ms a step | samples/s | GFLOP/s | page faults a step | "
        "ours is faster by |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    gflop = sum(product.gflop for product in workload.products())
    for precision in workload.PRECISIONS:
        for side in sides:
            ms = np.asarray(measurements.step_ms[side, precision])
            ratio = ms / np.asarray(measurements.step_ms[ours, precision])
            table.append(
                f"| {precision} | {side} | {summary(ms)} | "
                f"{summary(workload.BATCH_SIZE / ms * 1e3)} | {gflop / np.median(ms) * 1e3:.0f} | "
                f"{np.median(measurements.faults[side, precision]):,.0f} | "
                f"{'' if side == ours else summary(ratio, '.2f')} |"
            )
    return table


def _products_table(measurements, sides) -> list[str]:
    gflop = sum(product.gflop for product in workload.products())
    table = [
        f"{gflop:.0f} GFLOP a step: for each layer X W, G W^T and X^T G, for the interaction X X^T "
        "and twice S X.",
        "",
        "| precision | multiplied by | ms of all products | GFLOP/s |",
        "| --- | --- | ---: | ---: |",
    ]
    for precision in workload.PRECISIONS:
        for side in sides:
            ms = np.sum(measurements.product_ms[side, precision], axis=1)
            rate = summary(gflop / ms * 1e3)
            table.append(f"| {precision} | {side} | {summary(ms)} | {rate} |")
    return table


def _parts_table(measurements) -> list[str]:
    table = [
        "From TensorFlow's trace of the real step, one operation at a time "
        "(`--inter_op_parallelism 1`).",
        "",
        f"| part | {' | '.join(workload.PRECISIONS)} |",
        f"| --- |{' ---: |' * len(workload.PRECISIONS)}",
    ]
    columns = [dict(measurements.parts[precision]) for precision in workload.PRECISIONS]
    for part in columns[0]:
        table.append(f"| {part} | {' | '.join(f'{column[part]:.1f}' for column in columns)} |")
    return [*table, f"| sum | {' | '.join(f'{sum(c.values()):.1f}' for c in columns)} |"]


def _verdicts(measurements, ours: str, peer: str) -> tuple[list[str], bool]:
    lines, all_met = [], True
    skipped = np.array([product.skipped for product in workload.products()])
    for precision in workload.PRECISIONS:
        ms = np.asarray(measurements.step_ms[ours, precision])
        ratio = float(np.median(np.asarray(measurements.step_ms[peer, precision]) / ms))
        target = TARGET_RATIO[precision]
        if precision == "bfloat16" and not machine.has_fast_bfloat16():
            verdict = "no target: this processor has neither AMX nor AVX512-BF16"
        else:
            all_met &= ratio >= target
            verdict = f"target {target}: {'met' if ratio >= target else 'MISSED'}"
        lines.append(f"- {precision}: {ratio:.2f} times PyTorch's samples per second; {verdict}")
        product_ms = np.asarray(measurements.product_ms[ours, precision])
        share = float(np.median(product_ms.sum(axis=1) / ms))
        strict = float(np.median(product_ms[:, ~skipped].sum(axis=1) / ms))
        aim = TARGET_SHARE_OF_FLOOR[precision]
        lines.append(
            f"- {precision}: {share:.0%} of the floor's speed; aim {aim:.0%}: "
            f"{'met' if share >= aim else 'MISSED'} ({strict:.0%} counting only the products that "
            "our step really does)"
        )
    return lines, all_met
