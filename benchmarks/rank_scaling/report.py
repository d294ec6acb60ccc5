"""The results page of `rank_scaling`."""

import importlib.metadata
import subprocess
from collections.abc import Sequence

import numpy as np

from benchmarks.dlrm_training import workload
from benchmarks.dlrm_training.step_parts import in_order
from benchmarks.harness.report import foreign_cpu, machine_facts, page, summary, table, target
from nn.embedding.planner.traffic import KINDS

TARGET_RATIO = 0.85
TARGET_SETTING = "float32"


def render(measured: Sequence, args, missing: dict[str, str]) -> tuple[str, bool]:
    """The page as Markdown, and whether the ranks reach their target.

    Args:
        measured: `RankMeasurements` of each batch size; their first side is the one rank.
        args: the command's arguments.
        missing: launchers that this machine does not have, and why.
    """
    sections = {
        "Training steps": _steps_table(measured),
        "CPU time and memory of each rank": _cpu_table(measured),
        "Bytes exchanged": _bytes_table(measured),
        "Where the time goes": _parts_tables(measured),
    }
    verdicts, met = _verdicts(measured)
    title = "Training on several ranks compared with one"
    return page(title, _setting(measured, args, missing), sections, verdicts), met


def ratios(measured, side: str, setting: str) -> np.ndarray:
    """Samples per second of a side over those of the one rank, one value per round."""
    one = np.asarray(measured.step_ms[measured.sides[0], setting])
    return one / np.asarray(measured.step_ms[side, setting])


def _setting(measured, args, missing) -> list[str]:
    command = [f"--batch_sizes {','.join(map(str, args.batch_sizes))}"]
    command += [f"--{name} {getattr(args, name)}" for name in ("rounds", "warmup_rounds", "steps")]
    command += [f"--{name} {getattr(args, name)}" for name in ("trace_steps", "threads", "ranks")]
    command += [f"--launchers {','.join(args.launchers)}"]
    command += [f"--precisions {','.join(args.precisions)}"]
    if tuple(args.table_rows) != workload.TABLE_ROWS:
        command += [f"--table_rows {','.join(map(str, args.table_rows))}"]
    lines = [
        f"`python -m benchmarks.rank_scaling {' '.join(command)}`",
        "",
        *machine_facts(),
        f"- {_versions(measured[0])}",
        *(f"- not measured, {launcher}: {why}" for launcher, why in missing.items()),
        f"- the recipe `dlrm.py` with its loader: {workload.NUM_NUMERICAL} numerical features, "
        f"{len(args.table_rows)} tables with {sum(args.table_rows):,} rows of "
        f"{workload.EMBEDDING_DIM}, bottom {workload.BOTTOM_MLP_DIMS}, top "
        f"{workload.TOP_MLP_DIMS}, SGD; every table on one rank, as the default plan places them",
        "- a side is one process a rank; the others are stopped during its turn of "
        f"{args.steps} steps, {args.rounds} rounds after {args.warmup_rounds} to warm up; median "
        "[quartiles] over the rounds, ratios taken within a round",
    ]
    for f in measured:
        for setting, losses in f.first_losses.items():
            lines.append(
                f"- first losses of all sides at batch {f.batch_size:,}, {setting}: "
                f"{', '.join(f'{loss:.5f}' for loss in losses)}"
            )
    return [*lines, foreign_cpu([cores for f in measured for cores in f.foreign_cpu])]


def _versions(measured) -> str:
    tensorflow = measured.described[measured.sides[0]][0]["tensorflow"]
    horovod = importlib.metadata.version("horovod")
    try:
        version = subprocess.run(
            ["mpirun", "--version"], capture_output=True, text=True, check=True
        )
        mpi = version.stdout.splitlines()[0]
    except FileNotFoundError:
        mpi = "no mpirun"
    return f"TensorFlow {tensorflow}, Horovod {horovod}, {mpi}"


