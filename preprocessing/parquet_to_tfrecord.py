"""NVIDIA's name and flags of the conversion of prepared Parquet rows to TFRecords.

python preprocessing/parquet_to_tfrecord.py --amazon_dataset_path parquet --tfrecord_output_dir data

Runs `python -m preproc.amazon_books.parquet_to_tfrecord`.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# Flags of processes and files that do not exist here: one process writes one file per split.
UNUSED = ("--n_proc", "--train_output_dir", "--test_output_dir", "--train_parts", "--test_parts")


def translate(argv: list[str]) -> list[str]:
    """Returns the command line of the module for one of the original."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in UNUSED:
        parser.add_argument(name)
    flags, rest = parser.parse_known_args(argv)
    for name in UNUSED:
        if getattr(flags, name.removeprefix("--")) is not None:
            print(f"note: {name} is not used, a split is one file", file=sys.stderr)
    return rest


if __name__ == "__main__":
    from preproc.amazon_books.parquet_to_tfrecord import main

    sys.exit(main(translate(sys.argv[1:])))
