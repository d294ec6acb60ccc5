"""The results page of `sequence_training`."""

import numpy as np

from benchmarks.harness import training
from benchmarks.harness.report import command, machine_facts, page, steps_table, table, verdicts
from benchmarks.sequence_training import workload

TARGET_RATIO = {"sim": 1.3}  # the others are for information
FLAGS = ("models", "rounds", "rounds_of_others", "steps", "threads", "batch_size", "items")


def render(measurements, facts: dict, args, sizes, peers) -> tuple[str, bool]:
    """The page, and whether our side reaches its target.

    Args:
        measurements: `training.TrainingMeasurements`.
        facts: `workload.facts` of the rows.
        args: the command's arguments.
        sizes: `workload.SequenceSizes`.
        peers: names of the sides that count; others are for information.
    """
    sections = {
        "Training steps": steps_table(
            measurements, "model", dict.fromkeys(args.models, sizes.batch_size)
        ),
        "Milliseconds of the parts of our step": _parts_table(measurements),
    }
    lines, met = verdicts(measurements, peers, TARGET_RATIO)
    setting = _setting(measurements, facts, args, sizes, peers)
    return page("Training throughput of SIM, DIEN and DIN", setting, sections, lines), met


def _setting(measurements, facts, args, sizes, peers) -> list[str]:
    versions, (lazy, dense) = measurements.versions, peers
    distinct = ", ".join(
        f"{facts[f'distinct items, {model_type}']:,.0f} ({model_type})"
        for model_type in ("sim", "dien")
    )
    return [
        command("sequence_training", args, FLAGS),
        "",
        *machine_facts(),
        f"- {measurements.ours}: TensorFlow {versions[measurements.ours]}, model, trainer and "
        "optimizers of `sim.py` (Adam, lazy Adam for the tables), rows in memory",
        f"- {lazy} and {dense}: torch {versions[lazy]}, `benchmarks/sequence_training/peer.py`, "
        "rows in memory, default memory allocator; tables with sparse gradients and the optimizer "
        "that touches their rows only, as ours does, or with dense gradients and one fused Adam "
        "for all weights, which moves all rows at each step",
        "- memory kept: the same, but glibc keeps freed memory (`GLIBC_TUNABLES`); for "
        "information, the targets are relative to the faster plain one",
        f"- batch {sizes.batch_size:,}, float32, {sizes.users:,} users, {sizes.items:,} items, "
        f"{sizes.categories:,} categories, embeddings of {sizes.embedding_dim}, histories of "
        f"{sizes.history_length} ({sizes.long_seq_length} long), MLPs {sizes.stage_one_mlp_dims}, "
        f"{sizes.stage_two_mlp_dims}, {sizes.aux_mlp_dims}, learning rate "
        f"{workload.LEARNING_RATE}",
        f"- generated rows: items, categories and users by power laws ({workload.ITEM_ALPHA}, "
        f"{workload.CATEGORY_ALPHA}, {workload.USER_ALPHA}), uniform negatives; "
        f"{facts['real steps']:.0f} of {sizes.history_length} steps of a history are real on "
        f"average, and a batch has {distinct} distinct items",
        *training.setting(measurements, args),
    ]


def _parts_table(measurements) -> list[str]:
    rows = []
    for (_, model_type), parts in measurements.parts.items():
        medians = {part: np.median(ms) for part, ms in parts.items()}
        update = medians["step"] - medians["forward and backward"]
        medians["update (the step less both passes)"] = update
        rows += [(model_type, part, f"{ms:.0f}") for part, ms in medians.items()]
    return [
        "Measured in turn after the rounds, medians. Recurrences: GRU and AUGRU, once each, with "
        "the gradients of inputs, attention and weights.",
        "",
        *table(("model", "part", "ms"), rows, num_text=2),
    ]
