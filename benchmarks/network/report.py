"""The results page of `network`: computed, published and measured figures, kept separate."""

import importlib.metadata

import numpy as np

from benchmarks.dlrm_training import workload
from benchmarks.harness.report import foreign_cpu, machine_facts, page, summary
from benchmarks.network import models

RANKS = (8, 16, 32, 64, 128)
# The share of a step's bytes on the interfaces that headers and Horovod's own messages may take.
MOST_OVERHEAD = 0.02


def render(measured, args) -> tuple[str, bool]:
    """The page, and whether every target is met.

    Args:
        measured: `NetworkMeasurements`; None: nothing was measured.
        args: the command's arguments.
    """
    sections = {
        "NVIDIA's models: bytes and time of the network, computed": _computed(),
        "Compared with NVIDIA's throughputs on one machine": _compared_with_published(),
        "Compared with published steps on many machines": _compared_with_synthetic(),
    }
    verdicts, met = ["- nothing was measured (`--rounds 0`)"], True
    if measured is not None:
        sections["Bytes: the plan and the interfaces"] = _bytes_table(measured)
        sections["Time: the plan and links of a given speed"] = _times_table(measured)
        verdicts, met = _verdicts(measured)
    return page("Network traffic of a plan", _setting(measured, args), sections, verdicts), met


def _setting(measured, args) -> list[str]:
    names = ("machines", "ranks_per_machine", "batch_size", "rounds", "steps")
    command = [f"--{name} {getattr(args, name)}" for name in names]
    command.insert(3, f"--rates {','.join(map(str, args.rates))}")
    if tuple(args.table_rows) != workload.TABLE_ROWS:
        command.append(f"--table_rows {','.join(map(str, args.table_rows))}")
    lines = [
        f"`python -m benchmarks.network {' '.join(command)}`",
        "",
        *machine_facts(),
        "- *computed*: from the plan (`nn/embedding/planner/traffic.py`) and the links' "
        "specifications; *published*: NVIDIA's figures, on machines that we do not have; "
        "*measured*: here, between namespaces of this machine",
    ]
    if measured is None:
        return lines
    ranks = args.machines * args.ranks_per_machine
    return [
        *lines,
        f"- TensorFlow {measured.tensorflow}, Horovod {importlib.metadata.version('horovod')} with "
        "MPI over TCP",
        f"- {args.machines} machines (network namespaces) of {args.ranks_per_machine} rank"
        f"{'s' if args.ranks_per_machine > 1 else ''} with one thread, {ranks} ranks in all; links "
        "slowed down by a token bucket (tc tbf); all of them share this machine's cores",
        f"- the recipe `dlrm.py`, 26 tables with {sum(args.table_rows):,} rows of 128, global "
        f"batch {args.batch_size:,}, SGD",
        f"- the same processes train at every speed in turn, {args.steps} steps after one that is "
        f"not measured, {args.rounds} rounds; median [quartiles], ratios taken within a round",
        foreign_cpu(measured.foreign_cpu),
    ]


def _computed() -> list[str]:
    lines = [
        "All columns are computed. Global batch 65,536, machines of 8 ranks, 80 GB a rank, the "
        "recipe's own plan (`--dist_strategy auto`), `mixed` is `--amp`. MB (10^6 bytes) a step "
        "that the busiest rank sends or receives, whichever is more. ms: the least that these "
        "bytes take at the link's specified speed ("
        + "; ".join(f"{link.name}: {link.bytes_per_s / 1e9:g} GB/s" for link in _links())
        + ", in one direction). Million samples/s: what the network alone allows, NVLink within a "
        "machine and the named link between machines at once.",
        "",
        "| model | precision | ranks | MB within a machine | MB between machines | "
        + " | ".join(f"ms, {_short(link)}" for link in _links())
        + " | "
        + " | ".join(f"at most M samples/s, {_short(link)}" for link in models.BETWEEN)
        + " |",
        "| --- | --- | ---: | ---: | ---: |" + " ---: |" * (len(_links()) + len(models.BETWEEN)),
    ]
    for model in models.MODELS:
        for precision, amp in models.PRECISIONS.items():
            for ranks in RANKS:
                load = models.ranking_load(model, ranks, amp)
                cells = [f"{load.within / 1e6:.1f}", f"{load.between / 1e6:.1f}"]
                cells += [_ms(load.ms(link)) for link in _links()]
                cells += [_million(load.step_ms(link)) for link in models.BETWEEN]
                lines.append(f"| {model.name} | {precision} | {ranks} | {' | '.join(cells)} |")
    return lines