def _cells(measured):
    """Each (measurements, setting, side)."""
    return [(f, setting, side) for f in measured for setting in f.settings for side in f.sides]


def _steps_table(measured) -> list[str]:
    columns = ("side", "precision", "global batch", "ms per step", "samples/s")
    rows = []
    for f, setting, side in _cells(measured):
        ms = np.asarray(f.step_ms[side, setting])
        ratio = "" if side == f.sides[0] else summary(ratios(f, side, setting), ".3f")
        speed = summary(f.batch_size / ms * 1e3)
        rows.append((side, setting, f"{f.batch_size:,}", summary(ms), speed, ratio))
    return table((*columns, "of one rank's samples/s"), rows, num_text=2)


def _cpu_table(measured) -> list[str]:
    table = [
        "Median CPU milliseconds per step in the program and in the system. Memory: the largest "
        "resident size of a rank in the whole run, all precisions.",
        "",
        "| global batch | precision | side | rank | program | system | sum of the ranks | GiB |",
        "| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for f, setting, side in _cells(measured):
        by_rank = np.median(f.cpu_ms[side, setting], axis=0)
        for rank, (user, system) in enumerate(by_rank):
            total = "" if rank else f"{by_rank.sum():.0f}"
            table.append(
                f"| {f.batch_size:,} | {setting} | {side} | {rank} | {user:.0f} | {system:.0f} | "
                f"{total} | {f.described[side][rank]['peak_kib'] / 2**20:.2f} |"
            )
    return table


def _bytes_table(measured) -> list[str]:
    table = [
        "MB (10^6 bytes) per step that a rank sends to others, by the plan of the tables "
        "(`plan_traffic`); dense gradients in a ring: 2 (n - 1) / n of their size. The plan of a "
        "batch is the same with each launcher.",
        "",
        "| global batch | precision | rank | ids | vectors | gradients of vectors | copied tables "
        "| dense gradients | sum |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for f in measured:
        for setting in f.settings:
            for rank, exchanged_bytes in enumerate(f.exchanged[f.sides[-1], setting]):
                sent = [exchanged_bytes[kind] for kind in KINDS]
                texts = " | ".join(f"{size / 1e6:.1f}" for size in (*sent, sum(sent)))
                table.append(f"| {f.batch_size:,} | {setting} | {rank} | {texts} |")
    return table


def _parts_tables(measured) -> list[str]:
    lines = [
        "Milliseconds per step from TensorFlow's trace of the real step on every rank, one "
        "operation at a time (`--inter_op_parallelism 1`). An exchange has the time in which it "
        "is under way and nothing else runs on its rank: moving bytes, and waiting for the other "
        "ranks."
    ]
    for f in measured:
        for setting in f.settings:
            columns = {
                f"{side}: rank {rank}": parts
                for side in f.sides
                for rank, parts in enumerate(f.parts.get((side, setting), ()))
            }
            if not columns:
                continue
            lines += ["", f"Batch {f.batch_size:,}, {setting}:", ""]
            names = in_order({part for parts in columns.values() for part in parts})
            rows = [(n, *(f"{p.get(n, 0.0):.1f}" for p in columns.values())) for n in names]
            rows.append(("sum", *(f"{sum(parts.values()):.1f}" for parts in columns.values())))
            lines += table(("part", *columns), rows)
    return lines


def _verdicts(measured) -> tuple[list[str], bool]:
    lines, all_met = [], True
    for f, setting, side in _cells(measured):
        if side == f.sides[0]:
            continue
        ratio = float(np.median(ratios(f, side, setting)))
        verdict = "for information"
        if setting == TARGET_SETTING:
            verdict, met = target(ratio, TARGET_RATIO)
            all_met &= met
        lines.append(
            f"- batch {f.batch_size:,}, {setting}, {side}: {ratio:.3f} of one rank's samples per "
            f"second; {verdict}"
        )
    return lines, all_met
