"""Histories as ranges of events, or as Parquet rows of other tools -> TFRecords.

python -m preproc.amazon_books.parquet_to_tfrecord --amazon_dataset_path data \\
    --tfrecord_output_dir records --prebatch_train_size 4096 --prebatch_test_size 4096
"""

import functools
import itertools
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path

import numpy as np

from config import command
from config.command import CommandOptions
from config.flag import Need, Values, flag
from dataloading.formats.sequence_tfrecord.writer import sequence_spec, writes_data_set
from dataloading.histories.dataset import blocks
from dataloading.spec.data_set_files import SPEC_FILE
from dataloading.spec.feature_spec import TEST, TRAIN, VALIDATION, FeatureSpec
from dataloading.spec.history_channels import sequence_channels
from preproc.histories.prepared_rows import read_layout, read_rows
from preproc.sources.column_chunk import PARQUET
from preproc.sources.part_files import find_table
from runtime.cli import exit_status


def _reads_parquet(flags: Values) -> bool:
    return not (flags.value("amazon_dataset_path") / SPEC_FILE).exists()


_parquet_flag = functools.partial(
    flag, group="Parquet files", needs=(Need("with Parquet files", _reads_parquet),)
)


@dataclass(frozen=True)
class ConvertOptions(CommandOptions):
    """The flags. Those that the original has, too, are called as there.

    Its --n_proc, --train_parts, --test_parts, --train_output_dir and --test_output_dir are not
    here: one process writes one file a split.

    Raises:
        ValueError: a number is out of range.
    """

    amazon_dataset_path: Path = flag(
        MISSING,
        "data set of preproc.histories, or Parquet files of NVIDIA's preparation: "
        "metadata.json, train/part.0.parquet, ..., test/..., and validation/... if it is there",
        alias="--dataset_path",
    )
    tfrecord_output_dir: Path = flag(
        MISSING,
        "where the data set goes, new or empty; it is there when it is whole",
        alias="--output_dir",
    )
    prebatch_train_size: int = flag(
        0,
        "rows of a record of the training data; the rows that fill none are in a file "
        "remainder_train.tfrecord. 0: each row is a record",
        at_least=0,
    )
    prebatch_test_size: int = flag(
        0, "the same of the test and validation data, remainder_test.tfrecord", at_least=0
    )
    number_of_user_features: int = _parquet_flag(1, "columns of users", at_least=0)
    number_of_item_features: int | None = _parquet_flag(
        None,
        "columns of the target item, and of each history (default: as many as there are "
        "cardinalities after those of the users)",
        at_least=1,
    )
    max_seq_len: int | None = _parquet_flag(
        None,
        "items of a history: shorter ones get zeros in front, of longer ones the last ones are "
        "kept (default: max_history of the metadata, else 100)",
        at_least=1,
    )
    metadata_file: str = _parquet_flag("metadata.json", "file with cardinalities")
    train_split_dir: str = _parquet_flag(TRAIN, "folder of the training rows", alias="--train_dir")
    test_split_dir: str = _parquet_flag(TEST, "folder of the test rows", alias="--test_dir")
    validation_split_dir: str | None = _parquet_flag(
        None,
        "folder of the validation rows (default validation, if it is there)",
        alias="--validation_dir",
    )

    def prebatch_sizes(self, splits: Iterable[str]) -> dict[str, int]:
        """Returns the rows of a record of each split."""
        return {
            s: self.prebatch_train_size if s == TRAIN else self.prebatch_test_size for s in splits
        }


def parse(argv: list[str] | None = None) -> ConvertOptions:
    """Reads the command line.

    Raises:
        ValueError: a number is out of range, or a flag of Parquet files is passed without these.
    """
    return command.parse(
        ConvertOptions, argv, "preproc.amazon_books.parquet_to_tfrecord", __doc__.splitlines()[0]
    )


def convert(options: ConvertOptions) -> None:
    """Writes the data set.

    Raises:
        ValueError: a file or a row is not allowed.
        OSError: a file could not be read or written.
    """
    source = options.amazon_dataset_path
    if (source / SPEC_FILE).exists():
        _convert_ranges(options, FeatureSpec.from_yaml(source / SPEC_FILE))
    else:
        _convert_parquet(options)


def _convert_ranges(options: ConvertOptions, spec: FeatureSpec) -> None:
    channels = sequence_channels(spec, tuple(spec.source_spec))
    histories = channels.positive, channels.negative
    records = sequence_spec(
        label=channels.label[0],
        user={name: spec.cardinality(name) for name in channels.user},
        target={name: spec.cardinality(name) for name in channels.target},
        positive=channels.positive,
        negative=channels.negative,
        history_length=channels.history_length,
        prebatch_sizes=options.prebatch_sizes(spec.source_spec),
    )
    names = [*channels.label, *channels.user, *channels.target, *itertools.chain(*histories)]
    rows = {
        split: ((arrays, 0) for arrays in blocks(spec, split, names))
        for split in records.source_spec
    }
    _write(options, records, spec.base_directory, rows)


def _convert_parquet(options: ConvertOptions) -> None:
    source = options.amazon_dataset_path
    folders = {TRAIN: source / options.train_split_dir, TEST: source / options.test_split_dir}
    # A folder that was named must be there: sim.py would evaluate on the test rows without it.
    if options.validation_split_dir is not None:
        folders[VALIDATION] = source / options.validation_split_dir
    elif (source / VALIDATION).exists():
        folders[VALIDATION] = source / VALIDATION
    tables = {split: find_table(folder) for split, folder in folders.items()}
    for table in tables.values():
        if table.type != PARQUET:
            raise ValueError(f"{table.files[0]}: expected Parquet files")
    spec = read_layout(
        tables[TRAIN].columns,
        source / options.metadata_file,
        options.number_of_user_features,
        options.number_of_item_features,
        options.max_seq_len,
        options.prebatch_sizes(tables),
    )
    rows = {
        split: itertools.chain.from_iterable(read_rows(Path(file), spec) for file in table.files)
        for split, table in tables.items()
    }
    _write(options, spec, source, rows)


def _write(
    options: ConvertOptions,
    spec: FeatureSpec,
    source: Path,
    rows: Mapping[str, Iterable[tuple[Sequence[np.ndarray], int]]],
) -> None:
    """Writes the rows of each split, which come with the number of histories that were cut."""
    with writes_data_set(options.tfrecord_output_dir, spec, source) as writers:
        for split, writer in writers.items():
            started, num_cut = time.monotonic(), 0
            for arrays, num_longer in rows[split]:
                writer.add(arrays)
                num_cut += num_longer
            if not writer.num_samples:
                raise ValueError(f"{source}: {split} has no rows; a split must have some")
            longer = f"; of {num_cut:,} longer histories, the last part was kept" * bool(num_cut)
            elapsed_s = time.monotonic() - started
            print(f"{split}: {writer.num_samples:,} rows in {elapsed_s:.1f} s{longer}", flush=True)


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 when the data set is there, 2 (130 for Ctrl-C) with a message
    otherwise."""
    return exit_status(lambda: convert(parse(argv)), "interrupted; nothing was written")


if __name__ == "__main__":
    sys.exit(main())
