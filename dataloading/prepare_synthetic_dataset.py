"""Generated clicks for the features of any feature spec, in the files that it names.

    python -m dataloading.prepare_synthetic_dataset --feature_spec feature_spec.yaml \
        --synthetic_dataset_dir data/generated --synthetic_dataset_train_batches 100 \
        --synthetic_dataset_valid_batches 10 --synthetic_dataset_batch_size 8192

Without --feature_spec, --num_numerical_features and --synthetic_dataset_table_sizes are the
features. A spec without `source_spec` (absent or null) gets `train`, `validation` and `test` in our
usual layout. Ids follow the features' `alpha`, labels come from a teacher
(`dataloading/synthetic/teacher.py`).
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from config.command import CommandOptions, parse
from config.flag import flag
from dataloading.spec import yaml_io
from dataloading.spec.data_set_files import SPEC_FILE
from dataloading.spec.feature_spec import CATEGORICAL_CHANNEL, NUMERICAL_CHANNEL, TRAIN, FeatureSpec
from dataloading.synthetic.dataset import write_dataset
from dataloading.synthetic.rows import DEFAULT_NUM_NUMERICAL, SPLITS, synthetic_spec
from runtime.cli import exit_status

# Flags that describe the features, and their defaults as in NVIDIA's tool.
_FEATURE_FLAGS = ("num_numerical_features", "synthetic_dataset_table_sizes")
_TABLE_SIZES = (100_000,) * 26


@dataclass(frozen=True)
class GeneratedSpecOptions(CommandOptions):
    """Writes generated clicks as split binaries, for the features of any spec."""

    feature_spec: str | None = flag(None, "YAML file of the features", metavar="FILE")
    num_numerical_features: int | None = flag(
        None, f"without --feature_spec: numerical features ({DEFAULT_NUM_NUMERICAL})", at_least=0
    )
    synthetic_dataset_table_sizes: tuple[int, ...] | None = flag(
        None, "without --feature_spec: ids of each categorical feature (26 x 100,000)"
    )
    synthetic_dataset_dir: str = flag("data/synthetic", "folder to make", metavar="DIR")
    synthetic_dataset_num_entries: int | None = flag(
        None, "rows of the split 'train', in place of batches", at_least=1
    )
    synthetic_dataset_train_batches: int = flag(1024, "batches of the split 'train'", at_least=1)
    synthetic_dataset_valid_batches: int = flag(64, "batches of each other split", at_least=1)
    synthetic_dataset_batch_size: int = flag(32_768, "rows of a batch", at_least=1)
    seed: int = flag(12345, "of the teacher and the rows")


def main(argv: list[str] | None = None) -> int:
    """Runs the tool; returns the status of `runtime.cli.exit_status`."""
    tool = "dataloading.prepare_synthetic_dataset"
    return exit_status(
        lambda: print(run(parse(GeneratedSpecOptions, argv, tool))),
        "interrupted; nothing was written",
    )


def run(flags: GeneratedSpecOptions) -> str:
    """Writes the requested data set; returns a report for people.

    Raises:
        ValueError: the spec is broken, or rows of it cannot be generated.
    """
    names = [f"synthetic_dataset_{n}" for n in ("train_batches", "valid_batches", "batch_size")]
    num_entries = flags.synthetic_dataset_num_entries
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


def _features(flags: GeneratedSpecOptions) -> FeatureSpec:
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


if __name__ == "__main__":
    sys.exit(main())
