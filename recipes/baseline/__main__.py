"""Compares simple models, and a checkpoint, on the test rows of a prepared data set.

    python -m recipes.baseline --dataset_path data/clicks --checkpoint_path runs/clicks/model

Settings of the simple models are chosen by validation rows; without a validation split, by the last
tenth of train. Without a test split, the validation rows are evaluated.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import config as configuration
from config import Config
from dataloading.formats.split_tfrecords.folder_format import stored_spec
from dataloading.spec.data_set_files import SPEC_FILE
from dataloading.spec.feature_spec import ITEM_CHANNEL, FeatureSpec
from dataloading.spec.history_channels import has_histories
from dataloading.spec.locate import find_feature_spec
from recipes.baseline import report
from recipes.baseline.after_training import check_packages
from recipes.baseline.comparison import BaselineRow, BaselineTask, click_task
from recipes.registry import NCF
from runtime.cli import exit_status
from runtime.options import check_range, tool_parser

MAX_ROWS = 2_000_000


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the comparison; returns the exit status."""
    options = _parser().parse_args(argv)

    def work() -> None:
        check_range("max_rows", options.max_rows, 100)
        folder = options.output or Path("runs") / f"baseline-{options.dataset_path.resolve().name}"
        compare(
            options.dataset_path,
            options.checkpoint_path,
            folder,
            spec_file=options.feature_spec,
            max_rows=options.max_rows,
        )

    return exit_status(work)


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(
        "recipes.baseline", __doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--dataset_path", required=True, type=Path, metavar="DIR", help="folder of the data set")
    text = "name of its feature spec (default %(default)s)"
    add("--feature_spec", default=SPEC_FILE, metavar="FILE", help=text)
    text = "checkpoint, or folder of them, of which the best or newest is compared"
    add("--checkpoint_path", type=Path, metavar="PATH", help=text)
    text = "folder of baseline.json and baseline.png (default runs/baseline-NAME)"
    add("--output", type=Path, metavar="DIR", help=text)
    text = "rows of train that simple models are fitted to, at random of more (default %(default)s)"
    add("--max_rows", type=int, default=MAX_ROWS, metavar="N", help=text)
    return parser


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
    task = _task(spec, checkpoint_path, max_rows)
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


def _task(spec: FeatureSpec, checkpoint_path: Path | None, max_rows: int) -> BaselineTask:
    if ITEM_CHANNEL in spec.channel_spec:
        from recipes.baseline.interactions import interaction_task

        return interaction_task(spec, _ncf_flags(spec, checkpoint_path))
    if has_histories(spec):
        from recipes.baseline.histories import history_task

        return history_task(spec)
    check_packages()
    return click_task(spec, max_rows)


def _ncf_flags(spec: FeatureSpec, checkpoint_path: Path | None) -> Config:
    """Returns the flags of the training of a checkpoint, else the defaults."""
    folder = str(spec.base_directory)
    if checkpoint_path is not None:
        from deployment.model.trained_model import open_checkpoint

        return open_checkpoint(str(checkpoint_path), folder).config
    return configuration.parse(
        ["ncf", f"--dataset_path={folder}"], "ncf", NCF.defaults, NCF.aliases
    )


if __name__ == "__main__":
    sys.exit(main())
