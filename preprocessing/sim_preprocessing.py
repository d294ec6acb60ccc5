"""NVIDIA's name and flags of the preparation of Amazon Books, with its choices.

python preprocessing/sim_preprocessing.py --amazon_dataset_path raw --output_path parquet

Runs `python -m preproc.amazon_books --negatives popularity --category_list first --seed 12345`:
negatives in proportion to the items' numbers of reviews, categories of an item's first list. Other
flags are passed on.
"""

import argparse
import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# Flags of processes that do not exist here; --threads limits all.
UNUSED = ("--metadata_loader_n_proc", "--review_loader_num_workers")


def translate(argv: list[str]) -> list[str]:
    """Returns the command line of `preproc.amazon_books` for one of the original."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--amazon_dataset_path", type=Path)
    parser.add_argument("--metadata_file_name", default="meta_Books.json")
    parser.add_argument("--reviews_file_name", default="reviews_Books.json")
    for name in UNUSED:
        parser.add_argument(name)
    flags, rest = parser.parse_known_args(argv)
    for name in UNUSED:
        if getattr(flags, name.removeprefix("--")) is not None:
            print(f"note: {name} is not used, --threads limits all threads", file=sys.stderr)
    folder = flags.amazon_dataset_path
    if folder is not None:
        rest += ["--reviews", _file(folder / flags.reviews_file_name)]
        rest += ["--meta", _file(folder / flags.metadata_file_name)]
    return ["--negatives=popularity", "--category_list=first", "--seed=12345", *rest]


def _file(path: Path) -> str:
    packed = path.with_name(f"{path.name}.gz")
    return str(packed if packed.exists() and not path.exists() else path)


if __name__ == "__main__":
    sys.argv[1:] = translate(sys.argv[1:])
    runpy.run_module("preproc.amazon_books", run_name="__main__", alter_sys=True)
