"""Raw files of generated clicks for a simplified feature spec, as `transcode` reads them.

    python -m preproc.gen_csv --feature_spec_in feature_spec.yaml --output raw --size 1000

The rows are those of `dataloading/synthetic/rows.py`: a model learns from them.
"""

import contextlib
import csv
import io
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from config.command import CommandOptions, parse
from config.flag import flag
from dataloading.spec.data_set_files import SPEC_FILE, check_files_apart
from dataloading.spec.feature_spec import CATEGORICAL_CHANNEL, LABEL_CHANNEL, FeatureSpec
from dataloading.synthetic.dataset import rows_of_files
from dataloading.synthetic.rows import BLOCK_SAMPLES, SPLITS, SyntheticSamples, stored_spec
from preproc.encoding.lists import SEPARATOR
from preproc.sources.column_chunk import CSV, SourceChunk
from preproc.transcode.raw.spec import RawSpec
from runtime.cli import exit_status
from runtime.files.staging import output_folder


@dataclass(frozen=True)
class RawFileOptions(CommandOptions):
    """Writes generated clicks into the CSV or Parquet files that a simplified feature spec names.

    A copy of the spec is with them.
    """

    feature_spec_in: str = flag(SPEC_FILE, "simplified feature spec", metavar="FILE")
    output: str = flag("/data", "folder of the files", metavar="DIR")
    size: int = flag(1000, "rows of each split", at_least=1)
    auto_cardinality: int = flag(
        1000, "ids to draw for features whose cardinality is auto", at_least=1
    )
    seed: int = flag(0, "of the teacher and the rows", at_least=0)


def main(argv: list[str] | None = None) -> int:
    """Runs the tool; returns the status of `runtime.cli.exit_status`."""
    return exit_status(
        lambda: print(generate(parse(RawFileOptions, argv, "preproc.gen_csv"))),
        "interrupted; nothing was written",
    )


def generate(flags: RawFileOptions) -> str:
    """Writes the requested files; returns a report for people."""
    spec = RawSpec.from_yaml(flags.feature_spec_in)
    check_files_apart(spec.sources, spec.origin)
    generated = _spec_of_rows(spec, flags.auto_cardinality)
    rows = {name: SyntheticSamples(generated, name, flags.seed) for name in spec.sources}
    output = Path(flags.output)
    chunks = itertools.chain.from_iterable(spec.sources.values())
    files = [SPEC_FILE, *(file for chunk in chunks for file in chunk.files)]
    new = output_folder(output, "preproc.gen_csv", "folder of raw data")
    with _complete_files(output, files) if output.is_dir() else new as folder:
        for split, chunks in spec.sources.items():
            _write_split(folder, chunks, rows[split], flags.size)
        shutil.copyfile(flags.feature_spec_in, folder / SPEC_FILE)
    return f"written: {flags.output}, {flags.size:,} rows each of {', '.join(spec.sources)}"


@contextlib.contextmanager
def _complete_files(directory: Path, files: Iterable[str]) -> Iterator[Path]:
    """Yields a new folder whose files appear in `directory`, a folder like the volume `/data`.

    Raises:
        ValueError: one of the files exists.
    """
    for file in files:
        if (directory / file).exists():
            raise ValueError(f"{directory / file} exists; remove it or choose another --output")
    with tempfile.TemporaryDirectory(prefix=".gen_csv-", dir=directory) as folder:
        yield Path(folder)
        for file in files:
            (directory / file).parent.mkdir(parents=True, exist_ok=True)
            os.link(Path(folder, file), directory / file)  # fails if the name was taken since


def _spec_of_rows(spec: RawSpec, auto_cardinality: int) -> FeatureSpec:
    if spec.is_interactions:
        raise ValueError(f"{spec.origin}: channel_spec: expected clicks, got users and items")
    if not spec.channels[LABEL_CHANNEL]:
        raise ValueError(
            f"{spec.origin}: channel_spec: channel '{LABEL_CHANNEL}' has no feature, and clicks "
            "are drawn with their labels; name one (a split may leave it out of its chunks)"
        )
    absent = {"cardinality": auto_cardinality, "dtype": "int64"}
    features = {
        name: {**(absent if name in spec.channels[CATEGORICAL_CHANNEL] else {}), **keys}
        for name, keys in spec.features.items()
    }
    return stored_spec(features, spec.channels, SPLITS, spec.origin)


def _write_split(folder: Path, chunks, rows: SyntheticSamples, size: int) -> None:
    columns = rows.features(0)
    with contextlib.ExitStack() as stack:
        targets = []
        for chunk in chunks:
            schema = _table(chunk, columns, 0, 0).schema
            for file, first, last in rows_of_files(chunk.files, size):
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                write = stack.enter_context(_opened(folder / file, chunk, schema))
                targets.append((chunk, first, last, write))
        for start in range(0, size, BLOCK_SAMPLES):
            columns = rows.features(start // BLOCK_SAMPLES)
            for chunk, first, last, write in targets:
                begin, end = max(first - start, 0), min(last - start, BLOCK_SAMPLES)
                if begin < end:
                    write(_table(chunk, columns, begin, end))


@contextlib.contextmanager
def _opened(path: Path, chunk: SourceChunk, schema: pa.Schema) -> Iterator[Callable]:
    """A function that appends tables to a CSV or Parquet file."""
    if chunk.type != CSV:
        with pq.ParquetWriter(path, schema) as writer:
            yield writer.write_table
        return
    style = {"delimiter": chunk.delimiter, "quoting_style": "none"}
    options = pa_csv.WriteOptions(include_header=False, **style)
    with pa.output_stream(str(path), compression="detect") as stream:  # by the name, as it is read
        if chunk.header:
            stream.write(_header(chunk))
        with pa_csv.CSVWriter(stream, schema, write_options=options) as writer:
            yield writer.write_table


def _header(chunk: SourceChunk) -> bytes:
    if not chunk.quoting:
        return (chunk.delimiter.join(chunk.columns) + "\n").encode()
    line = io.StringIO()
    csv.writer(line, delimiter=chunk.delimiter, lineterminator="\n").writerow(chunk.columns)
    return line.getvalue().encode()


def _table(chunk: SourceChunk, columns: dict[str, np.ndarray], begin: int, end: int) -> pa.Table:
    arrays = []
    for name in chunk.columns:
        # A feature in no channel is not read; its column is there.
        values = columns.get(name, np.zeros((BLOCK_SAMPLES, 1), np.int8))[begin:end]
        if values.dtype.kind == "f":  # Arrow prints no float16
            values = values.astype(np.promote_types(values.dtype, np.float32))
        elif values.dtype.kind == "b":
            values = values.astype(np.int8)
        flat = pa.array(values.ravel())
        if values.shape[1] > 1:
            texts = flat.cast(pa.string()) if chunk.type == CSV else flat
            lists = pa.FixedSizeListArray.from_arrays(texts, values.shape[1])
            lists = lists.cast(pa.list_(texts.type))
            flat = pc.binary_join(lists, SEPARATOR) if chunk.type == CSV else lists
        arrays.append(flat)
    return pa.table(arrays, names=list(chunk.columns))


if __name__ == "__main__":
    sys.exit(main())
