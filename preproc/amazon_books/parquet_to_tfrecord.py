"""Prepared Parquet rows of histories -> TFRecords and their feature spec.

python -m preproc.amazon_books.parquet_to_tfrecord --amazon_dataset_path parquet \\
    --tfrecord_output_dir data --prebatch_train_size 4096 --prebatch_test_size 4096
"""

import argparse
import sys
import time
from dataclasses import MISSING, dataclass
from pathlib import Path

from dataloading.formats.sequence_tfrecord.writer import (
    SplitWriter,
    sequence_spec,
    writes_data_set,
)
from dataloading.spec.data_set_files import VOCABULARY_FOLDER
from dataloading.spec.feature_spec import TEST, TRAIN, VALIDATION
from preproc.amazon_books.prepared_rows import (
    HistoryColumns,
    parquet_files,
    read_layout,
    read_rows,
)
from preproc.arguments import passed_flags
from runtime.cli import exit_status
from runtime.options import add_flags, check_limits, flag


@dataclass(frozen=True)
class ConvertOptions:
    """The flags. Those that the original has, too, are called as there.

    Its --n_proc, --train_parts, --test_parts, --train_output_dir and --test_output_dir are not
    here: one process writes one file a split.

    Raises:
        ValueError: a number is out of range.
    """

    amazon_dataset_path: Path = flag(
        MISSING,
        "the Parquet data set: metadata.json, train/part.0.parquet, ..., test/..., and "
        "validation/... if it is there",
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
    number_of_user_features: int = flag(1, "columns of users", at_least=0)
    number_of_item_features: int | None = flag(
        None,
        "columns of the target item, and of each history (default: as many as there are "
        "cardinalities after those of the users)",
        at_least=1,
    )
    max_seq_len: int | None = flag(
        None,
        "items of a history: shorter ones get zeros in front, of longer ones the last ones are "
        "kept (default: max_history of the metadata, else 100)",
        at_least=1,
    )
    metadata_file: str = flag("metadata.json", "file with cardinalities")
    train_split_dir: str = flag(TRAIN, "folder of the training rows", alias="--train_dir")
    test_split_dir: str = flag(TEST, "folder of the test rows", alias="--test_dir")
    validation_split_dir: str | None = flag(
        None,
        "folder of the validation rows (default validation, if it is there)",
        alias="--validation_dir",
    )

    def __post_init__(self):
        check_limits(self)


def parse(argv: list[str] | None = None) -> ConvertOptions:
    """Reads the command line; raises ValueError for a number out of range."""
    parser = argparse.ArgumentParser(
        prog="python -m preproc.amazon_books.parquet_to_tfrecord",
        description=__doc__.splitlines()[0],
        allow_abbrev=False,
    )
    add_flags(parser, ConvertOptions)
    return ConvertOptions(**passed_flags(parser, argv))


def convert(options: ConvertOptions) -> None:
    """Writes the data set.

    Raises:
        ValueError: a file or a row is not allowed.
        OSError: a file could not be read or written.
    """
    source = options.amazon_dataset_path
    folders = {TRAIN: source / options.train_split_dir, TEST: source / options.test_split_dir}
    # A folder that was named must be there: sim.py would evaluate on the test rows without it.
    if options.validation_split_dir is not None:
        folders[VALIDATION] = source / options.validation_split_dir
    elif (source / VALIDATION).exists():
        folders[VALIDATION] = source / VALIDATION
    files = {split: parquet_files(folder) for split, folder in folders.items()}
    layout = read_layout(
        files[TRAIN][0],
        source / options.metadata_file,
        options.number_of_user_features,
        options.number_of_item_features,
        options.max_seq_len,
    )
    if layout.is_foreign:
        print(
            f"{source / options.metadata_file} was not written by preproc.amazon_books: a "
            "cardinality N in it stands for the ids 1 to N, as NVIDIA's preparation writes it",
            flush=True,
        )
    spec = sequence_spec(
        label=layout.label,
        user=layout.user,
        target=layout.target,
        positive=layout.positive,
        negative=layout.negative,
        history_length=layout.history_length,
        prebatch_sizes={
            split: options.prebatch_train_size if split == TRAIN else options.prebatch_test_size
            for split in files
        },
    )
    vocabularies = source / VOCABULARY_FOLDER
    if not vocabularies.is_dir():
        vocabularies = None
    with writes_data_set(options.tfrecord_output_dir, spec, vocabularies) as writers:
        for split, writer in writers.items():
            _convert_split(split, files[split], layout, writer)


def _convert_split(
    split: str, files: list[Path], layout: HistoryColumns, writer: SplitWriter
) -> None:
    started, num_cut = time.monotonic(), 0
    for file in files:
        for arrays, num_longer in read_rows(file, layout):
            writer.add(arrays)
            num_cut += num_longer
    if not writer.num_samples:
        raise ValueError(f"{files[0].parent} has no rows; a split must have some")
    longer = ""
    if num_cut:
        longer = (
            f"; of {num_cut:,} histories, which were longer than --max_seq_len "
            f"{layout.history_length}, the last part was kept"
        )
    elapsed_s = time.monotonic() - started
    print(f"{split}: {writer.num_samples:,} rows in {elapsed_s:.1f} s{longer}", flush=True)


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 when the data set is there, 2 (130 for Ctrl-C) with a message
    otherwise."""
    return exit_status(lambda: convert(parse(argv)), "interrupted; nothing was written")


if __name__ == "__main__":
    sys.exit(main())
