"""Your own CSV or Parquet files -> a data set of split binaries to train on.

    python -m dataloading.transcode --input raw --output data/mine --categorify all

`docs/your_own_data.md` explains the simplified feature spec beside the raw files.
"""

import argparse
import re
import sys
from pathlib import Path

from dataloading import spec_rules
from dataloading.command_line import exit_status
from dataloading.feature_spec import TRAIN, FeatureSpec
from dataloading.interactions import length_of_series
from dataloading.output_folder import (
    SPEC_FILE,
    VOCABULARY_FOLDER,
    check_apart,
    check_replaceable,
)
from dataloading.transcode_channels import CLICKS, INTERACTIONS
from dataloading.transcode_rows import METADATA, Encoding, transcode
from dataloading.transcode_spec import RawSpec
from dataloading.vocabulary import MIN_MEMORY_BYTES

ALL = "all"
_UNITS = {"MB": 10**6, "GB": 10**9, "MIB": 1 << 20, "GIB": 1 << 30}
# With an id this large and so few rows, most rows of the table would never be trained.
_SPARSE_CARDINALITY = 1_000_000
_SPARSE_FACTOR = 100


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 when the data set is there, 2 (130 for Ctrl-C) with a message
    otherwise."""
    flags = _parser().parse_args(argv)
    return exit_status(lambda: print(run(flags)), "interrupted; nothing was written under --output")


def run(flags: argparse.Namespace) -> str:
    """Transcodes as the flags say; returns what was made, for people."""
    spec_file = flags.feature_spec_out
    if Path(spec_file).name != spec_file or spec_file in ("", ".."):
        raise ValueError(
            f"--feature_spec_out is '{spec_file}'; allowed: a file name without a folder, the file "
            "is in --output"
        )
    if flags.chunk_size < 1:
        raise ValueError(f"--chunk_size is {flags.chunk_size}; allowed: 1 or more")
    output = Path(flags.output)
    spec = RawSpec.from_yaml(Path(flags.input) / flags.feature_spec_in, (CLICKS, INTERACTIONS))
    if spec_file in (*spec.sources, VOCABULARY_FOLDER):
        raise ValueError(
            f"--feature_spec_out is '{spec_file}', the name of a folder of the data set; choose "
            "another"
        )
    if flags.overwrite:
        for folder in (Path(flags.input), spec.base_directory):
            check_apart(output, folder, "--input")
        if flags.vocabulary is not None:
            check_apart(output, _known_spec_file(flags.vocabulary).parent, "--vocabulary")
    check_replaceable(output, flags.overwrite, spec_file)  # before hours of reading
    if flags.vocabulary is None:
        encoding = new_encoding(spec, flags)
    else:
        spec, encoding = known_encoding(spec, flags)
    if flags.memory_limit is not None and not encoding.categorify:
        raise ValueError("--memory_limit is for counting and looking up the values of --categorify")
    memory_limit_bytes = parse_bytes("1GB" if flags.memory_limit is None else flags.memory_limit)
    written = transcode(
        spec,
        encoding,
        output,
        spec_file=spec_file,
        chunk_size=flags.chunk_size,
        memory_limit_bytes=memory_limit_bytes,
        overwrite=flags.overwrite,
    )
    return summary(spec, written, output)


def new_encoding(spec: RawSpec, flags: argparse.Namespace) -> Encoding:
    """What --categorify, --frequency_threshold and --hash_buckets say of this data."""
    buckets = parse_buckets(flags.hash_buckets)
    names = [] if flags.categorify is None else flags.categorify.split(",")
    if names == [ALL]:
        names = [name for name in spec.ids if name not in buckets]
    for flag, features in (("categorify", names), ("hash_buckets", buckets)):
        for name in features:
            if name not in spec.ids:
                raise ValueError(
                    f"--{flag} names '{name}'; the features of {spec.origin} that are ids are "
                    f"{spec_rules.listing(spec.ids)}" + spec_rules.suggestion(name, spec.ids)
                )
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--categorify names '{name}' twice; allowed: once")
        if name in buckets:
            raise ValueError(f"--categorify and --hash_buckets both name '{name}'; allowed: one")
        if "cardinality" in spec.features[name]:
            raise ValueError(
                f"--categorify {name}: {spec.origin} gives it the cardinality "
                f"{spec.features[name]['cardinality']}, but it follows from the values: write "
                "'cardinality: auto'"
            )
    for name, count in buckets.items():
        if spec.features[name].get("cardinality", count) != count:
            raise ValueError(
                f"--hash_buckets {name}={count}: {spec.origin} gives it the cardinality "
                f"{spec.features[name]['cardinality']}; write 'cardinality: auto'"
            )
    if names and TRAIN not in spec.sources:
        raise ValueError(
            f"--categorify counts values in the mapping '{TRAIN}'; {spec.origin} has "
            f"{spec_rules.listing(spec.sources)}. To encode more rows as an earlier data set has "
            "them, use --vocabulary"
        )
    threshold = flags.frequency_threshold
    if threshold is not None and not names:
        raise ValueError(
            "--frequency_threshold is for the values of --categorify, which names none"
        )
    if threshold is not None and threshold < 0:
        raise ValueError(f"--frequency_threshold is {threshold}; allowed: 0 or more")
    return Encoding(tuple(names), threshold or 0, buckets)


def known_encoding(spec: RawSpec, flags: argparse.Namespace) -> tuple[RawSpec, Encoding]:
    """The encoding of an earlier data set (--vocabulary), and the raw data as more rows of it."""
    for name in ("categorify", "hash_buckets", "frequency_threshold"):
        if getattr(flags, name) is not None:
            raise ValueError(
                f"--{name} and --vocabulary: the encoding is that of {flags.vocabulary}; give one "
                "of the two"
            )
    path = _known_spec_file(flags.vocabulary)
    known = FeatureSpec.from_yaml(path)
    own = known.metadata.get(METADATA)
    parts = ("vocabulary", "hash_buckets")
    if not isinstance(own, dict) or not all(isinstance(own.get(part), dict) for part in parts):
        raise ValueError(
            f"--vocabulary {flags.vocabulary}: is no data set of dataloading.transcode ({path} has "
            f"no metadata '{METADATA}')"
        )
    files = {name: path.parent / file for name, file in own["vocabulary"].items()}
    return spec.as_in(known), Encoding(
        categorify=tuple(files), hash_buckets=own["hash_buckets"], vocabularies=files
    )


def _known_spec_file(vocabulary: str) -> Path:
    """The feature spec that --vocabulary names, itself or by its folder."""
    path = Path(vocabulary)
    return path / SPEC_FILE if path.is_dir() else path


def parse_buckets(text: str | None) -> dict[str, int]:
    """feature -> buckets, from `feature=N,feature=N`."""
    buckets = {}
    for item in text.split(",") if text else ():
        name, _, count = item.rpartition("=")
        valid = name and count.isdecimal() and 1 <= int(count) < 1 << 63
        if not valid or name in buckets:
            raise ValueError(
                f"--hash_buckets has '{item}'; allowed: feature=N with N from 1 to 2^63 - 1, "
                "comma-separated, each feature once"
            )
        buckets[name] = int(count)
    return buckets


def parse_bytes(text: str) -> int:
    """A size like 500MB, 1.5GB, 512MiB or 2GiB in bytes."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([MG]i?B)", text, re.IGNORECASE)
    size = round(float(found[1]) * _UNITS[found[2].upper()]) if found else 0
    if size < MIN_MEMORY_BYTES:
        raise ValueError(
            f"--memory_limit is '{text}'; allowed: a size like 1GB, {MIN_MEMORY_BYTES >> 20}MiB "
            "or more"
        )
    return size


