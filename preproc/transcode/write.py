"""Encoded rows into the files of a data set: a part of the rows at a time, in any process."""

import itertools
import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from dataloading.spec.feature_spec import Chunk, FeatureSpec
from preproc.encoding.encoder import Encoder, EncodingError
from preproc.engines.engine import PART, ROW, SPLIT, Engine
from preproc.engines.spark.tasks import runs
from runtime.files.disk import write_errors_name

_THREADS = 2  # NumPy and Arrow encode without the lock of the interpreter


@dataclass
class SplitFacts:
    """Facts about the rows of a split.

    Attributes:
        rows, clicks: number of rows, and of labels that are 1.
        unknown: feature -> number of values that have id 0.
        long_lists: feature -> number of lists of which values were left out.
    """

    rows: int = 0
    clicks: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    long_lists: Counter[str] = field(default_factory=Counter)

    def add(self, facts: Mapping) -> None:
        """Adds the facts of other rows, from JSON."""
        self.rows += facts["rows"]
        self.clicks += facts["clicks"]
        self.unknown.update(facts["unknown"])
        self.long_lists.update(facts["long_lists"])


@dataclass(frozen=True)
class RowWriter:
    """Encodes rows and writes them at their places.

    Attributes:
        encoder: of the columns of the rows.
        names: features to encode, those that the rows have.
        label: name of the label; empty without one.
        ids: features whose ids 0 are counted.
        files: chunks of each target split, of one file with its absolute path.
        starts: part -> the number of rows of each target before it.
    """

    encoder: Encoder
    names: tuple[str, ...]
    label: str
    ids: tuple[str, ...]
    files: tuple[tuple[Chunk, ...], ...]
    starts: Mapping[int, Sequence[int]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
        """Writes all rows, whose parts are contiguous; yields the facts of each split as JSON, or
        the first value that cannot be encoded."""
        facts = [SplitFacts() for _ in self.files]
        part, places = -1, [0] * len(self.files)
        with ExitStack() as stack:
            streams = [
                [stack.enter_context(open(file.files[0], "r+b")) for file in files]
                for files in self.files
            ]
            parts = ((number, run) for number, own in runs(batches, PART) for run in own)
            for (number, run), encoded in _encoded_ahead(self._encode, parts):
                if number != part:
                    part, places = number, list(self.starts[number])
                try:
                    sizes, values, long_lists = encoded.result()
                except EncodingError as error:
                    yield json.dumps(
                        {
                            "row": run.column(ROW)[error.row or 0].as_py(),
                            "error": f"expected {error.rule}, got {error.found}",
                            "feature": error.feature,
                        }
                    )
                    return
                facts[0].long_lists.update(long_lists)
                self._write(sizes, values, streams, places, facts)
        yield json.dumps([vars(each) for each in facts])

    def _encode(
        self, rows: pa.RecordBatch
    ) -> tuple[list[int], dict[str, np.ndarray], Counter[str]]:
        """Returns the number of rows of each target, and the values of its rows after those of
        the targets before it."""
        long_lists: Counter[str] = Counter()
        values = self.encoder.encode(rows, self.names, long_lists)
        if len(self.files) == 1:
            return [rows.num_rows], values, long_lists
        targets = rows.column(SPLIT).to_numpy().astype(np.int8)  # sorted faster than wider ones
        order = np.argsort(targets, kind="stable")
        sizes = np.bincount(targets, minlength=len(self.files)).tolist()
        values = {name: array.take(order, axis=0) for name, array in values.items()}
        return sizes, values, long_lists

    def _write(
        self,
        sizes: Sequence[int],
        values: Mapping[str, np.ndarray],
        streams: Sequence[Sequence[BinaryIO]],
        places: list[int],
        facts: Sequence[SplitFacts],
    ) -> None:
        ends = itertools.accumulate(sizes)
        for target, (size, end) in enumerate(zip(sizes, ends, strict=True)):
            if not size:
                continue
            own = {name: array[end - size : end] for name, array in values.items()}
            for file, stream in zip(self.files[target], streams[target], strict=True):
                arrays = [own[name] for name in file.features]
                stored = arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=1)
                with write_errors_name(Path(file.files[0])):
                    stream.seek(places[target] * stored.shape[1] * stored.itemsize)
                    stored.tofile(stream)
            self._count(own, size, facts[target])
            places[target] += size

    def _count(self, values: Mapping[str, np.ndarray], size: int, facts: SplitFacts) -> None:
        facts.rows += size
        if self.label:
            facts.clicks += int(np.count_nonzero(values[self.label]))
        for name in self.ids:
            array = values[name]
            facts.unknown[name] += array.size - int(np.count_nonzero(array))