def _links() -> tuple:
    return (models.NVLINK, *models.BETWEEN)


def _short(link) -> str:
    return link.name.split(",")[0]


def _ms(ms: float) -> str:
    return f"{ms:.3g}" if ms else "-"


def _million(ms: float) -> str:
    return f"{models.BATCH_SIZE / ms / 1e3:.3g}"


def _compared_with_published() -> list[str]:
    lines = [
        "Published: training throughput on one DGX A100 (8 x A100 80 GB), global batch 65,536 "
        "(DLRM: the README of NVIDIA's recipe; DCNv2: `doc/DCNv2.md` of the same). The "
        "milliseconds of a step are 65,536 over it. Computed: the least time of the plan's bytes "
        "over NVLink, and its share of the published step.",
        "",
        "| model | GPUs | precision | published M samples/s | published, ms per step | computed: "
        "MB per rank | computed: ms over NVLink | computed / published |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    of_name = {model.name: model for model in models.MODELS}
    for row in models.PUBLISHED:
        for precision, amp in models.PRECISIONS.items():
            rate = row.mixed if amp else row.tf32
            load = models.ranking_load(of_name[row.model], row.gpus, amp)
            step_ms, network_ms = models.BATCH_SIZE / rate * 1e3, load.ms(models.NVLINK)
            lines.append(
                f"| {row.model} | {row.gpus} | {precision} | {rate / 1e6:g} | {step_ms:.2f} | "
                f"{load.within / 1e6:.1f} | {network_ms:.2f} | {network_ms / step_ms:.2f} |"
            )
    return lines


def _compared_with_synthetic() -> list[str]:
    lines = [
        "NVIDIA published no throughput of DLRM or DCNv2 on several machines; these are the "
        "synthetic models of Merlin's distributed-embeddings. Published: ms per step on DGX A100, "
        "global batch 65,536, Adagrad. Computed: their tables in our planner as they were started "
        "(memory_balanced, column slices above 1,280 Mi elements, model-parallel input, float32), "
        "over NVLink and InfiniBand HDR at once.",
        "",
        "| model | GPUs | published, ms per step | computed: MB within a machine | computed: MB "
        "between machines | computed: ms of the network | computed / published |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for model in models.SYNTHETIC:
        for gpus, step_ms in model.step_ms.items():
            load = models.synthetic_load(model, gpus)
            network_ms = load.step_ms(models.HDR)
            lines.append(
                f"| {model.name} | {gpus} | {step_ms:g} | {load.within / 1e6:.1f} | "
                f"{load.between / 1e6:.1f} | {network_ms:.2f} | {network_ms / step_ms:.2f} |"
            )
    return lines


def _busiest(planned) -> float:
    """Bytes of a step in the busier direction of the busiest machine's link."""
    return max(size for ways in planned for size in ways)


def overhead(measured, setting: str) -> np.ndarray:
    """Bytes on the interfaces over the plan's, of all machines, directions, rounds and speeds."""
    planned = np.asarray(measured.planned[setting])
    turns = [
        turn for (name, _), turns in measured.passed.items() if name == setting for turn in turns
    ]
    return (np.asarray(turns) / planned).ravel()


def predicted_ms(measured, setting: str, rate: int) -> np.ndarray:
    """The step without a limit, and the plan's bytes at the link's speed; a value a round."""
    network_ms = _busiest(measured.planned[setting]) * 8 / (rate * 1e6) * 1e3
    return np.asarray(measured.step_ms[setting, None]) + network_ms


def _bytes_table(measured) -> list[str]:
    lines = [
        "MB (10^6 bytes) a step out of the busiest machine. Measured: what Linux counted on its "
        "interface at all speeds, headers and Horovod's own messages included; the ratio is of "
        "every machine and direction. While ranks wait for work, Horovod's looks for it pass "
        f"{measured.idle_bytes_per_s / 1e6:.2f} MB/s. In row slices the plan counts different ids "
        "as if they were uniform; these rows are skewed.",
        "",
        "| setting | computed | measured | measured / computed |",
        "| --- | ---: | ---: | ---: |",
    ]
    for setting, planned in measured.planned.items():
        turns = [
            t for (name, _), turns in measured.passed.items() if name == setting for t in turns
        ]
        passed = [_busiest(turn) / 1e6 for turn in turns]
        lines.append(
            f"| {setting} | {_busiest(planned) / 1e6:.3f} | {summary(passed, '.3f')} | "
            f"{summary(overhead(measured, setting), '.4f')} |"
        )
    return lines


def _rates(measured) -> list[int]:
    return sorted({rate for _, rate in measured.step_ms if rate is not None}, reverse=True)


def _times_table(measured) -> list[str]:
    lines = [
        "Milliseconds per step. Computed: the network alone, the plan's bytes of the busiest "
        "machine over the link's speed; with the measured step without a limit added, the "
        "prediction for a "
        "step that computes and sends one after the other. Overlap makes a step shorter than that; "
        "headers, waiting for each other, and MPI's acknowledgements on a busy way back make it "
        "longer. Share of the link: the network alone over what the limit added to the step.",
        "",
        "| setting | Mbit/s | computed: network alone | measured without a limit + computed | "
        "measured | measured / predicted | share of the link |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for setting, planned in measured.planned.items():
        base = np.asarray(measured.step_ms[setting, None])
        lines.append(f"| {setting} | no limit | | | {summary(base)} | | |")
        for rate in _rates(measured):
            predicted = predicted_ms(measured, setting, rate)
            step_ms = np.asarray(measured.step_ms[setting, rate])
            network_ms = _busiest(planned) * 8 / rate / 1e3
            added_ms = np.median(step_ms - base)
            share = f"{network_ms / added_ms:.2f}" if added_ms > 0 else "-"
            lines.append(
                f"| {setting} | {rate:,} | {network_ms:.0f} | {np.median(predicted):.0f} | "
                f"{summary(step_ms)} | {summary(step_ms / predicted, '.2f')} | {share} |"
            )
    return lines


def _verdicts(measured) -> tuple[list[str], bool]:
    lines, all_met = [], True
    for setting in measured.planned:
        ratios, exact = overhead(measured, setting), setting in measured.exact
        verdict = "for information"
        if exact:
            met = ratios.min() >= 1 and np.median(ratios) <= 1 + MOST_OVERHEAD
            all_met &= bool(met)
            verdict = f"target 1 to {1 + MOST_OVERHEAD:g}: {'met' if met else 'MISSED'}"
        lines.append(
            f"- {setting}: {np.median(ratios):.4f} of the plan's bytes on the interfaces; {verdict}"
        )
        for rate in _rates(measured) if exact else ():
            bound_ms = _busiest(measured.planned[setting]) * 8 / rate / 1e3
            fastest = min(measured.step_ms[setting, rate])
            met = fastest >= bound_ms
            all_met &= bool(met)
            lines.append(
                f"- {setting}, {rate:,} Mbit/s: the fastest turn took "
                f"{fastest / bound_ms:.2f} of the least time by the plan; target 1 or more: "
                f"{'met' if met else 'MISSED'}"
            )
    return lines, all_met