def summary(spec: RawSpec, written: FeatureSpec, output: Path) -> str:
    """What was made, and what the reader should know of it."""
    own = written.metadata[METADATA]
    lines = []
    for mapping, rows in own["rows"].items():
        lines.append(f"{mapping}: {rows:,} rows, {_what_rows_are(written, mapping)}")
    for name in spec.ids:
        cardinality = written.cardinality(name)
        how = f"vocabulary; {_unknown(own, name)}" if name in own["vocabulary"] else ""
        how = "hashed" if name in own["hash_buckets"] else how
        lines.append(f"{name}: cardinality {cardinality:,}" + (f", {how}" if how else ""))
        few = cardinality > _SPARSE_FACTOR * max(own["rows"].values())
        if not how and cardinality > _SPARSE_CARDINALITY and few:
            lines.append(
                f"note: '{name}' has few rows for its largest id, {cardinality - 1:,}; its table "
                "has a row for each id up to that: --categorify makes it small"
            )
    if spec.unused:
        lines.append(f"left out, in no channel: {spec_rules.listing(spec.unused)}")
    return "\n".join([*lines, f"written: {output}"])


def _what_rows_are(written: FeatureSpec, mapping: str) -> str:
    """What the rows of a mapping tell, for people."""
    own = written.metadata[METADATA]
    if "click_rate" in own:
        rate = own["click_rate"].get(mapping)
        return "no label" if rate is None else f"click rate {rate:.4f}"
    length = length_of_series(written, mapping)
    if length is None:
        return "each an interaction"
    return f"{own['rows'][mapping] // length:,} series of {length:,}"


def _unknown(own: dict, feature: str) -> str:
    """How much of each mapping has no id of its own, for people."""
    shares = (f"{shares[feature]:.2%} of {name}" for name, shares in own["unknown_share"].items())
    return "id 0 (missing, rare or unknown): " + ", ".join(shares)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dataloading.transcode",
        description="Transcodes CSV or Parquet files with a simplified feature spec into split "
        "binaries with a feature spec. --output appears when it is whole.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--input", required=True, metavar="DIR", help="folder of the raw data")
    add(
        "--feature_spec_in",
        default=SPEC_FILE,
        metavar="FILE",
        help="its simplified feature spec, relative to --input (default %(default)s)",
    )
    add("--output", required=True, metavar="DIR", help="folder of the data set; new or empty")
    add(
        "--feature_spec_out",
        default=SPEC_FILE,
        metavar="FILE",
        help="name of its feature spec (default %(default)s)",
    )
    add(
        "--chunk_size",
        type=int,
        default=65_536,
        metavar="ROWS",
        help="the most rows to work on at a time (default %(default)s)",
    )
    add(
        "--categorify",
        metavar="FEATURES",
        help=f"features, comma-separated, or '{ALL}' that are ids: texts or any whole numbers "
        "become ids by falling count in the training rows; 0 is for missing and unknown values",
    )
    add(
        "--frequency_threshold",
        type=int,
        metavar="T",
        help="with --categorify: values seen fewer than T times become id 0 (default 0)",
    )
    add(
        "--hash_buckets",
        metavar="FEATURE=N",
        help="features whose id is a hash of the value, modulo N; comma-separated",
    )
    add(
        "--vocabulary",
        metavar="DIR_OR_FILE",
        help="encode as this data set of an earlier run is encoded, to predict more rows: its "
        f"folder, or its feature spec where that is not named {SPEC_FILE}",
    )
    add(
        "--memory_limit",
        metavar="SIZE",
        help="memory to count and look up the values of --categorify (default 1GB); the rest takes "
        "some 350 MB",
    )
    add(
        "--overwrite",
        action="store_true",
        help="replace a data set at --output, at the end; its spec is --feature_spec_out",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
