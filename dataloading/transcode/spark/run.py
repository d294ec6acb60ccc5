"""Stages of a run of transcode with Spark, on parts of the rows; Spark itself is in `jobs.py`."""

import contextlib
import dataclasses
import functools
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from dataloading.spec.feature_spec import TRAIN, FeatureSpec
from dataloading.table_input.duckdb_files import read_parquet
from dataloading.table_input.files import CSV, RawChunk, check_lengths, file_blocks
from dataloading.transcode.candidate_lists import CandidateListCheck
from dataloading.transcode.encode.statistics import BlockStatistics
from dataloading.transcode.encode.texts import TextIds, features_that_match, float_integers
from dataloading.transcode.encode.vocabulary import Vocabularies
from dataloading.transcode.encoding import Encoding
from dataloading.transcode.raw_spec import RawSpec
from dataloading.transcode.spark import plan, sources
from dataloading.transcode.spark.encode_task import EncodePart, PartRows
from dataloading.transcode.spark.jobs import SparkJobs
from dataloading.transcode.spark.plan import FileRows, Part, split_parts
from dataloading.transcode.spark.run_folder import RunFolder
from dataloading.transcode.spark.tasks import PartFacts, StagePart, part_statistics
from dataloading.transcode.split import SplitRequest, WrittenTimes, routes_of, write_block_times
from dataloading.transcode.transcoding import Transcoding
from runtime.files.disk import allocate

_SCANNED_ROWS = 1 << 16


class CountedColumn(NamedTuple):
    """See `CountedTexts`."""

    num_values: int
    counts: str


