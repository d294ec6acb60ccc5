"""Generated clicks for the features of any feature spec, in the files that it names.

    python -m dataloading.prepare_synthetic_dataset --feature_spec feature_spec.yaml \
        --synthetic_dataset_dir data/generated --synthetic_dataset_train_batches 100 \
        --synthetic_dataset_valid_batches 10 --synthetic_dataset_batch_size 8192

Without --feature_spec, --num_numerical_features and --synthetic_dataset_table_sizes are the
features. A spec without `source_spec` (absent or null) gets `train`, `validation` and `test` in our
usual layout. Ids follow the features' `alpha`, labels come from a teacher
(`dataloading/synthetic/teacher.py`).
"""

import argparse
import sys
from pathlib import Path

from dataloading.pipeline.shuffle import check_flags
from dataloading.spec import yaml_io
from dataloading.spec.data_set_files import SPEC_FILE
from dataloading.spec.feature_spec import CATEGORICAL_CHANNEL, NUMERICAL_CHANNEL, TRAIN, FeatureSpec
from dataloading.synthetic.dataset import comma_separated, write_dataset
from dataloading.synthetic.rows import DEFAULT_NUM_NUMERICAL, SPLITS, synthetic_spec
from runtime.cli import exit_status

# Flags that describe the features, and their defaults as in NVIDIA's tool.
_FEATURE_FLAGS = ("num_numerical_features", "synthetic_dataset_table_sizes")
_TABLE_SIZES = (100_000,) * 26


def main(argv: list[str] | None = None) -> int:
    """Runs the tool; returns the status of `runtime.cli.exit_status`."""
    flags = _parser().parse_args(argv)
    return exit_status(lambda: print(run(flags)), "interrupted; nothing was written")


def run(flags: argparse.Namespace) -> str:
    """Writes the requested data set; returns a report for people.

    Raises:
        ValueError: the spec is broken, or rows of it cannot be generated.
    """
    names = [f"synthetic_dataset_{n}" for n in ("train_batches", "valid_batches", "batch_size")]
    check_flags(flags, 1, *names)
    num_entries = flags.synthetic_dataset_num_entries
    if num_entries is not None:
        check_flags(flags, 1, "synthetic_dataset_num_entries")
    spec = _features(flags)
    channels = (NUMERICAL_CHANNEL, CATEGORICAL_CHANNEL)
    spec.require("the generator", channels=channels, chunk_types=("split_binary",))
    if not any(map(spec.channel, channels)):
        raise ValueError(
            f"{spec.origin}: channel_spec: neither numerical nor categorical features: there is "
            "nothing to learn a click from; put a feature into one of the two channels"
        )
    num_train, num_valid, batch_size = (getattr(flags, name) for name in names)
    num_rows = dict.fromkeys(spec.source_spec or SPLITS, batch_size * num_valid)
    if TRAIN in num_rows or num_entries is not None:
        num_rows[TRAIN] = batch_size * num_train if num_entries is None else num_entries
    layout = spec if spec.source_spec else None
    written = write_dataset(flags.synthetic_dataset_dir, spec, num_rows, flags.seed, layout)
    lines = []
    for split in written.source_spec:
        facts = written.metadata[split]
        lines.append(f"{split}: {facts['rows']:,} rows, click rate {facts['click_rate']:.4f}")
    return "\n".join([*lines, f"written: {Path(flags.synthetic_dataset_dir) / SPEC_FILE}"])


def _features(flags: argparse.Namespace) -> FeatureSpec:
    own = [name for name in _FEATURE_FLAGS if getattr(flags, name) is not None]
    if flags.feature_spec is None:
        sizes = flags.synthetic_dataset_table_sizes
        count = flags.num_numerical_features
        spec = synthetic_spec(
            _TABLE_SIZES if sizes is None else sizes,
            num_numerical=DEFAULT_NUM_NUMERICAL if count is None else count,
        )
        return FeatureSpec.from_dict({**spec.to_dict(), "source_spec": None}, ".", "the flags")
    if own:
        raise ValueError(f"--feature_spec and --{own[0]}: the spec has features; give one of them")
    path = Path(flags.feature_spec)
    content = {"source_spec": None, **yaml_io.read_mapping(path)}
    return FeatureSpec.from_dict(content, path.parent, origin=str(path))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dataloading.prepare_synthetic_dataset",
        description="Writes generated clicks as split binaries, for the features of any spec.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--feature_spec", metavar="FILE", help="YAML file of the features")
    number = {"type": int, "metavar": "N"}
    help_text = f"without --feature_spec: numerical features ({DEFAULT_NUM_NUMERICAL})"
    add("--num_numerical_features", help=help_text, **number)
    help_text = "without --feature_spec: ids of each categorical feature (26 x 100,000)"
    sizes = {"type": comma_separated(int), "metavar": "N,N,..."}
    add("--synthetic_dataset_table_sizes", help=help_text, **sizes)
    add("--synthetic_dataset_dir", default="data/synthetic", metavar="DIR", help="folder to make")
    prefix = "--synthetic_dataset"
    help_text = "rows of the split 'train', in place of batches"
    add(f"{prefix}_num_entries", help=help_text, **number)
    add(f"{prefix}_train_batches", default=1024, help="batches of the split 'train'", **number)
    add(f"{prefix}_valid_batches", default=64, help="batches of each other split", **number)
    add(f"{prefix}_batch_size", default=32_768, help="rows of a batch", **number)
    add("--seed", type=int, default=12345, help="of the teacher and the rows")
    return parser


if __name__ == "__main__":
    sys.exit(main())
