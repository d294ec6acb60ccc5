"""Tables of the results, over the splits."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.default_settings.cells import SIMPLE, Cell
from benchmarks.harness.result_page import Page, table

# Table -> model -> results of the splits.
Results = Mapping[str, Mapping[str, Sequence[Cell]]]

LEAST_GAP = -0.01


class Gap(NamedTuple):
    """Test AUC of a model less that of the better simple model.

    Attributes:
        mean: over the splits.
        error: its standard error; NaN of one split.
    """

    mean: float
    error: float

    def __str__(self) -> str:
        return f"{self.mean:+.4f}" + ("" if np.isnan(self.error) else f" ± {self.error:.4f}")

    @property
    def is_behind(self) -> bool:
        """True if the gap is below the least one by more than its standard error."""
        return self.mean + np.nan_to_num(self.error) < LEAST_GAP


def better_simple(models: Mapping[str, Sequence[Cell]]) -> str:
    """Returns the simple model with the higher mean test AUC."""
    return max(SIMPLE, key=lambda name: np.mean([cell.auc for cell in models[name]]))


def gap_of(models: Mapping[str, Sequence[Cell]], model: str) -> Gap:
    """Returns the gap of a model on a table, by the differences within the splits."""
    pairs = zip(models[model], models[better_simple(models)], strict=True)
    gaps = [ours.auc - simple.auc for ours, simple in pairs]
    error = np.std(gaps, ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.nan
    return Gap(float(np.mean(gaps)), float(error))


def results_table(results: Results, models: Sequence[str]) -> list[str]:
    """Returns the test AUC of all models, and the gaps of `models`."""
    columns = ("table", "training rows", *SIMPLE, *models, *(f"{name}, gap" for name in models))
    rows = []
    for name, by_model in results.items():
        aucs = (f"{np.mean([c.auc for c in by_model[m]]):.4f}" for m in (*SIMPLE, *models))
        gaps = (gap_of(by_model, model) for model in models)
        rows.append((name, f"{by_model[SIMPLE[0]][0].rows:,}", *aucs, *gaps))
    return table(columns, rows)


def seconds_table(results: Results, models: Sequence[str]) -> list[str]:
    """Returns median and largest wall time of the commands that train `models`."""
    rows = []
    for name, by_model in results.items():
        times = [[cell.elapsed_s for cell in by_model[model]] for model in models]
        texts = (f"{np.median(values):.0f} ({max(values):.0f})" for values in times)
        rows.append((name, f"{by_model[SIMPLE[0]][0].rows:,}", *texts))
    return table(("table", "training rows", *models), rows)


def judge(page: Page, results: Results, model: str) -> None:
    """Adds the verdicts on a model: mean gap, tables far behind, tables ahead."""
    gaps = {name: gap_of(by_model, model) for name, by_model in results.items()}
    means = [gap.mean for gap in gaps.values()]
    page.judge(f"{model}: mean gap {np.mean(means):+.4f}", "0 or more", bool(np.mean(means) >= 0))
    behind = [name for name, gap in gaps.items() if gap.is_behind]
    text = f"{model}: tables below {LEAST_GAP} by more than the standard error: "
    page.judge(text + (", ".join(behind) or "none"), "none", not behind)
    ahead = sum(mean > 0 for mean in means)
    text = f"{model}: ahead on {ahead} of {len(means)} tables"
    page.judge(text, "half of them", 2 * ahead >= len(means))
