"""From raw files to a data set of split binaries, a block of rows at a time.

The raw files are read once: every value is checked, and the rows of each split are staged as a
Parquet file of numbers and texts. Then the staged rows are encoded by what follows from all of
them: cardinalities, vocabularies, fill values and scales.
"""

import argparse
import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataloading.spec.feature_spec import TRAIN, FeatureSpec
from dataloading.spec.output_folder import data_set_folder
from dataloading.table_input.files import RawChunk, file_blocks, split_blocks
from dataloading.transcode import stored_files
from dataloading.transcode.arguments import parse_bytes
from dataloading.transcode.candidate_lists import CandidateListCheck
from dataloading.transcode.encode.row_values import staged_numbers
from dataloading.transcode.encode.texts import TextIds, float_integers
from dataloading.transcode.encode.vocabulary import TextColumn, Vocabularies
from dataloading.transcode.encoding import Encoding
from dataloading.transcode.infer import ColumnFacts, facts_of
from dataloading.transcode.progress import progress_bar
from dataloading.transcode.raw_spec import RawSpec
from dataloading.transcode.split import (
    Route,
    SplitRequest,
    WrittenTimes,
    routes_of,
    write_block_times,
)
from dataloading.transcode.stored_files import StagedRows
from dataloading.transcode.transcoding import Transcoding, check_metadata, write_spec

_BLOCK_ROWS = 1 << 16  # encoded at a time
_DEFAULT_MEMORY = "1GB"


def transcode(
    spec: RawSpec,
    encoding: Encoding,
    output: Path,
    *,
    split: SplitRequest | None = None,
    spec_file: str = "feature_spec.yaml",
    chunk_size: int = 65_536,
    memory_limit_bytes: int = 1 << 30,
    overwrite: bool = False,
) -> FeatureSpec:
    """Writes the data set; its folder appears when it is whole.

    Args:
        spec: the raw data; if its rows are divided, it has the split `train` only.
        output: new or empty, or with `overwrite` a data set to replace.
        split: divides the rows into train, validation and test.
        spec_file: name of the YAML file in `output`.
        chunk_size: the most rows to work on at a time.
        memory_limit_bytes: for counting and looking up texts, and for sorting times.

    Returns:
        The spec as written. Its metadata is that of `spec` and, under `transcode`, the encoding and
        rows, click rate and shares of unknown and missing values of each split.

    Raises:
        ValueError: a rule of the raw data is broken; the message names file and row.
        OSError: a file cannot be written; the message names it.
    """
    check_metadata(spec)
    with data_set_folder(output, overwrite, spec_file) as folder:
        with tempfile.TemporaryDirectory(prefix=".scratch.", dir=folder) as scratch:
            session = Vocabularies(Path(scratch) / "duckdb", memory_limit_bytes)

            def write_times(column: str, time_type: pa.DataType) -> WrittenTimes:
                blocks, file = split_blocks(spec, TRAIN, chunk_size), Path(scratch) / "times"
                return write_block_times(blocks, column, time_type, file)

            routes = routes_of(spec, split, session, write_times)
            work = _Run(spec, routes, encoding, folder, Path(scratch))
            for route in routes:
                work.stage(route, chunk_size)
            final = work.finish(session)
        write_spec(final, spec.is_interactions, folder / spec_file)
    return FeatureSpec.from_yaml(output / spec_file)


class DuckDBEngine:
    """Engine of `--engine duckdb`: this process, which reads the files once, and DuckDB."""

    def __init__(self, flags: argparse.Namespace):
        self._flags = flags

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def input_path(self, path: str) -> Path:
        """Returns the path of --input; other engines copy remote files to there."""
        return Path(path)

    def scan(self, path: Path, chunk: RawChunk) -> dict[str, ColumnFacts]:
        """Returns the facts of the columns of a file."""
        return facts_of(file_blocks(path, chunk, self._flags.chunk_size, str(path)), chunk.features)

    def transcode(
        self, spec: RawSpec, encoding: Encoding, split: SplitRequest | None
    ) -> FeatureSpec:
        """Writes the data set; see `transcode`."""
        flags = self._flags
        return transcode(
            spec,
            encoding,
            Path(flags.output),
            split=split,
            spec_file=flags.feature_spec_out,
            chunk_size=flags.chunk_size,
            memory_limit_bytes=parse_bytes(flags.memory_limit or _DEFAULT_MEMORY),
            overwrite=flags.overwrite,
        )


