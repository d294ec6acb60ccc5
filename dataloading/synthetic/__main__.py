"""Writes generated clicks with a known best reachable AUC as split binaries.

python -m dataloading.synthetic --output data/synthetic --rows 100000
"""

import argparse
from pathlib import Path

from dataloading.spec.data_set_files import SPEC_FILE
from dataloading.spec.feature_spec import TEST, TRAIN, VALIDATION, FeatureSpec
from dataloading.synthetic.dataset import comma_separated, write_dataset
from dataloading.synthetic.rows import (
    DEFAULT_ALPHA,
    DEFAULT_CARDINALITIES,
    DEFAULT_NUM_NUMERICAL,
    synthetic_spec,
)


def main(arguments=None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m dataloading.synthetic",
        description="Writes generated clicks as split binaries and prints their best AUC.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add, ids, alphas = parser.add_argument, comma_separated(int), comma_separated(float)
    add("--output", required=True, help="folder to make; must not hold files")
    add("--rows", type=int, default=1_000_000, help="training rows")
    add("--validation_rows", type=int, default=100_000)
    add("--test_rows", type=int, default=100_000)
    add("--feature_spec", help="take features from this YAML file, not the flags")
    ids_help = "ids of each categorical feature, comma-separated"
    add("--cardinalities", type=ids, default=list(DEFAULT_CARDINALITIES), help=ids_help)
    add("--hotness", type=ids, default=[1], help="ids per row, one number or one each")
    alpha_help = "exponent of the power law, one number or one each; 0 is uniform"
    add("--alpha", type=alphas, default=[DEFAULT_ALPHA], help=alpha_help)
    add("--num_numerical", type=int, default=DEFAULT_NUM_NUMERICAL)
    add("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    try:
        if args.feature_spec:
            spec = FeatureSpec.from_yaml(args.feature_spec)
        else:
            spec = synthetic_spec(args.cardinalities, args.hotness, args.alpha, args.num_numerical)
        num_samples = {TRAIN: args.rows, VALIDATION: args.validation_rows, TEST: args.test_rows}
        written = write_dataset(args.output, spec, num_samples, args.seed)
    except (ValueError, OSError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    for split in num_samples:
        facts = written.metadata[split]
        files = [file for chunk in written.source_spec[split] for file in chunk.files]
        size_bytes = sum((written.base_directory / file).stat().st_size for file in files)
        print(
            f"{split}: {facts['rows']:,} rows, {size_bytes:,} bytes, click rate "
            f"{facts['click_rate']:.4f}, best reachable AUC {_shown(facts['best_auc'])} (expected "
            f"{_shown(facts['expected_auc'])})"
        )
    print(f"written: {Path(args.output) / SPEC_FILE}")


def _shown(auc: float | None) -> str:
    return "undefined, all labels are equal" if auc is None else f"{auc:.5f}"


if __name__ == "__main__":
    main()
