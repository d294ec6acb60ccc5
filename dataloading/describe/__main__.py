"""Content of a data set, and a check that it is complete.

    python -m dataloading.describe data/mine
    python -m dataloading.describe data/mine --checkpoint runs/mine    also the model's tables

Every value of split binaries, split TFRecords and tensor files is checked, a few megabytes at a
time. Records of histories are not read.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from dataloading.describe.facts import (
    IdFacts,
    NumberFacts,
    chunk_facts,
    has_interactions,
    interactions_of,
    rare_items_note,
)
from dataloading.describe.tables import FLAG, describe_tables
from dataloading.engines.duckdb_session import DuckDBSession
from dataloading.formats.open_chunk import is_readable, open_chunk
from dataloading.formats.split_tfrecords.dataset import length_faults
from dataloading.formats.split_tfrecords.folder_format import CHUNK_TYPE, spec_of_folders
from dataloading.pipeline.chunk_reader import OpenChunk
from dataloading.spec.feature_spec import LABEL_CHANNEL, Chunk, FeatureSpec
from dataloading.spec.output_folder import SPEC_FILE
from runtime.cli import exit_status

BROKEN = 1  # exit status where the data set is not whole
_MEMORY_BYTES = 1 << 30  # for counting ids; what does not fit goes to a temporary folder
_FILES_SHOWN = 3  # of a chunk with more files, the sum


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 for a whole data set, 1 for a broken one, 2 without a data set to
    describe."""
    flags = _parser().parse_args(argv)
    path = Path(flags.directory) / flags.feature_spec
    return exit_status(lambda: describe(path, flags.checkpoint))


def describe(path: Path, checkpoint: Path | None = None) -> int:
    """Prints what is in the data set of a feature spec, and in the tables of a checkpoint.

    Returns:
        0 for a whole data set; else 1, and the tables are not printed.
    """
    spec = _as_stored(FeatureSpec.from_yaml(path))
    faults: list[str] = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        DuckDBSession(Path(scratch), _MEMORY_BYTES) as session,
    ):
        for split in spec.source_spec:
            print("\n".join(describe_split(spec, split, faults, session)))
    if faults:
        print(f"broken: {len(faults)} faults", *faults, sep="\n  ")
        return BROKEN
    print(_conclusion(spec))
    if checkpoint is not None:
        print(*describe_tables(spec, checkpoint), sep="\n")
    return 0


def describe_split(
    spec: FeatureSpec, split: str, faults: list[str], session: DuckDBSession
) -> list[str]:
    """A split in lines for people; what is wrong with it is added to `faults`."""
    bodies, rows, opened, kind, size_bytes = [], {}, {}, "", 0
    for index, chunk in enumerate(spec.source_spec[split]):
        sizes, problems = _file_sizes(spec, split, chunk)
        faults += problems
        size_bytes += sum(sizes.values())
        if len(sizes) > _FILES_SHOWN:
            total = f"{sum(sizes.values()):,} bytes"
            bodies.append(f"  {len(sizes)} files {chunk.files[0]}, ...: {total}")
        else:
            bodies += [f"  {file}: {size:,} bytes" for file, size in sizes.items()]
        if problems:
            continue
        if not is_readable(spec, chunk):
            bodies.append(
                f"    {chunk.type}: rows and values are not checked ({', '.join(chunk.features)})"
            )
            continue
        try:
            stored = open_chunk(spec, split, chunk)
            rows[index] = stored.num_samples
            if chunk.type == CHUNK_TYPE:
                opened[index] = stored
            for facts in chunk_facts(spec, chunk, stored, session):
                faults += [f"split '{split}': {fault}" for fault in facts.faults]
                bodies.append("    " + _feature_line(spec, facts, stored))
                bodies += rare_items_note(spec, split, facts)
                if facts.feature in spec.channel_spec.get(LABEL_CHANNEL, ()) and rows[index]:
                    kind = f", click rate {facts.mean:.4f}"
        except ValueError as error:  # a damaged record, with its location
            faults.append(str(error))
    try:
        faults += length_faults(spec, split, opened)
    except ValueError as error:  # length.json is invalid
        faults.append(str(error))
    # Where all are split TFRecords, length_faults has reported it.
    if len(set(rows.values())) > 1 and len(opened) < len(rows):
        listed = ", ".join(f"chunk {index} has {count}" for index, count in rows.items())
        faults.append(f"split '{split}': the chunks differ in their number of rows: {listed}")
    if 0 in rows.values():
        faults.append(f"split '{split}' has no rows")
    elif has_interactions(spec):
        kind = interactions_of(spec, split, rows, faults)
    count = f"{next(iter(rows.values())):,} rows" if rows else "rows unknown"
    return [f"{split}: {count}{kind}, {size_bytes:,} bytes", *bodies]


