"""Your own CSV or Parquet files -> a data set of split binaries to train on.

    python -m dataloading.transcode --input shop.csv --label bought --split 0.8,0.1,0.1 \\
        --output data/shop
    python -m dataloading.transcode --input raw --output data/mine --categorify all

`docs/reference/transcode.md` explains the simplified feature spec of a folder of raw files.
"""

import argparse
import contextlib
import itertools
import sys
from pathlib import Path

from dataloading.engines import environment
from dataloading.pipeline.shuffle import check_flags
from dataloading.spec import rules, yaml_io
from dataloading.spec.data_set_files import SPEC_FILE, VOCABULARY_FOLDER
from dataloading.spec.feature_spec import LABEL_CHANNEL, TEST, TRAIN
from dataloading.transcode.arguments import ROLES, SPARK, TOOL, parser
from dataloading.transcode.encoding import KnownData, new_encoding
from dataloading.transcode.infer import Scan, known_content, new_content
from dataloading.transcode.raw_spec import RawSpec
from dataloading.transcode.rows import DuckDBEngine
from dataloading.transcode.split import SplitRequest, parse_split
from dataloading.transcode.summary import summary
from runtime.cli import exit_status
from runtime.files.outputs import DATA_SET, check_folder


def main(argv: list[str] | None = None) -> int:
    """Runs the tool; returns the status of `runtime.cli.exit_status`."""
    flags = parser().parse_args(argv)
    interrupted = "interrupted; nothing was written under --output"
    if flags.engine == SPARK:
        interrupted = "interrupted; run it again to resume"

    def work() -> None:
        if argv is None:
            environment.enter(flags.engine, TOOL)
        print(run(flags))

    return exit_status(work, interrupted)


def run(flags: argparse.Namespace) -> str:
    """Transcodes as requested by the flags; returns a report for people."""
    spec_file = flags.feature_spec_out
    if Path(spec_file).name != spec_file or spec_file in ("", ".."):
        raise ValueError(
            f"--feature_spec_out is '{spec_file}'; expected a file name without a folder, the file "
            "is in --output"
        )
    check_flags(flags, 1, "chunk_size")
    _check_engine(flags)
    split = parse_split(flags)
    _check_growth(flags)
    known = None if flags.vocabulary is None else KnownData.read(flags)
    output, source = Path(flags.output), Path(flags.input)
    read = [source, source / flags.feature_spec_in, *([] if known is None else [known.path])]
    check_folder(output, DATA_SET, flags.overwrite, read)  # before hours of reading
    with _open_engine(flags) as engine:
        path = engine.input_path(flags.input)
        spec, inferred = _raw_data(flags, path, split, known, engine.scan)
        _check_splits(spec_file, spec, split)
        if flags.grow and TRAIN not in spec.sources:
            raise ValueError(
                f"--grow counts new values in the split '{TRAIN}'; {spec.origin} has "
                f"{rules.listing(spec.sources)}"
            )
        if known is None:
            encoding = new_encoding(spec, flags, path.is_file())
        else:
            spec, encoding = spec.as_in(known.spec, known.derived), known.encoding
            if encoding.growth is not None:
                spec = spec.without_sizes(encoding.growth.cardinalities)
        needs_memory = encoding.categorify or flags.split_by_time is not None
        if flags.memory_limit is not None and not needs_memory and flags.engine != SPARK:
            raise ValueError(
                "--memory_limit is for counting and looking up the values of --categorify, and for "
                "--split_by_time"
            )
        chunks = itertools.chain.from_iterable(spec.sources.values())
        files = [spec.base_directory / file for chunk in chunks for file in chunk.files]
        read = [*files, *encoding.vocabularies.values()]
        check_folder(output, DATA_SET, flags.overwrite, read)
        written = engine.transcode(spec, encoding, split)
    report = summary(spec, written, output)
    return f"{inferred}\n\n{report}" if inferred else report


