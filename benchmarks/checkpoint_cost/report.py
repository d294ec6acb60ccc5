"""The results page of `checkpoint_cost`."""

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.checkpoint_cost.worker import PARTS
from benchmarks.dlrm_training import workload
from benchmarks.harness import machine
from benchmarks.harness.report import machine_facts, page, summary

TARGET_COST = 0.05

# Steps after a save that may be slower for it: it is on the disk before they are over.
STEPS_BEHIND = 20


def render(measured: Sequence[tuple], args, table_rows: int) -> tuple[str, bool]:
    """The page as Markdown, and whether saving costs no more than the target.

    Args:
        measured: pairs of `CheckpointSetting` and `CheckpointMeasurements`.
        args: the command's arguments.
        table_rows: rows of each table.
    """
    sections = {
        "Training with and without saving": _throughput_table(measured, args),
        "Seconds that a save adds": _seconds_table(measured, args),
        "A save": _save_table(measured),
        "Parts of a save": _parts_table(measured),
    }
    verdicts, met = _verdicts(measured, args)
    title = "Cost of checkpoints to the training throughput"
    return page(title, _setting(measured, args, table_rows), sections, verdicts), met


def progress(measured: dict) -> str:
    """One line on a round that is done."""
    saving, plain = measured["saving"], measured["plain"]
    return (
        f"{saving['turn_s']:.2f} s with a save (waited {saving['copy_s']:.2f} s, on the disk after "
        f"{saving['disk_s']:.2f} s), {plain['turn_s']:.2f} s without"
    )


def ratios(measurements) -> np.ndarray:
    """Samples per second with saving over those without, a value a round."""
    return _of_rounds(measurements, lambda r: r["plain"]["turn_s"] / r["saving"]["turn_s"])


def within_turns(measurements) -> np.ndarray:
    """Cost of a save to the turn that it begins, one value per round: what training waits, and
    what the next steps take more than the later ones of the same turn."""

    def cost(measured: dict) -> float:
        turn = measured["saving"]
        behind = turn["steps_s"][:STEPS_BEHIND]
        later = turn["steps_s"][STEPS_BEHIND:] or behind
        step_s = float(np.median(later))
        added_s = turn["copy_s"] + turn["rest_s"] + sum(behind) - len(behind) * step_s
        return added_s / (len(turn["steps_s"]) * step_s + added_s)

    return _of_rounds(measurements, cost)


def _of_rounds(measurements, value: Callable[[dict], float]) -> np.ndarray:
    return np.asarray([value(measured) for measured in measurements.rounds])


def _setting(measured, args, table_rows: int) -> list[str]:
    versions = measured[0][1].versions
    turns = [r[side] for _, m in measured for r in m.rounds for side in ("saving", "plain")]
    foreign = {
        saving: summary([t["foreign_cpu"] for t in turns if ("copy_s" in t) == saving], ".2f")
        for saving in (True, False)
    }
    return [
        *(f"- `{command}`" for _, m in measured for command in m.commands),
        *machine_facts(),
        f"- checkpoints on: {machine.describe_disk(args.folder)}",
        f"- TensorFlow {versions['tensorflow']}, NumPy {versions['numpy']}, xxhash "
        f"{versions['xxhash']}",
        f"- the recipe `dlrm.py` with its loader: batch {args.batch_size:,}, "
        f"{workload.NUM_NUMERICAL} numerical features, {len(workload.TABLE_ROWS)} tables with "
        f"{table_rows:,} rows of {workload.EMBEDDING_DIM} each, bottom {workload.BOTTOM_MLP_DIMS}, "
        f"top {workload.TOP_MLP_DIMS}; {args.threads} threads",
        f"- a round is a turn with a save (it is begun, then come {args.steps} steps; if it is not "
        f"on the disk after them, it is waited for) and a turn of {args.steps} steps without; the "
        "order alternates. One process, one model; default flags, two checkpoints are kept, so "
        "that every save deletes one. Median [quartiles] over the rounds, ratios within a round",
        f"- other processes kept {foreign[False]} cores busy during turns without a save, and "
        f"{foreign[True]}, the system's own writers among them, during turns with one",
    ]


