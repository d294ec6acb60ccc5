"""Estimate of a preparation's output and resources: `python -m preproc.criteo --estimate`.

Lines are read from evenly spaced places of the log and go through the engine as a small log of
their own. A value that is seen T times in the whole log is, about, one that is seen t times in
t / T of its rows: values that get an id are counted with a threshold t small enough for the sample,
in that number of its rows or, where it has fewer, their growth is extrapolated.
"""

import gzip
import io
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from dataloading.spec.feature_spec import smallest_id_dtype
from dataloading.table_input.lines import BYTE_ORDER_MARK
from preproc.arguments import MIN_MEMORY_BYTES
from preproc.criteo.engines import open_engine
from preproc.criteo.engines.interface import DayFile
from preproc.criteo.log_files import find_log_files
from preproc.criteo.options import CriteoOptions
from preproc.criteo.output import data_set
from preproc.criteo.output.binary_files import LABEL_DTYPE, NUM_BINS, NUMERICAL_DTYPE
from preproc.criteo.output.row_buckets import spilled_bytes
from preproc.raw_files import gzip_errors, is_gzip

SAMPLE_BYTES = 48 << 20  # about 200,000 lines
_PLACES = 16  # where a plain file is read
_SAMPLE_THRESHOLD = 4  # in the sample: one occurrence hardly measures a value's rate
_SMALLEST_PIECE = 64 << 10  # bytes read at a place
_TABLE_ROW_BYTES = 128 * 4  # of an embedding table: the recipes' 128 columns of float32


@dataclass(frozen=True)
class Estimate:
    """A log's expected size; numbers are exact where `sampled` is 1."""

    sampled: float  # share of the log's bytes that was read
    rows: int
    bad_lines: int
    cardinalities: tuple[int, ...]  # of cat_0 to cat_25
    data_bytes: int  # the prepared data set, vocabularies included
    # what `<output>.partial` holds next to it while it is made, with --engine duckdb and the
    # default order
    staging_bytes: int

    def report(self) -> str:
        about = "" if self.sampled == 1 else "about "
        total = sum(self.cardinalities)
        return "\n".join(
            [
                f"estimate from {self.sampled:.3%} of the log's bytes",
                f"  rows: {about}{self.rows:,}; malformed lines: {about}{self.bad_lines:,}",
                f"  cardinalities: {about}{', '.join(f'{c:,}' for c in self.cardinalities)} "
                f"(sum {total:,})",
                f"  embedding tables of 128 float32 columns: {_size(total * _TABLE_ROW_BYTES)}",
                f"  disk: {_size(self.data_bytes)} for the data set, "
                f"{_size(self.staging_bytes)} more while it is made",
                f"  memory: any --memory_limit from {MIN_MEMORY_BYTES >> 20} MiB; what does not "
                "fit goes to --temp_dir",
            ]
        )


def estimate(options: CriteoOptions) -> Estimate:
    """Samples the log; raises ValueError without a log, or a good line in the sample."""
    files = [file.path for file in find_log_files(options.input, options.days)]
    with tempfile.TemporaryDirectory(prefix="criteo_estimate.") as folder:
        folder = Path(folder)
        factor, largest_unpacked = _draw_sample(files, folder / "sample.tsv")
        machine = {name: getattr(options, name) for name in ("threads", "memory_limit_bytes")}
        small = CriteoOptions(input=options.input, output=None, estimate=True, **machine)
        staged = folder / "sample.parquet"
        with open_engine(small, folder) as engine, engine.explained_errors():
            counts = engine.parse_day(folder / "sample.tsv", staged, folder)
            if not counts["rows"]:
                raise ValueError(
                    f"--input {options.input}: not one line of the sample is a row of a Criteo "
                    "log; run without --estimate to see what is wrong with the first of them"
                )
            day = DayFile(staged, counts["rows"], 0)
            values = []
            for i, column in enumerate(data_set.CATEGORICALS):

                def seen(rows: int, threshold: int, column=column) -> int:
                    return engine.count_values(column, [day], rows, threshold, folder / "values")

                values.append(_num_values(seen, counts["rows"], factor, options.threshold(i)))
        staged_bytes = staged.stat().st_size
    rows = round(counts["rows"] * factor)
    cardinalities = tuple(min(count, rows) + 1 for count in values)
    # Labels, numerical features and bins are spilled at the same time, which is more than a
    # categorical column.
    spilled = [LABEL_DTYPE.itemsize, 13 * NUMERICAL_DTYPE.itemsize]
    spilled += [smallest_id_dtype(NUM_BINS).itemsize] * len(data_set.BINS) * options.bin_numericals
    ids_bytes = sum(smallest_id_dtype(cardinality).itemsize for cardinality in cardinalities)
    value_bytes = 8 + 1 + 3 + 1  # hexadecimal value, tab, count, line feed
    return Estimate(
        sampled=1 / factor,
        rows=rows,
        bad_lines=round(counts["bad_lines"] * factor),
        cardinalities=cardinalities,
        data_bytes=rows * (sum(spilled) + ids_bytes) + (sum(cardinalities) - 26) * value_bytes,
        staging_bytes=round(staged_bytes * factor)
        + max(largest_unpacked, sum(spilled_bytes(rows, size) for size in spilled)),
    )


