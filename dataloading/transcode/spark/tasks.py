"""Work of Spark's tasks on the parts of a run; imports nothing of Spark.

Results are files of the run's folder, which all workers share. A repeated task writes the same
bytes again; a part that an earlier run finished is not read again.
"""

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataloading.spec.feature_spec import TRAIN
from dataloading.transcode.candidate_lists import CandidateListCheck
from dataloading.transcode.encode.row_values import (
    RowFacts,
    RowValues,
    stage_rows,
    staged_numbers,
    staged_values,
)
from dataloading.transcode.encode.statistics import BlockStatistics
from dataloading.transcode.spark.plan import Part
from dataloading.transcode.spark.run_folder import RunFolder
from dataloading.transcode.split import Route
from runtime.files.disk import sync

COUNTS = pa.schema(
    [
        ("part", pa.int32()),
        ("split", pa.int32()),
        ("feature", pa.int32()),
        ("value", pa.string()),
        ("count", pa.int64()),
    ]
)


@dataclass(frozen=True)
class PartFacts:
    """Facts about a part.

    Attributes:
        facts: of its rows.
        train_blocks: rows in training of each block, int64.
        first: numerical feature -> its first value in training; features without one are absent.
    """

    facts: RowFacts
    train_blocks: np.ndarray
    first: Mapping[str, float]

    def to_json(self) -> dict:
        facts = vars(self.facts)
        missing = [(*key, count) for key, count in self.facts.missing.items()]
        blocks = self.train_blocks.tolist()
        return {"facts": facts | {"missing": missing}, "blocks": blocks, "first": dict(self.first)}

    @classmethod
    def from_json(cls, stored: dict) -> "PartFacts":
        facts = RowFacts(**stored["facts"])
        facts.missing = Counter({(split, name): n for split, name, n in facts.missing})
        return cls(facts, np.array(stored["blocks"], np.int64), stored["first"])


@dataclass(frozen=True)
class StagePart:
    """Reads and checks the rows of a part, stages them, and counts its texts."""

    folder: RunFolder
    routes: tuple[Route, ...]
    values: RowValues
    chunk_size: int
    splits: tuple[str, ...]  # of the data set

    def __call__(self, part: Part) -> PartFacts:
        stored = self.folder.once(f"part {part.number}", lambda: self._staged(part).to_json())
        return PartFacts.from_json(stored)

    def _staged(self, part: Part) -> PartFacts:
        raw, route = self.values.raw, next(r for r in self.routes if r.source == part.split)
        chunks, facts, blocks_of_train = raw.sources[part.split], RowFacts(), []
        check = CandidateListCheck(raw, part.split) if raw.is_interactions else None
        if check and part.before:
            for blocks in part.before.blocks(chunks, self.chunk_size):
                block_of = {name: block for block in blocks for name in block.columns}
                check.add(self.values.read(part.split, block_of, RowFacts()), block_of)
        first: dict[str, float] = {}
        rows = part.blocks(chunks, self.chunk_size)
        path_of = functools.partial(self.folder.staged, part=part.number)
        for target in route.targets:
            path_of(target).parent.mkdir(parents=True, exist_ok=True)
        num_rows = 0
        for rows_of in stage_rows(self.values, route, rows, part.start, path_of, facts, check):
            num_rows += sum(batch.num_rows for batch in rows_of.values())
            if TRAIN in rows_of:
                blocks_of_train.append(rows_of[TRAIN].num_rows)
                self._see_first(rows_of[TRAIN], first)
        if num_rows != part.stop - part.start:
            raise ValueError(
                f"{raw.origin}: split '{part.split}': expected {part.stop - part.start} rows "
                f"in part {part.number}, got {num_rows}: files changed while they were read"
            )
        if check and part.is_last:
            check.end()
        self._count_texts(part.number, route)
        return PartFacts(facts, np.array(blocks_of_train, np.int64), first)

    def _see_first(self, rows: pa.RecordBatch, first: dict[str, float]) -> None:
        for name in self.values.numericals:
            if name not in first:
                values = staged_numbers(rows, self.values.columns[name])
                present = values[~np.isnan(values)]
                if present.size:
                    first[name] = float(present[0])

    def _count_texts(self, part: int, route: Route) -> None:
        path = self.folder.counts(part)
        path.parent.mkdir(exist_ok=True)
        with pq.ParquetWriter(path, COUNTS) as writer:
            for target in route.targets:
                file = self.folder.staged(target, part)
                for number, feature in enumerate(self.values.encoding.categorify):
                    column = self.values.columns[feature]
                    rows = pq.read_table(file, columns=[column]).combine_chunks()
                    values = [staged_values(batch, column) for batch in rows.to_batches()]
                    if not values:
                        continue
                    counted = pc.value_counts(pa.concat_arrays(values).drop_null())
                    numbers = (part, self.splits.index(target), number)
                    constants = [np.full(len(counted), n, np.int32) for n in numbers]
                    columns = [*map(pa.array, constants), *counted.flatten()]
                    writer.write_batch(pa.record_batch(columns, schema=COUNTS))
        sync(path)


def part_statistics(
    folder: RunFolder,
    columns: Mapping[str, str],
    first: Mapping[str, float],
    numbered: tuple[int, np.ndarray],
) -> np.ndarray:
    """Returns counts, means and squares of the blocks of a part, float64 [blocks, features, 3].

    Args:
        columns: numerical feature -> staged column.
        first: feature -> its first value in training; counts of others are 0.
        numbered: number of the part, rows in training of each block.
    """
    part, blocks = numbered
    result, ends = np.zeros((len(blocks), len(columns), 3)), np.cumsum(blocks)
    for position, (name, column) in enumerate(columns.items()):
        table = pq.read_table(folder.staged(TRAIN, part), columns=[column])
        batches = table.combine_chunks().to_batches()
        if not batches or name not in first:
            continue
        values = np.concatenate([staged_numbers(batch, column) for batch in batches])
        hotness = len(values) // max(1, int(ends[-1]))
        for block, (end, size) in enumerate(zip(ends, blocks, strict=True)):
            own = values[(end - size) * hotness : end * hotness]
            present = own[~np.isnan(own)]
            if present.size:
                result[block, position] = BlockStatistics.from_values(present, first[name])
    return result
