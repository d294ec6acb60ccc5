"""The results page of `serving`."""

import numpy as np

from benchmarks.harness.report import machine_facts, page, summary
from benchmarks.serving.models import CARDINALITIES, DEPLOYED, MAX_BATCH_SIZE, PLAIN, SIZES

# Sides whose scores are float32 ones of exact tables.
EXACT = ("fp32", "fp32, ensemble")

# Of which size, in which setting, how many times better than the plain SavedModel.
LATENCY, THROUGHPUT = (1, 1), (2048, 2)
LATENCY_TARGET, THROUGHPUT_TARGET = 2.0, 1.5


def render(measured, args) -> tuple[str, bool]:
    """The page as Markdown, and whether the targets are met.

    Args:
        measured: `ServingMeasurements`.
        args: the command's arguments.
    """
    sections = {
        f"Sizes of the {size}: `{' '.join(SIZES[size])}`": _table(measured, size)
        for size in args.sizes
    }
    lines, met = _verdict(measured, args)
    title = "A deployed DLRM on a Triton server"
    return page(title, _setting(measured, args), sections, lines), met


def _setting(measured, args) -> list[str]:
    sizes = "" if args.sizes == [*SIZES] else f" --sizes {' '.join(args.sizes)}"
    differences = "; ".join(
        f"{size}, {side}: {value:.1e}" for (size, side), value in measured.differences.items()
    )
    return [
        f"`python -m benchmarks.serving --rounds {args.rounds}{sizes}`",
        "",
        *machine_facts(),
        "- tritonserver 2.51 with the Python backend, one instance of each model, max_batch_size "
        f"{MAX_BATCH_SIZE:,}, dynamic batching; perf_analyzer asks over gRPC, with 2,048 rows "
        "our own client; server and client share the cores",
        f"- {len(CARDINALITIES)} tables of {sum(CARDINALITIES):,} rows in all; ids are uniform, "
        "which is the hardest on caches",
        f"- {PLAIN}: `benchmarks/serving/plain_saved_model.py`, the trained Keras model saved with "
        "one signature, TensorFlow's own threads",
        "- the others: `python -m deployment.deploy --backend local`, `--monolithic` but for the "
        "ensemble",
        f"- others kept {summary(measured.foreign_cpu, '.2f')} cores busy while the server "
        "was idle",
        f"- largest difference from the scores of {PLAIN}, over 2,048 rows: {differences}",
        "",
        "Medians [quartiles] over the rounds; latencies are those of a round's requests.",
    ]


def _table(measured, size: str) -> list[str]:
    lines = [
        "| rows of a request | in flight | side | p50 ms | p99 ms | rows/s | p50 lower by | "
        "rows/s higher by |",
        "| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for of_size, side, setting in sorted(measured.timings, key=lambda key: key[2]):
        if of_size != size:
            continue
        batch_size, in_flight, _ = setting
        timings = measured.timings[size, side, setting]
        p50, p99 = ([t.percentiles_ms[i] for t in timings] for i in (0, -1))
        faster, more = ratios(measured, size, side, setting)
        better = ("", "") if side == PLAIN else (summary(faster, ".2f"), summary(more, ".2f"))
        lines.append(
            f"| {batch_size:,} | {in_flight} | {side} | {summary(p50, '.2f')} | "
            f"{summary(p99, '.2f')} | {summary(_rows_per_s(timings, batch_size))} | "
            f"{better[0]} | {better[1]} |"
        )
    return lines


def _rows_per_s(timings, batch_size: int) -> np.ndarray:
    return np.asarray([batch_size * t.requests / t.elapsed_s for t in timings])


def ratios(measured, size: str, side: str, setting) -> tuple[np.ndarray, np.ndarray]:
    """Ratios of the peer's p50 to a side's, and of its throughput to the peer's, by rounds."""
    ours, theirs = (measured.timings[size, name, setting] for name in (side, PLAIN))
    p50, of_peer = (np.asarray([t.percentiles_ms[0] for t in ts]) for ts in (ours, theirs))
    more = _rows_per_s(ours, setting[0]) / _rows_per_s(theirs, setting[0])
    return of_peer / p50, more


def _verdict(measured, args) -> tuple[list[str], bool]:
    """Sentences; whether one side of each size meets each target."""
    lines, all_met = [], True
    for (batch_size, in_flight), number, target, what in (
        (LATENCY, 0, LATENCY_TARGET, "p50 lower"),
        (THROUGHPUT, 1, THROUGHPUT_TARGET, "throughput higher"),
    ):
        for size in args.sizes:
            reached = {
                side: float(np.median(ratios(measured, size, side, setting)[number]))
                for of_size, side, setting in measured.timings
                if of_size == size and side in DEPLOYED and setting[:2] == (batch_size, in_flight)
            }
            all_met &= max(reached.values()) >= target
            values = "; ".join(
                f"{side}: {value:.2f}, {'met' if value >= target else 'MISSED'}"
                for side, value in reached.items()
            )
            lines.append(
                f"- {size}, batch {batch_size:,}, {in_flight} in flight, {what} by (target "
                f"{target}): {values}"
            )
    return lines, all_met