def _open_engine(flags: argparse.Namespace):
    if flags.engine == SPARK:
        environment.require_spark()
        from dataloading.transcode.spark.engine import SparkTranscoder

        return SparkTranscoder(flags)
    return contextlib.nullcontext(DuckDBEngine(flags))


def _check_engine(flags: argparse.Namespace) -> None:
    for name in ("master", "spark_conf") if flags.engine != SPARK else ():
        if getattr(flags, name) is not None:
            raise ValueError(f"--{name} is only read with --engine {SPARK}; leave it out")
    names = ("output", "vocabulary", *(() if flags.engine == SPARK else ("input",)))
    for name in names:
        if "://" in (getattr(flags, name) or ""):
            only = f", or --engine {SPARK}, which reads it" if name == "input" else ""
            raise ValueError(
                f"--{name} {getattr(flags, name)}: expected a path of this machine{only}"
            )


def _raw_data(
    flags: argparse.Namespace,
    path: Path,
    split: SplitRequest | None,
    known: KnownData | None,
    scan: Scan,
) -> tuple[RawSpec, str]:
    """Returns the raw data of --input, which is at `path`, and its feature spec for people where it
    was inferred."""
    inferred = ""
    described = [f"--{role}" for role in ROLES if getattr(flags, role) is not None]
    if not path.is_file():
        if described:
            raise ValueError(
                f"{described[0]} describes a column of a file: expected --input FILE, got {path}; "
                "the columns of a folder are described by its feature spec"
            )
        content = yaml_io.read_mapping(path / flags.feature_spec_in)
        folder = (path / flags.feature_spec_in).parent
        return RawSpec.from_content(content, folder, _origin(flags, path)), ""
    if flags.feature_spec_in != SPEC_FILE:
        raise ValueError(
            f"--feature_spec_in is for a folder, --input {path} is a file: give the folder to read "
            "it with a feature spec"
        )
    if known is None:
        roles = {role: getattr(flags, role) for role in ROLES}
        content, inferred = new_content(path, roles, flags.split_by_time, scan)
    elif described:
        raise ValueError(f"{described[0]} and --vocabulary: the columns are those of {known.path}")
    else:
        target = TEST if split is None and not flags.grow else TRAIN
        content = known_content(path, known.spec, known.derived, target)
    return RawSpec.from_content(content, path.parent, _origin(flags, path)), inferred


def _origin(flags: argparse.Namespace, path: Path) -> str:
    """Returns what messages call the feature spec of --input, or the file that it names."""
    if str(path) == str(Path(flags.input)):
        return str(path if path.is_file() else path / flags.feature_spec_in)
    return flags.input  # remote, and `path` is a copy


def _check_growth(flags: argparse.Namespace) -> None:
    if flags.grow and flags.vocabulary is None:
        raise ValueError("--grow is for the ids of an earlier data set: expected --vocabulary DIR")
    if flags.evict_after is not None and not flags.grow:
        raise ValueError("--evict_after is for vocabularies that grow: expected --grow")
    if flags.date is not None and flags.vocabulary is not None and not flags.grow:
        raise ValueError("--date and --vocabulary: expected --grow, other vocabularies stay")


def _check_splits(spec_file: str, spec: RawSpec, split: SplitRequest | None) -> None:
    if spec_file in (*(spec.sources if split is None else split.shares), VOCABULARY_FOLDER):
        raise ValueError(
            f"--feature_spec_out is '{spec_file}', the name of a folder of the data set; choose "
            "another"
        )
    if split is None:
        return
    if tuple(spec.sources) != (TRAIN,):
        raise ValueError(
            f"--split divides the rows of '{TRAIN}': expected no other split in {spec.origin}, "
            f"got {rules.listing(spec.sources)}"
        )
    if spec.is_interactions and spec.channels[LABEL_CHANNEL]:
        raise ValueError(
            "--split: expected interactions without a label, for which negatives are drawn; "
            f"{spec.origin} has the label '{spec.channels[LABEL_CHANNEL][0]}', and rows of one "
            "candidate lists must stay together: divide them yourself"
        )


if __name__ == "__main__":
    sys.exit(main())
