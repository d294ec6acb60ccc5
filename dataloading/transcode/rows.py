"""From raw files to a data set of split binaries, a block of rows at a time.

The raw files are read once: every value is checked, and the rows of each split are staged as a
Parquet file of numbers and texts. Then the staged rows are encoded by what follows from all of
them: cardinalities, vocabularies, fill values and scales.
"""

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataloading.spec.feature_spec import TRAIN, FeatureSpec
from dataloading.table_input.files import RawChunk, file_blocks, split_blocks
from dataloading.transcode import stored_files
from dataloading.transcode.arguments import TOOL, parse_bytes
from dataloading.transcode.candidate_lists import CandidateListCheck
from dataloading.transcode.encode.row_values import stage_rows, staged_numbers
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
from dataloading.transcode.transcoding import Transcoding, check_metadata, write_spec
from runtime.files.outputs import DATA_SET
from runtime.files.staging import Staging

_BLOCK_ROWS = 1 << 16  # encoded at a time
_DEFAULT_MEMORY = "1GB"


class DuckDBEngine:
    """Engine of `--engine duckdb`: this process, which reads the files once, and DuckDB."""

    def __init__(self, flags: argparse.Namespace):
        self._flags = flags

    def input_path(self, path: str) -> Path:
        """Returns the path of --input; other engines copy remote files to there."""
        return Path(path)

    def scan(self, path: Path, chunk: RawChunk) -> dict[str, ColumnFacts]:
        """Returns the facts of the columns of a file."""
        return facts_of(file_blocks(path, chunk, self._flags.chunk_size, str(path)), chunk.features)

    def transcode(
        self, spec: RawSpec, encoding: Encoding, split: SplitRequest | None
    ) -> FeatureSpec:
        """Writes the data set; its folder appears when it is whole.

        Args:
            spec: the raw data; if its rows are divided, it has the split `train` only.

        Returns:
            The spec as written. Its metadata is that of `spec` and, under `transcode`, the encoding
            and rows, click rate and shares of unknown and missing values of each split.

        Raises:
            ValueError: a rule of the raw data is broken; the message names file and row.
            OSError: a file cannot be written; the message names it.
        """
        check_metadata(spec)
        flags, spec_file = self._flags, self._flags.feature_spec_out
        output = Path(flags.output)
        memory_limit_bytes = parse_bytes(flags.memory_limit or _DEFAULT_MEMORY)
        with Staging(output, TOOL, DATA_SET, flags.overwrite, resumes=False) as staging:
            folder, scratch = staging.data, staging.scratch
            session = Vocabularies(scratch / "duckdb", memory_limit_bytes)

            def write_times(column: str, time_type: pa.DataType) -> WrittenTimes:
                blocks = split_blocks(spec, TRAIN, flags.chunk_size)
                return write_block_times(blocks, column, time_type, scratch / "times")

            routes = routes_of(spec, split, session, write_times)
            work = _Run(spec, routes, encoding, folder, scratch)
            for route in routes:
                work.stage(route, flags.chunk_size)
            final = work.finish(session)
            write_spec(final, spec.is_interactions, folder / spec_file)
            staging.publish()
        return FeatureSpec.from_yaml(output / spec_file)


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
        check = CandidateListCheck(self.raw, route.source) if self.raw.is_interactions else None
        blocks, num_rows = split_blocks(self.raw, route.source, chunk_size), 0
        with progress_bar(f"reading {route.source}", " rows") as bar:
            for rows_of in stage_rows(self.values, route, blocks, 0, self._path, self.facts, check):
                for name, feature in self.numericals.items() if TRAIN in rows_of else ():
                    if feature.needs_statistics:
                        column = self.values.columns[name]
                        feature.statistics.add(staged_numbers(rows_of[TRAIN], column))
                size = sum(rows.num_rows for rows in rows_of.values())
                num_rows += size
                bar.update(size)
        if check:
            check.end()
        self.check_targets(route, num_rows)

    def _path(self, split: str) -> Path:
        return self._scratch / f"{split}.parquet"

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
                        # Ids below the cardinality, or numerical values of this dtype.
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
