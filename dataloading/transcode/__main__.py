"""Your own CSV or Parquet files -> a data set of split binaries to train on.

    python -m dataloading.transcode --input shop.csv --label bought --split 0.8,0.1,0.1 \\
        --output data/shop
    python -m dataloading.transcode --input raw --output data/mine --categorify all

`docs/your_own_data.md` explains the simplified feature spec of a folder of raw files.
"""

import argparse
import sys
from pathlib import Path

from dataloading.spec import rules
from dataloading.spec.feature_spec import LABEL_CHANNEL, TEST, TRAIN, FeatureSpec
from dataloading.spec.output_folder import (
    SPEC_FILE,
    VOCABULARY_FOLDER,
    check_apart,
    check_replaceable,
)
from dataloading.transcode.arguments import (
    ALL,
    ROLES,
    parse_buckets,
    parse_bytes,
    parse_split,
    parse_threshold,
    parser,
)
from dataloading.transcode.encode.encoding import Encoding
from dataloading.transcode.encode.missing import known_fill, parse_fill
from dataloading.transcode.encode.standardize import NONE, known_standardize, parse_standardize
from dataloading.transcode.raw_spec.channels import CLICKS, INTERACTIONS
from dataloading.transcode.raw_spec.infer import Roles, known_content, new_content
from dataloading.transcode.raw_spec.raw_spec import RawSpec
from dataloading.transcode.rows import METADATA, transcode
from dataloading.transcode.split import SplitRequest
from dataloading.transcode.summary import summary
from runtime.cli import exit_status


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 when the data set is there, 2 (130 for Ctrl-C) with a message
    otherwise."""
    flags = parser().parse_args(argv)
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
    split = parse_split(flags)
    known = None
    if flags.vocabulary is not None:
        _check_no_encoding(flags)
        known = KnownData.read(flags.vocabulary)
    if flags.overwrite:
        _check_apart(flags, known)
    check_replaceable(Path(flags.output), flags.overwrite, spec_file)  # before hours of reading
    spec, inferred = raw_data(flags, split, known)
    _check_mappings(flags, spec, split)
    encoding = new_encoding(spec, flags) if known is None else known_encoding(known)
    if known is not None:
        spec = spec.as_in(known.spec, known.derived)
    needs_memory = encoding.categorify or flags.split_by_time is not None
    if flags.memory_limit is not None and not needs_memory:
        raise ValueError(
            "--memory_limit is for counting and looking up the values of --categorify, and for "
            "--split_by_time"
        )
    memory_limit_bytes = parse_bytes("1GB" if flags.memory_limit is None else flags.memory_limit)
    written = transcode(
        spec,
        encoding,
        Path(flags.output),
        split=split,
        spec_file=spec_file,
        chunk_size=flags.chunk_size,
        memory_limit_bytes=memory_limit_bytes,
        overwrite=flags.overwrite,
    )
    report = summary(spec, written, Path(flags.output))
    return f"{inferred}\n\n{report}" if inferred else report


class KnownData:
    """An earlier data set of transcode, as --vocabulary names it.

    Attributes:
        path: its feature spec.
        spec: the same, read.
        own: what transcode stored in its metadata.
    """

    def __init__(self, path: Path, spec: FeatureSpec, own: dict):
        self.path, self.spec, self.own = path, spec, own
        self.fill = known_fill(own, str(path))
        self.standardize = known_standardize(own, str(path))
        self.derived = set(self.fill.known_indicators.values())

    @classmethod
    def read(cls, vocabulary: str) -> "KnownData":
        """Reads a data set from its folder or its feature spec.

        Raises:
            ValueError: transcode did not write it.
        """
        path = Path(vocabulary)
        path = path / SPEC_FILE if path.is_dir() else path
        known = FeatureSpec.from_yaml(path)
        own = known.metadata.get(METADATA)
        parts = ("vocabulary", "hash_buckets")
        if not isinstance(own, dict) or not all(isinstance(own.get(part), dict) for part in parts):
            raise ValueError(
                f"--vocabulary {vocabulary}: is no data set of dataloading.transcode ({path} has "
                f"no metadata '{METADATA}')"
            )
        return cls(path, known, own)


def raw_data(
    flags: argparse.Namespace, split: SplitRequest | None, known: KnownData | None
) -> tuple[RawSpec, str]:
    """Returns the raw data of --input, and its feature spec for people where it was inferred.

    Raises:
        ValueError: flags describe columns of a file, and --input is a folder; a rule of the
            feature spec is broken.
    """
    path = Path(flags.input)
    described = [f"--{role}" for role in ROLES if getattr(flags, role) is not None]
    if not path.is_file():
        if described:
            raise ValueError(
                f"{described[0]} describes a column of a file: expected --input FILE, got {path}; "
                "the columns of a folder are described by its feature spec"
            )
        return RawSpec.from_yaml(path / flags.feature_spec_in, (CLICKS, INTERACTIONS)), ""
    if flags.feature_spec_in != SPEC_FILE:
        raise ValueError(
            f"--feature_spec_in is for a folder, --input {path} is a file: give the folder to read "
            "it with a feature spec"
        )
    inferred = ""
    if known is None:
        names = {role: getattr(flags, role) or "" for role in ROLES}
        for role in ("categorical", "numerical", "drop"):
            names[role] = tuple(filter(None, names[role].split(",")))
        roles = Roles(**names, time=flags.split_by_time or "")
        content, inferred = new_content(path, roles, flags.chunk_size)
    elif described:
        raise ValueError(f"{described[0]} and --vocabulary: the columns are those of {known.path}")
    else:
        mapping = TEST if split is None else TRAIN
        content = known_content(path, known.spec, known.derived, mapping)
    return RawSpec.from_content(content, path.parent, str(path), (CLICKS, INTERACTIONS)), inferred


def _check_apart(flags: argparse.Namespace, known: KnownData | None) -> None:
    """Raises ValueError where replacing --output could take away what is read."""
    path, output = Path(flags.input), Path(flags.output)
    if path.is_file():
        if output.resolve() in path.resolve().parents:
            raise ValueError(f"--output {output} holds --input {path}: choose another folder")
    else:
        for folder in (path, (path / flags.feature_spec_in).parent):
            check_apart(output, folder, "--input")
    if known is not None:
        check_apart(output, known.path.parent, "--vocabulary")


def _check_mappings(flags: argparse.Namespace, spec: RawSpec, split: SplitRequest | None) -> None:
    """Raises ValueError where a mapping has the name of a file, or rows cannot be divided."""
    spec_file = flags.feature_spec_out
    if spec_file in (*(spec.sources if split is None else split.shares), VOCABULARY_FOLDER):
        raise ValueError(
            f"--feature_spec_out is '{spec_file}', the name of a folder of the data set; choose "
            "another"
        )
    if split is None:
        return
    if tuple(spec.sources) != (TRAIN,):
        raise ValueError(
            f"--split divides the rows of '{TRAIN}': expected no other mapping in {spec.origin}, "
            f"got {rules.listing(spec.sources)}"
        )
    if spec.is_interactions and spec.channels[LABEL_CHANNEL]:
        raise ValueError(
            "--split: expected interactions without a label, for which negatives are drawn; "
            f"{spec.origin} has the label '{spec.channels[LABEL_CHANNEL][0]}', and rows of one "
            "series must stay together: divide them yourself"
        )


def new_encoding(spec: RawSpec, flags: argparse.Namespace) -> Encoding:
    """Returns the encoding that the flags request."""
    buckets = parse_buckets(flags.hash_buckets)
    is_file = Path(flags.input).is_file()
    names = [ALL] if is_file else []
    if flags.categorify is not None:
        names = flags.categorify.split(",")
    if names == [ALL]:
        names = [name for name in spec.ids if name not in buckets]
    _check_ids(spec, names, buckets)
    if names and TRAIN not in spec.sources:
        raise ValueError(
            f"--categorify counts values in the mapping '{TRAIN}'; {spec.origin} has "
            f"{rules.listing(spec.sources)}. To encode more rows as an earlier data set has "
            "them, use --vocabulary"
        )
    threshold = parse_threshold(flags.frequency_threshold)
    if flags.frequency_threshold is not None and not names:
        raise ValueError(
            "--frequency_threshold is for the values of --categorify, which names none"
        )
    if threshold is None and spec.is_interactions:
        threshold = 0  # each user and item is one of its own
    fill = parse_fill(flags.fill_missing, spec, flags.missing_indicator)
    default = ALL if is_file else NONE
    standardize = parse_standardize(
        default if flags.standardize is None else flags.standardize, spec
    )
    return Encoding(tuple(names), threshold, buckets, fill=fill, standardize=standardize)


def _check_ids(spec: RawSpec, names: list[str], buckets: dict[str, int]) -> None:
    """Raises ValueError where --categorify or --hash_buckets do not fit the features."""
    for flag, features in (("categorify", names), ("hash_buckets", buckets)):
        for name in features:
            if name not in spec.ids:
                raise ValueError(
                    f"--{flag} names '{name}'; the features of {spec.origin} that are ids are "
                    f"{rules.listing(spec.ids)}" + rules.suggestion(name, spec.ids)
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


def _check_no_encoding(flags: argparse.Namespace) -> None:
    """Raises ValueError where flags contradict the encoding that --vocabulary names."""
    for name in (
        "categorify",
        "hash_buckets",
        "frequency_threshold",
        "fill_missing",
        "standardize",
    ):
        if getattr(flags, name) is not None:
            raise ValueError(
                f"--{name} and --vocabulary: the encoding is that of {flags.vocabulary}; give one "
                "of the two"
            )
    if flags.missing_indicator:
        raise ValueError(
            f"--missing_indicator and --vocabulary: the encoding is that of {flags.vocabulary}; "
            "give one of the two"
        )


def known_encoding(known: KnownData) -> Encoding:
    """The encoding of an earlier data set (--vocabulary)."""
    files = {name: known.path.parent / file for name, file in known.own["vocabulary"].items()}
    shares = known.own.get("unknown_share")
    trained = shares.get(TRAIN) if isinstance(shares, dict) else None
    return Encoding(
        categorify=tuple(files),
        hash_buckets=known.own["hash_buckets"],
        vocabularies=files,
        trained_unknown=trained if isinstance(trained, dict) else {},
        fill=known.fill,
        standardize=known.standardize,
    )


if __name__ == "__main__":
    sys.exit(main())