def _throughput_table(measured, args) -> list[str]:
    table = [
        f"| setting | rounds | samples/s without | samples/s, a save every {args.steps} steps | "
        "of the samples/s without | cost within a turn |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for setting, m in measured:
        rates = (
            _of_rounds(m, lambda r, s=side: args.steps * args.batch_size / r[s]["turn_s"])
            for side in ("plain", "saving")
        )
        without, with_saves = (summary(rate) for rate in rates)
        table.append(
            f"| {setting.label} | {len(m.rounds)} | {without} | {with_saves} | "
            f"{summary(ratios(m), '.3f')} | {summary(100 * within_turns(m), '.1f')} % |"
        )
    return [
        *table,
        "",
        "Turns differ by some percent with or without saves. The cost within a turn does not feel "
        f"it: the training's wait, and the extra time of the {STEPS_BEHIND} steps after a "
        "save over the later ones of the same turn.",
    ]


def _seconds_table(measured, args) -> list[str]:
    table = [
        f"To the seconds of {args.steps} steps; the steps are slower while the thread writes. CPU: "
        "all threads of the process.",
        "",
        f"| setting | {args.steps} steps without | a save adds | training waits for the copy | "
        "waits for the disk at the end | slower steps | CPU seconds added |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for setting, m in measured:

        def added(r: dict, key: str = "turn_s") -> float:
            return r["saving"][key] - r["plain"][key]

        values = (
            (lambda r: r["plain"]["turn_s"], ".1f"),
            (added, ".2f"),
            (lambda r: r["saving"]["copy_s"], ".2f"),
            (lambda r: r["saving"]["rest_s"], ".2f"),
            (lambda r: added(r) - r["saving"]["copy_s"] - r["saving"]["rest_s"], ".2f"),
            (lambda r: added(r, "cpu_s"), ".2f"),
        )
        cells = (summary(_of_rounds(m, value), form) for value, form in values)
        table.append(f"| {setting.label} | {' | '.join(cells)} |")
    return table


def _save_table(measured) -> list[str]:
    table = [
        "Memory: the largest resident size (VmHWM) in turns with a save, in those without after "
        "the first save, and in steps before it.",
        "",
        "| setting | MiB saved | training waits, s | on the disk after, s | MiB/s | "
        "MiB of memory before | without | saving | more than before |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for setting, m in measured:
        disk_s = _of_rounds(m, lambda r: r["saving"]["disk_s"])
        peaks = {side: max(r[side]["peak_mib"] for r in m.rounds) for side in ("plain", "saving")}
        more = max(r["saving"]["peak_mib"] - r["before_mib"] for r in m.rounds)
        table.append(
            f"| {setting.label} | {m.size_mib:,.0f} | "
            f"{summary(_of_rounds(m, lambda r: r['saving']['copy_s']), '.2f')} | "
            f"{summary(disk_s, '.1f')} | {summary(m.size_mib / disk_s)} | "
            f"{max(r['before_mib'] for r in m.rounds):,.0f} | {peaks['plain']:,.0f} | "
            f"{peaks['saving']:,.0f} | {more:,.0f} |"
        )
    return table


def _parts_table(measured) -> list[str]:
    measured = [(setting, m) for setting, m in measured if m.parts]
    if not measured:
        return ["Not measured (`--parts 0`)."]
    columns = [f"{setting.label}: s | MiB/s" for setting, _ in measured]
    table = [
        "Each part alone, one thread, of the same blocks; nothing is trained. The "
        "training waits for the first four, a thread does the rest. Medians.",
        "",
        f"| part | {' | '.join(columns)} |",
        f"| --- |{' ---: | ---: |' * len(measured)}",
    ]
    for part in PARTS:
        cells = []
        for _, m in measured:
            seconds = float(np.median([parts[part] for parts in m.parts]))
            cells.append(f"{seconds:.2f} | {m.size_mib / seconds:,.0f}")
        table.append(f"| {part} | {' | '.join(cells)} |")
    return table


def _verdicts(measured, args) -> tuple[list[str], bool]:
    lines, all_met = [], True
    for setting, m in measured:
        cost, turns = float(np.median(within_turns(m))), 1 - float(np.median(ratios(m)))
        verdict = "for information"
        if setting.has_target:
            all_met &= cost <= TARGET_COST
            met = "met" if cost <= TARGET_COST else "MISSED"
            verdict = f"target at most {TARGET_COST:.0%}: {met}"
        lines.append(
            f"- {setting.label}: a save of {m.size_mib:,.0f} MiB every {args.steps} steps costs "
            f"{cost:.1%} of the samples per second (turn against turn {turns:.1%}); {verdict}"
        )
    return lines, all_met
