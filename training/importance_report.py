"""Results of `--mode importance`: a table, a file of JSON and of CSV, and a plot."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.files.outputs import output_file
from runtime.logs import plots
from runtime.readable import text_table
from training.state import RunContext

if TYPE_CHECKING:
    from nn.metrics.importance import FeatureImportance

# Files in the folder of the run.
CSV, JSON, PLOT = "importance.csv", "importance.json", "importance.png"


def report(run: RunContext, importances: Sequence[FeatureImportance]) -> None:
    """Logs the importance of features as a table, and writes the files on rank 0.

    Raises:
        OSError: a file cannot be written.
    """
    run.log.message("\n".join(table(importances)))
    if not run.world.is_chief:
        return
    rows = [importance._asdict() for importance in importances]
    text = io.StringIO()
    writer = csv.DictWriter(text, importances[0]._fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    plain = [  # JSON has no NaN
        {k: None if v != v else v for k, v in row.items()} for row in rows
    ]
    contents = {CSV: text.getvalue(), JSON: json.dumps(plain, indent=1) + "\n"}
    files: list[Path] = []
    for name, content in contents.items():
        files.append(run.run_dir / name)
        with output_file(files[-1]) as stream:
            stream.write(content.encode())
    try:
        assert run.recipe.valid is not None
        plots.draw("importance", run.run_dir / PLOT, rows=plain, split=run.recipe.valid.split)
        files.append(run.run_dir / PLOT)
    except OSError as error:
        run.log.message(f"note: {error}")
    run.log.message(f"importance of features: {', '.join(map(str, files))}")


def table(importances: Sequence[FeatureImportance]) -> list[str]:
    """Returns the lines of the table."""
    rows = [
        [name, _change_text(drop, drop_std), _change_text(rise, rise_std)]
        for name, drop, drop_std, rise, rise_std in importances
    ]
    return text_table(["feature", "AUC drop", "log loss rise"], rows)


def _change_text(mean: float, std: float) -> str:
    """Returns a mean, and its standard deviation if there is one."""
    return f"{mean:.5f}" if math.isnan(std) else f"{mean:.5f} ± {std:.4f}"
