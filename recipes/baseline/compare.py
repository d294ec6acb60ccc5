"""Comparison of simple models with a checkpoint: the table as it grows, the picture."""

from __future__ import annotations

from pathlib import Path

from dataloading.formats.split_tfrecords.folder_format import stored_spec
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.spec.locate import find_feature_spec
from recipes.baseline import report
from recipes.baseline.comparison import BaselineRow, click_task


def compare(
    dataset_path: Path,
    checkpoint_path: Path | None,
    output: Path,
    *,
    spec_file: str,
    max_rows: int,
) -> list[BaselineRow]:
    """Prints the table, writes results and picture; returns the rows of the simple models.

    Args:
        dataset_path: folder of the data set.
        checkpoint_path: a checkpoint, or a folder of them; None: simple models alone.
        output: folder of results and picture.
        spec_file: name of the feature spec.
        max_rows: largest number of rows of a split that models are fitted to.

    Raises:
        ValueError: data set or checkpoint cannot be read, or a package is not installed.
        OSError: a file cannot be written.
    """
    file = find_feature_spec(dataset_path, spec_file, "--dataset_path")
    spec = stored_spec(FeatureSpec.from_yaml(file))
    task = click_task(spec, max_rows)
    checkpoint = None
    print(f"{dataset_path}: {task.description}\n{report.header(task)}", flush=True)
    rows = list[BaselineRow]()
    for measure in task.models:
        if row := measure():
            rows.append(row)
            print(report.line(row, task), flush=True)
    if checkpoint_path is not None:
        from recipes.baseline.checkpoint import measure_checkpoint

        checkpoint = measure_checkpoint(checkpoint_path, dataset_path, task.split)
        print(report.line(checkpoint, task), report.verdict(task, rows, checkpoint), sep="\n")
    print(f"written: {', '.join(map(str, report.write(output, task, rows, checkpoint)))}")
    return rows
