"""Compares simple models, and a checkpoint, on the test rows of a prepared data set.

    python -m recipes.baseline --dataset_path data/clicks --checkpoint_path runs/clicks/model

Settings of the simple models are chosen by validation rows; without a validation split, by the last
tenth of train. Without a test split, the validation rows are evaluated.
"""

import sys
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from importlib import import_module
from pathlib import Path

from config import command_line
from config.command import CommandOptions, parse
from config.flag import flag, recipe_flag
from dataloading.formats.split_tfrecords.folder_format import stored_spec
from dataloading.spec.data_set_files import SPEC_FILE
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.spec.locate import CLICKS, families_of, find_feature_spec
from recipes.baseline import comparison_table
from recipes.baseline.comparison import BaselineRow, measure_checkpoint
from recipes.registry import BY_NAME
from runtime.cli import exit_status
from runtime.tensorflow_start import import_tensorflow
from training import checkpoints

MAX_ROWS = 2_000_000


@dataclass(frozen=True)
class BaselineOptions(CommandOptions):
    """Data set and checkpoint to compare, and folder of the results."""

    dataset_path: Path = flag(MISSING, "folder of the data set", metavar="DIR")
    feature_spec: str = flag(SPEC_FILE, "name of its feature spec", metavar="FILE")
    checkpoint_path: Path | None = flag(
        None, "checkpoint, or folder of them, of which the best or newest is compared"
    )
    recipe: str | None = recipe_flag()
    output: Path | None = flag(
        None,
        "folder of baseline.json and baseline.png (default: that of the run which trained the "
        "checkpoint, or runs/baseline-NAME without one)",
        metavar="DIR",
    )
    max_rows: int = flag(
        MAX_ROWS, "rows of train that simple models are fitted to, at random of more", at_least=100
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the comparison; returns the exit status."""

    def work() -> None:
        options = parse(BaselineOptions, argv, "recipes.baseline", str(__doc__))
        compare(
            options.dataset_path,
            options.checkpoint_path,
            options.output,
            recipe=options.recipe,
            spec_file=options.feature_spec,
            max_rows=options.max_rows,
        )

    return exit_status(work)


def compare(
    dataset_path: Path,
    checkpoint_path: Path | None,
    output: Path | None,
    *,
    recipe: str | None = None,
    spec_file: str,
    max_rows: int,
) -> list[BaselineRow]:
    """Prints the table, writes results and picture; returns the rows of the simple models.

    Args:
        dataset_path: folder of the data set.
        checkpoint_path: a checkpoint, or a folder of them; None: simple models alone.
        output: folder of results and picture; None: the default of `--output`.
        recipe: that of the checkpoint, see `open_checkpoint`.
        spec_file: name of the feature spec.
        max_rows: largest number of rows of a split that models are fitted to.

    Raises:
        ValueError: data set or checkpoint cannot be read, or a package is not installed.
        OSError: a file cannot be written.
    """
    file = find_feature_spec(dataset_path, spec_file, "--dataset_path")
    spec = stored_spec(FeatureSpec.from_yaml(file))
    (reads, *_) = families_of(spec) or [CLICKS]
    compared = [known for known in BY_NAME.values() if known.family.baseline]
    definition = next(known for known in compared if known.family.reads == reads)
    trained = None
    if checkpoint_path is not None:
        from deployment.model.trained_model import open_checkpoint

        trained = open_checkpoint(str(checkpoint_path), str(dataset_path), recipe)
    argv = [definition.name, f"--dataset_path={spec.base_directory}"]
    flags = trained.config if trained else command_line.parse(argv, definition)
    task = import_module(str(definition.family.baseline)).task(spec, flags, max_rows)
    checkpoint = None
    print(f"{dataset_path}: {task.description}\n{comparison_table.header(task)}", flush=True)
    rows = list[BaselineRow]()
    for measure in task.models:
        if row := measure():
            rows.append(row)
            print(comparison_table.line(row, task), flush=True)
    if trained is not None:
        import_tensorflow()
        checkpoint = measure_checkpoint(trained, task)
        print(comparison_table.line(checkpoint, task))
    if text := comparison_table.verdict(task, rows, checkpoint):
        print(text)
    if output is None and trained is not None:
        output = checkpoints.training_run_dir(trained.path, trained.index)
    output = output or Path("runs") / f"baseline-{dataset_path.resolve().name}"
    print(f"written: {', '.join(map(str, comparison_table.write(output, task, rows, checkpoint)))}")
    return rows


if __name__ == "__main__":
    sys.exit(main())
