"""The results page of `ncf_training`."""

import numpy as np

from benchmarks.dlrm_training.report import summary
from benchmarks.harness import machine
from benchmarks.harness.report import steps_table, verdicts
from benchmarks.ncf_training import workload

TARGET_RATIO = 1.5


def render(measurements, args, sides) -> tuple[str, bool]:
    """The page as Markdown, and whether our side reaches its target.

    Args:
      measurements: `ncf_training.Measurements`.
      args: the command's arguments.
      sides: names of our side and of the peers that count; others are for information.
    """
    table = steps_table(measurements, "data", args.shapes, sides[0], args.batch_size)
    page = ["# Training throughput of NeuMF", "", *_setting(measurements, args, sides)]
    page += ["", "## Training steps", "", *table]
    page += ["", "## Where the milliseconds go", "", *_parts_table(measurements)]
    targets = dict.fromkeys(args.shapes, TARGET_RATIO)
    lines, met = verdicts(measurements, args.shapes, sides, targets)
    return "\n".join([*page, "", "## Verdict", "", *lines, ""]), met


def _setting(measurements, args, sides) -> list[str]:
    names = ("rounds", "steps", "threads", "batch_size")
    command = [f"--{name} {getattr(args, name)}" for name in names]
    if tuple(args.shapes) != tuple(workload.SHAPES):
        command.insert(0, f"--shapes {' '.join(args.shapes)}")
    versions, (ours, *others) = measurements.versions, sides
    sizes = workload.of_shape(args.shapes[0], args.batch_size)
    losses = "; ".join(
        f"{shape} {', '.join(f'{loss:.4f}' for loss in values)}"
        for shape, values in measurements.first_losses.items()
    )
    return [
        f"`python -m benchmarks.ncf_training {' '.join(command)}`",
        "",
        *(f"- {name}: {fact}" for name, fact in machine.describe().items()),
        f"- {ours}: TensorFlow {versions[ours]}, model, trainer and optimizers of `ncf.py` (Adam, "
        "lazy Adam for the tables)",
        f"- {others[0]} and {others[1]}: torch {versions[others[0]]}, "
        "`benchmarks/ncf_training/peer.py`, "
        "default memory allocator; tables with sparse gradients and the optimizer that touches "
        "their rows only, as ours does, or with dense gradients and one fused Adam for all "
        "weights, which moves all rows at each step",
        "- memory kept: the same, but glibc keeps freed memory (`GLIBC_TUNABLES`); for "
        "information, as bfloat16 is; the target speaks of the faster plain one",
        f"- batch {sizes.batch_size:,}, float32, factors {sizes.factors}, layers {sizes.layers}, "
        f"dropout {sizes.dropout}, Adam {workload.LEARNING_RATE}, {workload.BETA1}, "
        f"{workload.BETA2}, {workload.EPSILON}",
        *(
            f"- {shape}: {workload.SHAPES[shape][0]:,} users, {workload.SHAPES[shape][1]:,} items; "
            + ", ".join(f"{count:,.0f} {name}" for name, count in facts.items())
            + " a batch"
            for shape, facts in measurements.facts.items()
        ),
        f"- made rows of these sizes, in memory, the same for all: {workload.NEGATIVES} uniform "
        "negatives of each interaction, users and items by power laws "
        f"({workload.USER_ALPHA}, {workload.ITEM_ALPHA}), shuffled",
        f"- same initial weights; without dropout our first losses are {losses}, the peers' equal "
        "within 0.2 %",
        f"- {args.threads} threads a side, one side at a time, steps a turn: {args.steps}, "
        f"{args.rounds} turns after 2 steps to warm up; median [quartiles] over the turns",
        "- other processes on this machine kept "
        f"{summary(measurements.foreign_cpu, '.2f')} cores busy during the turns",
    ]


def _parts_table(measurements) -> list[str]:
    table = [
        "Prefixes of the step and all of it, measured in turn after the rounds, medians; the "
        "update is the step less both passes.",
        "",
        "| data | side | part | ms |",
        "| --- | --- | --- | ---: |",
    ]
    for (side, shape), parts in measurements.parts.items():
        for part, ms in parts.items():
            table.append(f"| {shape} | {side} | {part} | {np.median(ms):.0f} |")
        update = np.median(parts["step"]) - np.median(parts["forward and backward"])
        table.append(f"| {shape} | {side} | update | {update:.0f} |")
    return table
