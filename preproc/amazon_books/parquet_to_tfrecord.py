"""Prepared Parquet rows of histories -> TFRecords and their feature spec.

python -m preproc.amazon_books.parquet_to_tfrecord --amazon_dataset_path parquet \\
    --tfrecord_output_dir data --prebatch_train_size 4096 --prebatch_test_size 4096
"""

import argparse
import sys
import time
from pathlib import Path

from dataloading.formats.sequence_tfrecord.writer import (
    MappingWriter,
    sequence_spec,
    writes_data_set,
)
from dataloading.spec.feature_spec import TEST, TRAIN, VALIDATION
from preproc.amazon_books.prepared_rows import (
    Cut,
    HistoryColumns,
    parquet_files,
    read_layout,
    read_rows,
)
from runtime.cli import exit_status


def parser() -> argparse.ArgumentParser:
    """The flags. Those that the original has, too, are called as there.

    Its --n_proc, --train_parts, --test_parts, --train_output_dir and --test_output_dir are not
    here: one process writes one file a split.
    """
    flags = argparse.ArgumentParser(
        prog="python -m preproc.amazon_books.parquet_to_tfrecord",
        description=__doc__.splitlines()[0],
        allow_abbrev=False,
    )
    flags.add_argument(
        "--amazon_dataset_path",
        "--dataset_path",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="the Parquet data set: metadata.json, train/part.0.parquet, ..., test/..., and "
        "validation/... if it is there",
    )
    flags.add_argument(
        "--tfrecord_output_dir",
        "--output_dir",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="where the data set goes, new or empty; it is there when it is whole",
    )
    for split, which in (("train", "training"), ("test", "test and validation")):
        flags.add_argument(
            f"--prebatch_{split}_size",
            type=int,
            default=0,
            metavar="ROWS",
            help=f"rows of a record of the {which} data; the rows that fill none are in a file "
            f"remainder_{split}.tfrecord. 0, the default: each row is a record",
        )
    flags.add_argument(
        "--number_of_user_features",
        type=int,
        default=1,
        metavar="N",
        help="columns of users (default 1)",
    )
    flags.add_argument(
        "--number_of_item_features",
        type=int,
        metavar="N",
        help="columns of the target item, and of each history (default: as many as there are "
        "cardinalities after those of the users)",
    )
    flags.add_argument(
        "--max_seq_len",
        type=int,
        metavar="N",
        help="items of a history: shorter ones get zeros in front, of longer ones the last ones "
        "are kept (default: max_history of the metadata, else 100)",
    )
    flags.add_argument(
        "--metadata_file",
        default="metadata.json",
        metavar="NAME",
        help="file with cardinalities (default metadata.json)",
    )
    for split, default in ((TRAIN, TRAIN), (TEST, TEST), (VALIDATION, None)):
        flags.add_argument(
            f"--{split}_split_dir",
            f"--{split}_dir",
            default=default,
            metavar="NAME",
            help=f"folder of the {split} rows (default {split}"
            f"{', if it is there' if default is None else ''})",
        )
    return flags


def convert(options: argparse.Namespace) -> None:
    """Writes the data set.

    Raises:
        ValueError: a flag, a file or a row is not allowed.
        OSError: a file could not be read or written.
    """
    _check(options)
    source = options.amazon_dataset_path
    folders = {TRAIN: source / options.train_split_dir, TEST: source / options.test_split_dir}
    # A folder that was named must be there: sim.py would evaluate on the test rows without it.
    if options.validation_split_dir is not None:
        folders[VALIDATION] = source / options.validation_split_dir
    elif (source / VALIDATION).exists():
        folders[VALIDATION] = source / VALIDATION
    files = {mapping: parquet_files(folder) for mapping, folder in folders.items()}
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
            mapping: options.prebatch_train_size if mapping == TRAIN else options.prebatch_test_size
            for mapping in files
        },
    )
    with writes_data_set(options.tfrecord_output_dir, spec) as writers:
        for mapping, writer in writers.items():
            _convert_split(mapping, files[mapping], layout, writer)


def _check(options: argparse.Namespace) -> None:
    least = {
        "prebatch_train_size": 0,
        "prebatch_test_size": 0,
        "number_of_user_features": 0,
        "number_of_item_features": 1,
        "max_seq_len": 1,
    }
    for name, bound in least.items():
        value = getattr(options, name)
        if value is not None and value < bound:
            raise ValueError(f"--{name} must be {bound} or more, got {value}")


def _convert_split(
    mapping: str, files: list[Path], layout: HistoryColumns, writer: MappingWriter
) -> None:
    started, cut = time.monotonic(), Cut()
    for file in files:
        for arrays in read_rows(file, layout, cut):
            writer.add(arrays)
    if not writer.num_rows:
        raise ValueError(f"{files[0].parent} has no rows; a split must have some")
    longer = ""
    if cut.num_histories:
        longer = (
            f"; of {cut.num_histories:,} histories, which were longer than --max_seq_len "
            f"{layout.history_length}, the last part was kept"
        )
    elapsed_s = time.monotonic() - started
    print(f"{mapping}: {writer.num_rows:,} rows in {elapsed_s:.1f} s{longer}", flush=True)


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 when the data set is there, 2 (130 for Ctrl-C) with a message
    otherwise."""
    options = parser().parse_args(argv)
    return exit_status(lambda: convert(options), "interrupted; nothing was written")


if __name__ == "__main__":
    sys.exit(main())
