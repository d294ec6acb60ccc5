"""Parts of files that tasks of Spark read on their own: the same blocks as one process reads."""

import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataloading.table_input import lines
from dataloading.table_input.files import CSV, PARQUET, RawChunk, split_blocks
from dataloading.transcode.encode.statistics import BlockStatistics, RunningStatistics
from dataloading.transcode.infer import facts_of
from dataloading.transcode.spark import plan
from dataloading.transcode.spark.plan import SourceFile, split_parts

BLOCK_BYTES = 64
ENDS = [b"\n", b"\r\n", b"\r"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(lines, "_BLOCK_BYTES", BLOCK_BYTES)
    monkeypatch.setattr(plan, "_RANGE_BLOCKS", 2)
    monkeypatch.setattr(plan, "_PART_BLOCKS", 3)
    monkeypatch.setattr(plan, "PART_ROWS", 7)


def text(seed: int) -> bytes:
    """Lines of odd lengths and ends, some with a byte order mark at the start or no end."""
    draw = random.Random(seed)
    mark = lines.BYTE_ORDER_MARK if draw.random() < 0.5 else b""
    content = b"".join(
        bytes(draw.choices(b"ab,", k=draw.randrange(0, BLOCK_BYTES // 2))) + draw.choice(ENDS)
        for _ in range(draw.randrange(0, 60))
    )
    return mark + content + draw.choice([b"", b"x", b"\r"])


@pytest.mark.parametrize("seed", range(60))
def test_line_blocks_from_the_middle(tmp_path, seed):
    path = tmp_path / "file"
    path.write_bytes(text(seed))
    stop = lines.num_blocks(path)
    pieces = [list(lines.line_blocks(path, "file", i, i + 1)) for i in range(stop)]
    assert [block for piece in pieces for block in piece] == list(lines.line_blocks(path, "file"))
    for first in range(stop):
        rest = [block for piece in pieces[first:] for block in piece]
        assert list(lines.line_blocks(path, "file", first)) == rest


class Spec:
    """Raw files of one split."""

    origin = "spec.yaml"

    def __init__(self, folder, chunks):
        self.base_directory, self.sources = folder, {"train": chunks}


def rows_of(spec, chunk_size):
    """Counts the rows as the tasks of Spark do."""
    result = []
    for chunk in spec.sources["train"]:
        files = [
            SourceFile(str(spec.base_directory / file), file, chunk.type, chunk.header)
            for file in chunk.files
        ]
        ranges = plan.ranges(files)
        counted = [(part, plan.count_lines(files, part)) for part in ranges]
        result.append(plan.file_rows(files, counted, chunk_size))
    return result


def write_files(folder, num_rows, draw):
    """A chunk of CSV files, some with a header, and one of Parquet files, of the same rows."""
    values = [draw.randrange(10 ** draw.randrange(1, 12)) for _ in range(num_rows)]
    cuts = sorted(draw.randrange(num_rows) for _ in range(2))
    header = draw.random() < 0.5
    names = []
    for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, num_rows], strict=True)):
        names.append(f"{number}.csv")
        rows = [f"{value},x" for value in values[start:stop]]
        rows = ["a,b", *rows] if header else rows
        (folder / names[-1]).write_text("".join(f"{row}\n" for row in rows))
    csv = RawChunk(CSV, ("a", "b"), tuple(names), header=header)
    cut = draw.randrange(num_rows)
    for number, part in enumerate((values[:cut], values[cut:])):
        column = pa.array(part, pa.int64())
        pq.write_table(pa.table({"c": column}), folder / f"{number}.parquet", row_group_size=5)
    return Spec(folder, (csv, RawChunk(PARQUET, ("c",), ("0.parquet", "1.parquet"))))


def flat(blocks):
    return [
        [(b.first_row, {name: c.to_pylist() for name, c in b.columns.items()}) for b in block]
        for block in blocks
    ]


@pytest.mark.parametrize("seed", range(20))
def test_blocks_of_parts(tmp_path, seed):
    draw = random.Random(seed)
    spec = write_files(tmp_path, draw.randrange(5, 90), draw)
    chunk_size = draw.randrange(2, 9)
    parts = split_parts("train", rows_of(spec, chunk_size), chunk_size, 5, 3)
    assert [part.number for part in parts] == list(range(5, 5 + len(parts)))
    assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]
    blocks = [b for part in parts for b in part.blocks(spec.sources["train"], chunk_size)]
    assert flat(blocks) == flat(split_blocks(spec, "train", chunk_size))
    for part in parts:
        before = part.before.blocks(spec.sources["train"], chunk_size) if part.before else ()
        assert sum(block[0].num_rows for block in before) == part.start % 3


def test_long_line(tmp_path):
    (tmp_path / "a").write_bytes(b"1\n" * 70 + b"x" * 200 + b"\n1\n")
    file = SourceFile(str(tmp_path / "a"), "file 'a'", CSV, False)
    counted = [(part, plan.count_lines([file], part)) for part in plan.ranges([file])]
    with pytest.raises(ValueError, match="file 'a': line 71 has 64 bytes or more"):
        plan.file_rows([file], counted, 10)


def test_facts_of_slices(tmp_path):
    draw = random.Random(0)
    spec = write_files(tmp_path, 80, draw)
    chunk = spec.sources["train"][0]
    whole, merged = facts_of((), chunk.features), facts_of((), chunk.features)
    for rows in rows_of(spec, 4)[0]:
        path = tmp_path / rows.source.where
        for part in plan.slices(rows):
            facts = facts_of(plan.file_blocks(path, chunk, 4, "", part), chunk.features)
            for name, column in facts.items():
                merged[name].merge(column)
        for block in plan.file_blocks(path, chunk, 4, ""):
            for name, column in whole.items():
                column.add(block.columns[name])
    assert merged == whole
    assert merged["a"].rows == 80


@pytest.mark.parametrize("size", [1, 2, 3, 1000, 1023, 1025])
def test_statistics_of_blocks(size):
    """A sum of pairs is that of exact arithmetic, to the last digits, for any number of values."""
    values = np.random.default_rng(size).gamma(2, 10, size)
    block = BlockStatistics.from_values(values, values[0])
    assert block.mean == pytest.approx(float(np.mean(values - values[0])), rel=1e-13, abs=1e-13)
    one, other = RunningStatistics(), RunningStatistics()
    one.add(values)
    one.add(values[::-1] + 1)
    blocks = [BlockStatistics.from_values(part, values[0]) for part in (values, values[::-1] + 1)]
    other.add_blocks(blocks, values[0])
    assert one.scale == other.scale
    assert one.scale.standard_deviation == pytest.approx(
        float(np.std(np.concatenate([values, values + 1]))), rel=1e-12
    )
