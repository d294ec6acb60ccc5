"""Pieces of the results pages of `ncf_training` and `sequence_training`."""

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.dlrm_training.report import summary


def steps_table(
    measurements, kind: str, names: Sequence[str], ours: str, batch_size: int
) -> list[str]:
    """Milliseconds and samples per second of all sides as Markdown.

    Args:
      measurements: `interleaved.Turns` with `versions` of the sides.
      kind: the word for what is trained, e.g. "model".
      names: what was trained.
      ours: our side, with which the others are compared.
    """
    table = [
        f"| {kind} | side | ms a step | samples/s | page faults a step | ours is faster by |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for name in names:
        for side in measurements.versions:
            if (side, name) not in measurements.step_ms:
                continue
            ms = np.asarray(measurements.step_ms[side, name])
            ratio = ms / np.asarray(measurements.step_ms[ours, name])
            table.append(
                f"| {name} | {side} | {summary(ms)} | {summary(batch_size / ms * 1e3)} | "
                f"{np.median(measurements.faults[side, name]):,.0f} | "
                f"{'' if side == ours else summary(ratio, '.2f')} |"
            )
    return table


def verdicts(
    measurements, names: Sequence[str], sides: Sequence[str], targets: Mapping[str, float]
) -> tuple[list[str], bool]:
    """How many times the fastest peer's speed ours is, as Markdown; whether all targets are met.

    Args:
      sides: our side and the peers that count.
      targets: of what was trained; without one it is for information.
    """
    ours, *peers = sides
    lines, all_met = [], True
    for name in names:
        ms = np.asarray(measurements.step_ms[ours, name])
        ratio, peer = min(
            (float(np.median(np.asarray(measurements.step_ms[side, name]) / ms)), side)
            for side in peers
        )
        verdict = "for information"
        if name in targets:
            all_met &= ratio >= targets[name]
            verdict = f"target {targets[name]}: {'met' if ratio >= targets[name] else 'MISSED'}"
        lines.append(f"- {name}: {ratio:.2f} times the samples per second of {peer}; {verdict}")
    return lines, all_met