class _Run(Transcoding):
    """A run in this process, with DuckDB for texts."""

    def __init__(
        self, raw: RawSpec, routes: list[Route], encoding: Encoding, folder: Path, scratch: Path
    ):
        texts = (*encoding.categorify, *encoding.hash_buckets)
        floats = float_integers(raw, texts, encoding.vocabularies)
        super().__init__(raw, routes, encoding, folder, floats)
        self._scratch = scratch

    def stage(self, route: Route, chunk_size: int) -> None:
        """Reads the raw rows of a split, and stages them by split of the data set."""
        check = CandidateListCheck(self.raw, route.source) if self.raw.is_interactions else None
        with ExitStack() as stack:
            staged = {
                target: stack.enter_context(closing(StagedRows(self._path(target))))
                for target in route.targets
            }
            bar = stack.enter_context(progress_bar(f"reading {route.source}", " rows"))
            first_row = 0
            for blocks in split_blocks(self.raw, route.source, chunk_size):
                block_of = {name: block for block in blocks for name in block.columns}
                values = self.values.read(route.source, block_of, self.facts)
                if check:
                    check.add(values, block_of)
                batch = self.values.staged(values)
                for target, mask in route.parts(first_row, block_of):
                    part = batch if mask is None else batch.filter(pa.array(mask))
                    self._add(target, part)
                    staged[target].append(part)
                first_row += batch.num_rows
                bar.update(batch.num_rows)
        if check:
            check.end()
        self.check_targets(route, first_row)

    def _path(self, split: str) -> Path:
        return self._scratch / f"{split}.parquet"

    def _add(self, split: str, rows: pa.RecordBatch) -> None:
        """Takes the statistics of rows of a split."""
        self.values.count(split, rows, self.facts)
        for name, feature in self.numericals.items() if split == TRAIN else ():
            if feature.needs_statistics:
                feature.statistics.add(staged_numbers(rows, self.values.columns[name]))

    def finish(self, vocabularies: Vocabularies) -> FeatureSpec:
        """Encodes the staged rows; returns the spec of the data set."""
        texts = TextIds(self.encoding, self.folder, vocabularies, self._texts)
        with ExitStack() as stack:
            if self.encoding.categorify:
                stack.enter_context(vocabularies)
            layout = self.complete(texts, self._scratch)
            sources = layout.source_spec.items()
            files = [(split, chunk) for split, chunks in sources for chunk in chunks]
            bar = stack.enter_context(progress_bar("encoding ids", " files", len(files)))
            for split, chunk in files:
                path = self.folder / chunk.files[0]
                path.parent.mkdir(exist_ok=True)
                dtype = layout.dtype(chunk.features[0]).newbyteorder("<")
                with path.open("wb") as stream:
                    for values in self._encoded(split, chunk.features, texts):
                        stored_files.put(stream, values.astype(dtype))
                bar.update()
            texts.look_for_unknown()
        return dataclasses.replace(layout, metadata=self.metadata(texts))

    def _texts(self, split: str, feature: str) -> TextColumn:
        hotness = self.spec.hotness(feature)
        return TextColumn(self._path(split), self.values.columns[feature], hotness)

    def _encoded(self, split: str, features: Sequence[str], texts: TextIds) -> Iterator[np.ndarray]:
        """Yields the values of the features of a file, in the order of its rows."""
        if features[0] in self.encoding.categorify:
            yield from texts.ids(split, features[0])
            return
        names, first_row = [name for name in features if name in self.values.columns], 0
        with pq.ParquetFile(self._path(split)) as file:
            columns = [self.values.columns[name] for name in names]
            for batch in file.iter_batches(_BLOCK_ROWS, columns=columns, use_threads=False):
                yield self.values.stored(batch, names, split, first_row)
                first_row += batch.num_rows
