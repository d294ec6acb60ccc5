"""The results page of `ncf_training`."""

import numpy as np

from benchmarks.harness import training
from benchmarks.harness.report import command, machine_facts, page, steps_table, table, verdicts
from benchmarks.ncf_training import workload

TARGET_RATIO = 1.5


def render(measurements, facts: dict, args, peers) -> tuple[str, bool]:
    """The page, and whether our side reaches its target.

    Args:
        measurements: `training.TrainingMeasurements`.
        facts: `workload.facts` of the rows of each shape.
        args: the command's arguments.
        peers: names of the sides that count; others are for information.
    """
    sizes = dict.fromkeys(args.shapes, args.batch_size)
    sections = {
        "Training steps": steps_table(measurements, "data", sizes),
        "Where the milliseconds go": _parts_table(measurements),
    }
    lines, met = verdicts(measurements, peers, dict.fromkeys(args.shapes, TARGET_RATIO))
    title = "Training throughput of NeuMF"
    return page(title, _setting(measurements, facts, args, peers), sections, lines), met


def _setting(measurements, facts, args, peers) -> list[str]:
    versions, (lazy, dense) = measurements.versions, peers
    sizes = workload.of_shape(args.shapes[0], args.batch_size)
    return [
        command("ncf_training", args, ("shapes", "rounds", "steps", "threads", "batch_size")),
        "",
        *machine_facts(),
        f"- {measurements.ours}: TensorFlow {versions[measurements.ours]}, model, trainer and "
        "optimizers of `ncf.py` (Adam, lazy Adam for the tables)",
        f"- {lazy} and {dense}: torch {versions[lazy]}, `benchmarks/ncf_training/peer.py`, default "
        "memory allocator; tables with sparse gradients and the optimizer that touches their rows "
        "only, as ours does, or with dense gradients and one fused Adam for all weights, which "
        "moves all rows at each step",
        "- memory kept: the same, but glibc keeps freed memory (`GLIBC_TUNABLES`); for "
        "information, as bfloat16 is; the target is relative to the faster plain one",
        f"- batch {sizes.batch_size:,}, float32, factors {sizes.factors}, layers {sizes.layers}, "
        f"dropout {sizes.dropout}, Adam {workload.LEARNING_RATE}, {workload.BETA1}, "
        f"{workload.BETA2}, {workload.EPSILON}; losses are compared without dropout",
        *(
            f"- {shape}: {workload.SHAPES[shape][0]:,} users, {workload.SHAPES[shape][1]:,} items; "
            + ", ".join(f"{count:,.0f} {name}" for name, count in counts.items())
            + " per batch"
            for shape, counts in facts.items()
        ),
        f"- generated rows of these sizes, in memory: {workload.NEGATIVES} uniform negatives per "
        "interaction, users and items by power laws "
        f"({workload.USER_ALPHA}, {workload.ITEM_ALPHA}), shuffled",
        *training.setting(measurements, args),
    ]


def _parts_table(measurements) -> list[str]:
    rows = []
    for (side, shape), parts in measurements.parts.items():
        medians = {part: np.median(ms) for part, ms in parts.items()}
        medians["update"] = medians["step"] - medians["forward and backward"]
        rows += [(shape, side, part, f"{ms:.0f}") for part, ms in medians.items()]
    return [
        "Prefixes of the step and all of it, measured in turn after the rounds, medians; the "
        "update is the step less both passes.",
        "",
        *table(("data", "side", "part", "ms"), rows, num_text=3),
    ]