def _encoded_ahead(encode: Callable, runs: Iterator) -> Iterator[tuple[tuple, Future]]:
    """Yields runs of rows and their encoding, which threads work on ahead."""
    waiting: deque = deque()
    with ThreadPoolExecutor(_THREADS) as pool:
        for part, rows in runs:
            waiting.append(((part, rows), pool.submit(encode, rows)))
            if len(waiting) > _THREADS:
                yield waiting.popleft()
        while waiting:
            yield waiting.popleft()


def write_rows(
    engine: Engine,
    table: ir.Table,
    encoder: Encoder,
    layout: FeatureSpec,
    targets: Sequence[str],
    label: str,
    ids: Sequence[str],
) -> dict[str, SplitFacts]:
    """Encodes the rows of a table into the files of splits; returns the facts of each.

    Args:
        table: rows of an engine; with several targets it has the column `SPLIT`.
        layout: feature spec of the data set, whose base directory is written.
        targets: splits, in the order of their numbers.
        ids: features of ids with an id for unknown values.

    Raises:
        ValueError: a value cannot be encoded; the message names file and row.
    """
    starts, sizes = _places(engine, table, len(targets))
    files = tuple(
        tuple(
            replace(chunk, files=(str(layout.base_directory / chunk.files[0]),))
            for chunk in layout.source_spec[target]
        )
        for target in targets
    )
    names = tuple(dict.fromkeys(name for file in files[0] for name in file.features))
    for own, size in zip(files, sizes, strict=True):
        for file in own:
            row_bytes = sum(
                layout.hotness(name) * layout.dtype(name).itemsize for name in file.features
            )
            path = Path(file.files[0])
            path.parent.mkdir(exist_ok=True)
            with write_errors_name(path), open(path, "wb") as stream:
                stream.truncate(size * row_bytes)
    own_names = tuple(f.name for f in encoder.features if f.name in names)
    columns = {encoder[name].column for name in own_names}
    label = label if label in names else ""
    writer = RowWriter(
        encoder, own_names, label,
        tuple(name for name in ids if name in names), files, starts,
    )  # fmt: skip
    order = [PART, ROW, *([SPLIT] if SPLIT in table.columns else []), *sorted(columns)]
    facts = {target: SplitFacts() for target in targets}
    results = [json.loads(text) for text in engine.map_batches(table.select(order), writer)]
    errors = [result for result in results if isinstance(result, dict)]
    if errors:
        first = min(errors, key=lambda error: error["row"])
        place = engine.place(table, first["row"])
        raise ValueError(f"{place}: feature '{first['feature']}': {first['error']}")
    for result in results:
        for target, own in zip(targets, result, strict=True):
            facts[target].add(own)
    return facts


def _places(
    engine: Engine, table: ir.Table, num_targets: int
) -> tuple[dict[int, list[int]], list[int]]:
    """Returns part -> rows of each target before it, and the rows of each target."""
    keys = [PART, *([SPLIT] if SPLIT in table.columns else [])]
    counted = engine.fetch(table.group_by(keys).agg(rows=table.count())).to_pylist()
    sizes = {(row[PART], row.get(SPLIT, 0)): row["rows"] for row in counted}
    starts, totals = {}, [0] * num_targets
    for part in sorted({part for part, _ in sizes}):
        starts[part] = list(totals)
        for target in range(num_targets):
            totals[target] += sizes.get((part, target), 0)
    return starts, totals