class SparkRun:
    """The stages of one run: reads, counts and encodes all rows.

    Args:
        folder: of what the run has done so far.
        data: folder of the data set.
        vocabularies: DuckDB, which sorts the vocabularies and the times.
    """

    def __init__(
        self,
        jobs: SparkJobs,
        folder: RunFolder,
        data: Path,
        vocabularies: Vocabularies,
        raw: RawSpec,
        encoding: Encoding,
        split: SplitRequest | None,
        chunk_size: int,
    ):
        self._jobs, self._folder, self._data, self._vocabularies = jobs, folder, data, vocabularies
        self._raw, self._encoding, self._chunk_size = raw, encoding, chunk_size
        report("counting rows")
        self._rows = sources.rows_of_splits(jobs, folder, chunk_size, raw)
        self._parts = self._plan(self._rows)
        routes = routes_of(raw, split, self._vocabularies, self._write_times)
        texts = (*encoding.categorify, *encoding.hash_buckets)
        floats = float_integers(raw, texts, encoding.vocabularies, self._matcher(set(texts)))
        self._work = Transcoding(raw, routes, encoding, self._data, floats)

    def _plan(self, rows: Mapping[str, list[list[FileRows]]]) -> dict[str, list[Part]]:
        parts, number = {}, 0
        for split, chunks in rows.items():
            num_rows = [sum(int(file.blocks.sum()) for file in files) for files in chunks]
            check_lengths(self._raw, split, num_rows)
            if not num_rows[0]:
                raise ValueError(f"{self._raw.origin}: source_spec: split '{split}' has no rows")
            length = 1
            if self._raw.is_interactions:
                length = CandidateListCheck(self._raw, split).length
            parts[split] = split_parts(split, chunks, self._chunk_size, number, length)
            number += len(parts[split])
        return parts

    def _write_times(self, column: str, time_type: pa.DataType) -> WrittenTimes:
        folder = self._folder.path / "times" / str(time_type)
        work = functools.partial(
            _times, folder, self._raw.sources[TRAIN], self._chunk_size, column, time_type
        )
        files, num_rows = [], 0
        for times in self._jobs.map(self._folder, f"times {time_type}", work, self._parts[TRAIN]):
            files += times.files
            num_rows += times.num_rows
            if times.failure:
                return WrittenTimes(files, num_rows, times.failure)
        return WrittenTimes(files, num_rows)

    def finish(self) -> FeatureSpec:
        work, encoding = self._work, self._encoding
        facts = self._stage()
        self._add_statistics(facts)
        texts = TextIds(encoding, self._data, self._vocabularies, self._counted)
        counts = self._folder.path / "counted"
        tables = self._folder.path / "vocabularies"
        tables.mkdir(exist_ok=True)
        if encoding.categorify:
            report("counting values")
            self._folder.once(
                "counted", lambda: self._jobs.count_texts(self._folder.path / "counts", counts)
            )
        session = self._vocabularies if encoding.categorify else contextlib.nullcontext()
        with session:
            layout = work.complete(texts, tables)
        self._encode(layout, texts, facts)
        with session:
            texts.look_for_unknown()
        return dataclasses.replace(layout, metadata=work.metadata(texts))

    def _stage(self) -> list[PartFacts]:
        report("reading rows")
        work, parts = self._work, [part for own in self._parts.values() for part in own]
        routes, splits = tuple(work.routes), tuple(work.spec.sources)
        task = StagePart(self._folder, routes, work.values, self._chunk_size, splits)
        facts = self._jobs.map(self._folder, "stage", task, parts)
        for part in facts:
            work.facts.update(part.facts)
        for route in work.routes:
            work.check_targets(route, self._parts[route.source][-1].stop)
        return facts

    def _add_statistics(self, facts: list[PartFacts]) -> None:
        work = self._work
        names = [name for name, f in work.numericals.items() if f.needs_statistics]
        if not names:
            return
        report("computing statistics")
        first: dict[str, float] = {}
        for part in facts:
            first = {**part.first, **first}
        columns = {name: work.values.columns[name] for name in names}
        blocks = [(n, part.train_blocks) for n, part in enumerate(facts) if len(part.train_blocks)]
        task = functools.partial(part_statistics, self._folder, columns, first)
        results = self._jobs.map(self._folder, "statistics", task, blocks)
        for position, name in enumerate(names):
            own = (
                BlockStatistics(int(count), float(mean), float(squares))
                for part in results
                for count, mean, squares in part[:, position]
                if count
            )
            work.numericals[name].statistics.add_blocks(own, first.get(name, 0.0))

    def _counted(self, split: str, feature: str) -> CountedColumn:
        files = sorted((self._folder.path / "counted").glob("*.parquet"))
        number = list(self._work.spec.sources).index(split)
        place = f"split = {number} AND feature = {self._encoding.categorify.index(feature)}"
        num_values = self._work.facts.rows[split] * self._work.spec.hotness(feature)
        query = f"(SELECT value, count FROM {read_parquet(files)} WHERE {place})"
        return CountedColumn(num_values, query)

    def _encode(self, layout: FeatureSpec, texts: TextIds, facts: list[PartFacts]) -> None:
        report("encoding rows")
        work, categorify = self._work, self._encoding.categorify
        for split, chunks in layout.source_spec.items():
            for chunk in chunks:
                path = self._data / chunk.files[0]
                path.parent.mkdir(exist_ok=True)
                allocate(path, work.facts.rows[split] * layout.sample_bytes(chunk))
        before, parts = Counter(), {}
        for number, part in enumerate(facts):
            parts[number] = tuple(
                PartRows(split, rows, before[split]) for split, rows in part.facts.rows.items()
            )
            before.update(part.facts.rows)
        task = EncodePart(self._folder, self._data, layout, work.values, parts)
        left = [n for n in parts if not self._folder.result(f"encoded {n}").exists()]
        if left:
            tables = [texts.tables[name] for name in categorify]
            num_values = sum(layout.cardinality(name) - 1 for name in categorify)
            counts = self._folder.path / "counts"
            self._jobs.encode(task, counts, tables, num_values, left, len(parts))
        unknown = Counter()
        for number in parts:
            for name, feature, count in self._folder.once(f"encoded {number}", _missing_part):
                unknown[name, feature] += count
        for split, chunks in layout.source_spec.items():
            for chunk in chunks:
                if (name := chunk.features[0]) in categorify:
                    texts.count_unknown(split, name, unknown[split, name])

    def _matcher(self, texts: set[str]) -> Callable[..., set[str]]:
        """See `texts.matching_features`: one job per pattern, over all files with texts."""
        results: dict[str, dict[tuple, set[str]]] = {}

        def matching(
            spec: RawSpec, split: str, chunk: RawChunk, features: set[str], pattern: str
        ) -> set[str]:
            if features and pattern not in results:
                results[pattern] = self._match(texts, pattern, f"match {len(results)}")
            return features & results[pattern][split, chunk] if features else set()

        return matching

    def _match(self, texts: set[str], pattern: str, job: str) -> dict[tuple, set[str]]:
        spec, keys, items = self._raw, [], []
        result: dict[tuple, set[str]] = {}
        for split, chunks in spec.sources.items():
            for chunk, files in zip(chunks, self._rows[split], strict=True):
                names = {name for name in texts & set(chunk.features) if spec.hotness(name) == 1}
                if chunk.type != CSV or not names:
                    continue
                for name, file in zip(chunk.files, files, strict=True):
                    key = split, dataclasses.replace(chunk, files=(name,))
                    result[key] = set(names)
                    for part in plan.slices(file):
                        keys.append(key)
                        items.append((file.source, chunk, names, part))
        work = functools.partial(_matching, pattern)
        for key, names in zip(keys, self._jobs.map(self._folder, job, work, items), strict=True):
            result[key] &= names
        return result


def _matching(pattern: str, item: tuple) -> set[str]:
    source, chunk, names, part = item
    blocks = file_blocks(Path(source.path), chunk, _SCANNED_ROWS, source.where, part)
    return features_that_match(blocks, names, pattern)


def _times(folder: Path, chunks, chunk_size: int, column: str, time_type, part: Part):
    folder.mkdir(parents=True, exist_ok=True)
    blocks = part.blocks(chunks, chunk_size)
    return write_block_times(blocks, column, time_type, folder / f"{part.number:06}.parquet")


def _missing_part():
    raise ValueError("a part was not encoded: run the command again to resume")


def report(text: str) -> None:
    """Prints the stage that begins."""
    print(f"spark: {text}", file=sys.stderr, flush=True)
