"""Writes generated clicks with a known best reachable AUC as split binaries.

python -m dataloading.synthetic --output data/synthetic --rows 100000
"""

import sys
from dataclasses import MISSING, dataclass
from pathlib import Path

from config.command import CommandOptions, parse
from config.flag import flag
from dataloading.spec.data_set_files import SPEC_FILE
from dataloading.spec.feature_spec import TEST, TRAIN, VALIDATION, FeatureSpec
from dataloading.synthetic.dataset import write_dataset
from dataloading.synthetic.rows import (
    DEFAULT_ALPHA,
    DEFAULT_CARDINALITIES,
    DEFAULT_NUM_NUMERICAL,
    synthetic_spec,
)
from runtime.cli import exit_status


@dataclass(frozen=True)
class ClickOptions(CommandOptions):
    """Writes generated clicks as split binaries and prints their best AUC."""

    output: str = flag(MISSING, "folder to make; must not hold files", metavar="DIR")
    rows: int = flag(1_000_000, "training rows")
    validation_rows: int = flag(100_000, "validation rows")
    test_rows: int = flag(100_000, "test rows")
    feature_spec: str | None = flag(
        None, "take features from this YAML file, not the flags", metavar="FILE"
    )
    cardinalities: tuple[int, ...] = flag(DEFAULT_CARDINALITIES, "ids of each categorical feature")
    hotness: tuple[int, ...] = flag((1,), "ids per row, one number or one each")
    alpha: tuple[float, ...] = flag(
        (DEFAULT_ALPHA,), "exponent of the power law, one number or one each; 0 is uniform"
    )
    num_numerical: int = flag(DEFAULT_NUM_NUMERICAL, "numerical features", at_least=0)
    seed: int = flag(0, "of the teacher and the rows", at_least=0)


def main(argv: list[str] | None = None) -> int:
    """Runs the tool; returns the status of `runtime.cli.exit_status`."""

    def work() -> None:
        options = parse(ClickOptions, argv, "dataloading.synthetic")
        if options.feature_spec:
            spec = FeatureSpec.from_yaml(options.feature_spec)
        else:
            spec = synthetic_spec(
                options.cardinalities, options.hotness, options.alpha, options.num_numerical
            )
        num_samples = {
            TRAIN: options.rows,
            VALIDATION: options.validation_rows,
            TEST: options.test_rows,
        }
        written = write_dataset(options.output, spec, num_samples, options.seed)
        for split in num_samples:
            facts = written.metadata[split]
            files = [file for chunk in written.source_spec[split] for file in chunk.files]
            size_bytes = sum((written.base_directory / file).stat().st_size for file in files)
            print(
                f"{split}: {facts['rows']:,} rows, {size_bytes:,} bytes, click rate "
                f"{facts['click_rate']:.4f}, best reachable AUC {_shown(facts['best_auc'])} "
                f"(expected {_shown(facts['expected_auc'])})"
            )
        print(f"written: {Path(options.output) / SPEC_FILE}")

    return exit_status(work)


def _shown(auc: float | None) -> str:
    return "undefined, all labels are equal" if auc is None else f"{auc:.5f}"


if __name__ == "__main__":
    sys.exit(main())