def _conclusion(spec: FeatureSpec) -> str:
    chunks = [chunk for chunks in spec.source_spec.values() for chunk in chunks]
    checked = " and ".join({chunk.type: None for chunk in chunks if is_readable(spec, chunk)})
    others = ", ".join(sorted({chunk.type for chunk in chunks if not is_readable(spec, chunk)}))
    if not others:
        return "complete: every file is there, has all its rows, and no value is out of range"
    whole = f"those of type {checked} have all their rows, and no value is out of range; "
    return f"every file is there; {whole if checked else ''}those of type {others} were not checked"


def _file_sizes(spec: FeatureSpec, split: str, chunk: Chunk) -> tuple[dict[str, int], list[str]]:
    """The bytes of each file that is there, and what is wrong with files."""
    sizes, faults = {}, []
    for file in chunk.files:
        path = spec.base_directory / file
        if not path.is_file():
            faults.append(f"split '{split}': file '{file}' is not there ({path})")
            continue
        sizes[file] = path.stat().st_size
        if chunk.type == "split_binary" and sizes[file] % spec.sample_bytes(chunk):
            faults.append(
                f"split '{split}': file '{file}' has {sizes[file]} bytes, not a whole number "
                f"of rows of {spec.sample_bytes(chunk)} bytes"
            )
    return sizes, faults


def _as_stored(spec: FeatureSpec) -> FeatureSpec:
    """Returns the spec, or that of the split TFRecords next to it if none of its files exist, as in
    data sets of the original."""
    chunks = [chunk for chunks in spec.source_spec.values() for chunk in chunks]
    if any((spec.base_directory / file).is_file() for c in chunks for file in c.files):
        return spec
    try:
        return spec_of_folders(spec)
    except ValueError:
        if chunks:
            return spec  # its own files are missing
        raise


def _feature_line(spec: FeatureSpec, facts: IdFacts | NumberFacts, stored: OpenChunk) -> str:
    name = facts.feature
    channel = next((c for c, names in spec.channel_spec.items() if name in names), "no channel")
    hotness = spec.hotness(name)
    width = f" x {hotness}" if hotness > 1 else ""
    if stored.ragged:
        ids_per_row = stored.num_values / max(1, stored.num_samples)
        width = f" x 0 to {hotness}, {ids_per_row:.3g} on the average"
    kind = f"{name} ({channel}, {spec.dtype(name)}{width})"
    if isinstance(facts, NumberFacts):
        return (
            f"{kind}: min {facts.smallest:.6g}, mean {facts.mean:.6g}, max {facts.largest:.6g}, "
            f"NaN {facts.num_nan:,}, infinite {facts.num_infinite:,}"
        )
    top = ", ".join(f"{i} {share:.1%}" for i, share in facts.top)
    return (
        f"{kind}: cardinality {facts.cardinality:,}, {facts.num_used:,} ids in use; most frequent: "
        f"{top or 'none'}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dataloading.describe",
        description="Prints what is in a data set. Exit status 1: it is broken.",
        allow_abbrev=False,
    )
    parser.add_argument("directory", help=f"folder with a {SPEC_FILE}")
    help_text = "name of the YAML file in it (default %(default)s)"
    parser.add_argument("--feature_spec", default=SPEC_FILE, metavar="FILE", help=help_text)
    help_text = "folder of a model trained on it: also print norms and unused ids of its tables"
    parser.add_argument(FLAG, type=Path, metavar="DIR", help=help_text)
    return parser


if __name__ == "__main__":
    sys.exit(main())
