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
from config.flag import excludes, flag
from dataloading.spec import yaml_io
from dataloading.spec.data_set_files import SPEC_FILE
from dataloading.spec.feature_spec import CATEGORICAL_CHANNEL, NUMERICAL_CHANNEL, TRAIN, FeatureSpec
from dataloading.synthetic.dataset import write_dataset
from dataloading.synthetic.rows import DEFAULT_NUM_NUMERICAL, SPLITS, synthetic_spec
from runtime.cli import exit_status

_TABLE_SIZES = (100_000,) * 26  # as in NVIDIA's tool
_WITHOUT_SPEC = (excludes("feature_spec"),)


@dataclass(frozen=True)
class GeneratedSpecOptions(CommandOptions):
    """Writes generated clicks as split binaries, for the features of any spec."""

    feature_spec: str | None = flag(None, "YAML file of the features", metavar="FILE")
    num_numerical_features: int = flag(
        DEFAULT_NUM_NUMERICAL,
        f"without --feature_spec: numerical features ({DEFAULT_NUM_NUMERICAL})",
        at_least=0,
        needs=_WITHOUT_SPEC,
    )
    synthetic_dataset_table_sizes: tuple[int, ...] = flag(
        _TABLE_SIZES,
        "without --feature_spec: ids of each categorical feature (26 x 100,000)",
        needs=_WITHOUT_SPEC,
    )
    synthetic_dataset_dir: str = flag("data/synthetic", "folder to make", metavar="DIR")
    synthetic_dataset_num_entries: int | None = flag(
        None, "rows of the split 'train', in place of batches", at_least=1
    )
    synthetic_dataset_train_batches: int = flag(1024, "batches of the split 'train'", at_least=1)
    synthetic_dataset_valid_batches: int = flag(64, "batches of each other split", at_least=1)
    synthetic_dataset_batch_size: int = flag(32_768, "rows of a batch", at_least=1)
    seed: int = flag(12345, "of the teacher and the rows", at_least=0)


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
    batch_size = flags.synthetic_dataset_batch_size
    num_entries = flags.synthetic_dataset_num_entries
    spec = _features(flags)
    channels = (NUMERICAL_CHANNEL, CATEGORICAL_CHANNEL)
    spec.require("the generator", channels=channels, chunk_types=("split_binary",))
    if not any(map(spec.channel, channels)):
        raise ValueError(
            f"{spec.origin}: channel_spec: neither numerical nor categorical features: there is "
            "nothing to learn a click from; put a feature into one of the two channels"
        )
    rows = batch_size * flags.synthetic_dataset_valid_batches
    num_rows = dict.fromkeys(spec.source_spec or SPLITS, rows)
    if TRAIN in num_rows or num_entries is not None:
        rows = batch_size * flags.synthetic_dataset_train_batches
        num_rows[TRAIN] = num_entries or rows
    layout = spec if spec.source_spec else None
    written = write_dataset(flags.synthetic_dataset_dir, spec, num_rows, flags.seed, layout)
    lines = []
    for split in written.source_spec:
        facts = written.metadata[split]
        lines.append(f"{split}: {facts['rows']:,} rows, click rate {facts['click_rate']:.4f}")
    return "\n".join([*lines, f"written: {Path(flags.synthetic_dataset_dir) / SPEC_FILE}"])


def _features(flags: GeneratedSpecOptions) -> FeatureSpec:
    content, folder, origin = {"source_spec": None}, Path("."), "the flags"
    if flags.feature_spec is None:
        sizes, count = flags.synthetic_dataset_table_sizes, flags.num_numerical_features
        content = synthetic_spec(sizes, num_numerical=count).to_dict() | content
    else:
        path = Path(flags.feature_spec)
        folder, origin = path.parent, str(path)
        content |= yaml_io.read_mapping(path)
    return FeatureSpec.from_dict(content, folder, origin)


if __name__ == "__main__":
    sys.exit(main())
