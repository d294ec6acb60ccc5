"""Generated clicks for the features of any feature spec, in the files that it names.

    python -m dataloading.prepare_synthetic_dataset --feature_spec feature_spec.yaml \
        --synthetic_dataset_dir data/generated --synthetic_dataset_train_batches 100 \
        --synthetic_dataset_valid_batches 10 --synthetic_dataset_batch_size 8192

A spec without `source_spec` (absent or null) gets `train`, `validation` and `test` in our usual
layout. Ids follow the features' `alpha`, labels come from a teacher
(`dataloading/synthetic/teacher.py`).
"""

import argparse
import sys
from pathlib import Path

from dataloading.spec import yaml_io
from dataloading.spec.feature_spec import CATEGORICAL_CHANNEL, NUMERICAL_CHANNEL, TRAIN, FeatureSpec
from dataloading.spec.output_folder import SPEC_FILE
from dataloading.synthetic.dataset import write_dataset
from dataloading.synthetic.rows import SPLITS
from runtime.cli import exit_status


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 when the data set is there, 2 (130 for Ctrl-C) with a message
    otherwise."""
    flags = _parser().parse_args(argv)
    return exit_status(lambda: print(run(flags)), "interrupted; nothing was written")


def run(flags: argparse.Namespace) -> str:
    """Writes the requested data set; returns a report for people."""
    for name in ("train_batches", "valid_batches", "batch_size"):
        number = getattr(flags, f"synthetic_dataset_{name}")
        if number < 1:
            raise ValueError(f"--synthetic_dataset_{name} is {number}; allowed: 1 or more")
    written = prepare(
        flags.feature_spec,
        flags.synthetic_dataset_dir,
        train_rows=flags.synthetic_dataset_train_batches * flags.synthetic_dataset_batch_size,
        valid_rows=flags.synthetic_dataset_valid_batches * flags.synthetic_dataset_batch_size,
        seed=flags.seed,
    )
    lines = []
    for mapping in written.source_spec:
        facts = written.metadata[mapping]
        lines.append(f"{mapping}: {facts['rows']:,} rows, click rate {facts['click_rate']:.4f}")
    return "\n".join([*lines, f"written: {Path(flags.synthetic_dataset_dir) / SPEC_FILE}"])


def prepare(
    feature_spec: str | Path, directory: str | Path, train_rows: int, valid_rows: int, seed: int
) -> FeatureSpec:
    """Writes the data set.

    Args:
        feature_spec: the YAML file.
        directory: new or empty; the spec goes there as `feature_spec.yaml`.
        train_rows: of the mapping `train`.
        valid_rows: of each other mapping.

    Raises:
        ValueError: the spec is broken, or rows of it cannot be generated.
    """
    spec, layout = _read(Path(feature_spec))
    if not spec.channel(NUMERICAL_CHANNEL) and not spec.channel(CATEGORICAL_CHANNEL):
        raise ValueError(
            f"{spec.origin}: channel_spec: neither numerical nor categorical features: there is "
            "nothing to learn a click from; put a feature into one of the two channels"
        )
    mappings = SPLITS if layout is None else layout.source_spec
    num_rows = {name: train_rows if name == TRAIN else valid_rows for name in mappings}
    return write_dataset(directory, spec, num_rows, seed, layout)


def _read(path: Path) -> tuple[FeatureSpec, FeatureSpec | None]:
    """The features, and the same with files where the spec names some."""
    content = {"source_spec": None, **yaml_io.read_mapping(path)}
    spec = FeatureSpec.from_dict(content, path.parent, origin=str(path))
    spec.require(
        "the generator",
        channels=(NUMERICAL_CHANNEL, CATEGORICAL_CHANNEL),
        chunk_types=("split_binary",),
    )
    return spec, spec if spec.source_spec else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dataloading.prepare_synthetic_dataset",
        description="Writes generated clicks as split binaries, for the features of any spec.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--feature_spec", required=True, metavar="FILE", help="YAML file of the features")
    add("--synthetic_dataset_dir", required=True, metavar="DIR", help="folder to make")
    add(
        "--synthetic_dataset_train_batches",
        type=int,
        default=1024,
        metavar="N",
        help="batches of the mapping 'train'",
    )
    add(
        "--synthetic_dataset_valid_batches",
        type=int,
        default=64,
        metavar="N",
        help="batches of each other mapping",
    )
    add(
        "--synthetic_dataset_batch_size",
        type=int,
        default=32_768,
        metavar="ROWS",
        help="rows of a batch",
    )
    add("--seed", type=int, default=0, help="of the teacher and the rows")
    return parser


if __name__ == "__main__":
    sys.exit(main())