def _draw_sample(files: list[Path], target: Path) -> tuple[float, int]:
    """Writes the sample, its lines in random order, so that a part of them is one as well.

    Returns:
        bytes of the log to bytes of the sample, both unpacked, 1 or more; bytes of the largest gzip
        file, which is unpacked while it is parsed.
    """
    lines, total, largest = [], 0, 0
    compressed_bytes = sum(path.stat().st_size for path in files)
    for path in files:
        size = path.stat().st_size
        budget = max(_SMALLEST_PIECE, SAMPLE_BYTES * size // max(1, compressed_bytes))
        if is_gzip(path):
            part, unpacked = _gzip_start(path, budget)
            largest = max(largest, unpacked)
        else:
            part, unpacked = _plain_pieces(path, size, budget)
        lines += part
        total += unpacked
    np.random.default_rng(0).shuffle(lines)
    with open(target, "wb") as file:
        file.writelines(lines)
    return max(1.0, total / max(1, sum(map(len, lines)))), largest


def _plain_pieces(path: Path, size: int, budget: int) -> tuple[list[bytes], int]:
    """Returns whole lines from evenly spaced places, and the number of bytes they stand for."""
    with open(path, "rb") as file:
        if size <= budget:
            return _whole_file(file.read())
        lines = []
        for start in np.linspace(0, size, _PLACES, endpoint=False).astype(int).tolist():
            file.seek(start)
            piece = file.read(budget // _PLACES).split(b"\n")
            # The first line may begin before, unless it is the file's; the last one is cut off.
            if start == 0:
                piece[0] = piece[0].removeprefix(BYTE_ORDER_MARK)
            lines += [line + b"\n" for line in piece[1 if start else 0 : -1]]
        return lines, size


def _whole_file(text: bytes) -> tuple[list[bytes], int]:
    """Returns all lines, without a mark and empty lines at the end, and their bytes."""
    lines = text.removeprefix(BYTE_ORDER_MARK).split(b"\n")
    while lines and lines[-1] in (b"", b"\r"):
        lines.pop()
    lines = [line + b"\n" for line in lines]
    return lines, sum(map(len, lines))


def _gzip_start(path: Path, budget: int) -> tuple[list[bytes], int]:
    """Returns the first lines of a gzip file, and its estimated size when unpacked."""
    size = path.stat().st_size
    with gzip_errors(path), open(path, "rb") as raw, gzip.open(raw) as file:
        text = file.read(budget)
        if not file.read(1):
            return _whole_file(text)
        read = raw.tell() - io.DEFAULT_BUFFER_SIZE / 2  # about as much of it waits unpacked
        unpacked = round(len(text) * size / max(1, read))
    return [line + b"\n" for line in text.split(b"\n")[:-1]], unpacked


def _num_values(
    seen: Callable[[int, int], int], sample_rows: int, factor: float, threshold: int
) -> int:
    """Estimates the number of values that occur `threshold` times in `factor` times the sample.

    seen: (rows, threshold) -> number of values that occur `threshold` times or more in the first
        `rows` rows of the sample.
    """
    if factor == 1:
        return seen(sample_rows, threshold)

    def in_all_rows(lower: int) -> int:
        """Estimates it by the values that occur `lower` times in a part of the rows."""
        # Rows in which `lower` occurrences are as frequent as `threshold` in the log. Occurrences
        # of a value are Poisson. Of values whose rates' logarithms are spread evenly, the expected
        # numbers are equal for this factor.
        fewer = math.exp(_digamma(max(1, lower)) - _digamma(max(1, threshold)))
        wanted = sample_rows * factor * fewer
        if wanted <= sample_rows:
            return seen(max(1, round(wanted)), lower)
        counts = [seen(max(1, sample_rows >> halvings), lower) for halvings in (3, 2, 1, 0)]
        return _extrapolate(counts, wanted / sample_rows)

    # A column that runs out of values shows it first in those that are seen at all.
    return min(in_all_rows(1), in_all_rows(min(threshold, _SAMPLE_THRESHOLD)))


def _digamma(n: int) -> float:
    """The digamma function at n of 1 or more, by its recurrence and, from 8 on, its expansion."""
    shift = 0.0
    while n < 8:
        shift -= 1 / n
        n += 1
    return shift + math.log(n) - 1 / (2 * n) - 1 / (12 * n**2) + 1 / (120 * n**4)


def _extrapolate(counts: list[int], factor: float) -> int:
    """Extrapolates counts at an eighth, a quarter, half and all of a sample to `factor` samples.

    From doubling to doubling the growth in logarithms is multiplied by what it was multiplied by
    within the sample: 1 for a power law without end, less where a column runs out of values.
    """
    growths = [math.log((b + 1) / (a + 1)) for a, b in pairwise(counts)]
    ratio = min(1.0, math.sqrt(growths[-1] / growths[0])) if growths[0] > 0 else 1.0
    doublings, growth, total = math.log2(factor), growths[-1], 0.0
    while doublings > 0:
        growth *= ratio
        total += growth * min(1.0, doublings)
        doublings -= 1
    return round(counts[-1] * math.exp(total))


def _size(size_bytes: int) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.4g} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:,.1f} TiB"
