"""The results page of `sequence_training`."""

import numpy as np

from benchmarks.dlrm_training.report import summary
from benchmarks.harness import machine
from benchmarks.harness.report import steps_table, verdicts
from benchmarks.sequence_training import workload

TARGET_RATIO = {"sim": 1.3}  # the others are for information


def render(measurements, facts: dict, args, sizes, sides) -> tuple[str, bool]:
    """The page as Markdown, and whether our side reaches its target.

    Args:
      measurements: `sequence_training.Measurements`.
      facts: `sequence_workload.facts` of the rows.
      args: the command's arguments.
      sizes: `sequence_workload.Sizes`.
      sides: names of our side and of the peers that count; others are for information.
    """
    table = steps_table(measurements, "model", args.models, sides[0], sizes.batch_size)
    page = ["# Training throughput of SIM, DIEN and DIN", ""]
    page += _setting(measurements, facts, args, sizes, sides)
    page += ["", "## Training steps", "", *table]
    page += [
        "",
        "## Milliseconds of the parts of our step",
        "",
        *_parts_table(measurements, sides[0]),
    ]
    lines, met = verdicts(measurements, args.models, sides, TARGET_RATIO)
    return "\n".join([*page, "", "## Verdict", "", *lines, ""]), met


def _setting(measurements, facts, args, sizes, sides) -> list[str]:
    command = [f"--{name} {getattr(args, name)}" for name in ("rounds", "rounds_of_others")]
    command += [f"--{name} {getattr(args, name)}" for name in ("steps", "threads")]
    for name in ("batch_size", "items"):
        if getattr(args, name) != getattr(workload.Sizes, name):
            command.append(f"--{name} {getattr(args, name)}")
    if tuple(args.models) != workload.MODEL_TYPES:
        command.insert(0, f"--models {' '.join(args.models)}")
    versions, (ours, *others) = measurements.versions, sides
    losses = "; ".join(
        f"{model_type} {', '.join(f'{loss:.4f}' for loss in values)}"
        for model_type, values in measurements.first_losses.items()
    )
    distinct = ", ".join(
        f"{facts[f'distinct items, {model_type}']:,.0f} ({model_type})"
        for model_type in ("sim", "dien")
    )
    return [
        f"`python -m benchmarks.sequence_training {' '.join(command)}`",
        "",
        *(f"- {name}: {fact}" for name, fact in machine.describe().items()),
        f"- {ours}: TensorFlow {versions[ours]}, model, trainer and optimizers of `sim.py` (Adam, "
        "lazy Adam for the tables), rows in memory",
        f"- {others[0]} and {others[1]}: torch {versions[others[0]]}, "
        "`benchmarks/sequence_training/peer.py`, rows in memory, default memory allocator; tables "
        "with "
        "sparse gradients and the optimizer that touches their rows only, as ours does, or with "
        "dense gradients and one fused Adam for all weights, which moves all rows at each step",
        "- memory kept: the same, but glibc keeps freed memory (`GLIBC_TUNABLES`); for "
        "information, the targets speak of the faster plain one",
        f"- batch {sizes.batch_size:,}, float32, {sizes.users:,} users, {sizes.items:,} items, "
        f"{sizes.categories:,} categories, embeddings of {sizes.embedding_dim}, histories of "
        f"{sizes.history_length} ({sizes.long_seq_length} long), MLPs {sizes.stage_one_mlp_dims}, "
        f"{sizes.stage_two_mlp_dims}, {sizes.aux_mlp_dims}, learning rate "
        f"{workload.LEARNING_RATE}",
        f"- made rows: items, categories and users by power laws ({workload.ITEM_ALPHA}, "
        f"{workload.CATEGORY_ALPHA}, {workload.USER_ALPHA}), negatives from all items alike; "
        f"{facts['real steps']:.0f} of {sizes.history_length} steps of a history are real on "
        f"average, and a batch has {distinct} distinct items",
        f"- same rows and initial weights on all sides; our first losses {losses}, the others' "
        "equal within 0.2 %",
        f"- {args.threads} threads a side, one side at a time, {args.steps} steps a turn, "
        f"{args.rounds} turns ({args.rounds_of_others} of DIEN and DIN) after 3 steps to warm up; "
        "median [quartiles] over the turns",
        "- other processes on this machine kept "
        f"{summary(measurements.foreign_cpu, '.2f')} cores busy during the turns",
    ]


def _parts_table(measurements, ours: str) -> list[str]:
    table = [
        "Each measured by itself, medians; the whole step is that of the table above. Recurrences: "
        "GRU and AUGRU, once each, with the gradients of inputs, attention and weights.",
        "",
        "| model | part | ms |",
        "| --- | --- | ---: |",
    ]
    for model_type, parts in measurements.parts.items():
        for part, ms in parts.items():
            table.append(f"| {model_type} | {part} | {np.median(ms):.0f} |")
        step = np.median(measurements.step_ms[ours, model_type])
        update = step - np.median(parts["forward and backward"])
        table.append(f"| {model_type} | update (the step less both passes) | {update:.0f} |")
    return table
