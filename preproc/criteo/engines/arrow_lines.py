"""Raw lines -> typed columns with Arrow's own parsers, in blocks of a few megabytes.

Arrow's regular expressions are RE2's, so `raw_lines.LINE_PATTERN` says which lines are good, as for
every engine. Only those reach Arrow's CSV reader, which then has nothing left to object to.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from preproc.criteo.output.binary_files import MIN_NUMERICAL
from preproc.criteo.output.data_set import CATEGORICALS, LABEL, NUMERICALS
from preproc.criteo.raw_lines import LINE_PATTERN

_BLOCK_BYTES = 8 << 20  # about 35,000 lines, a row group; some 80 MiB while it is parsed
_WHOLE_LINE = rf"\A(?:{LINE_PATTERN})\n\z"
_LINE_FEED = ord("\n")
_TYPES = {
    LABEL: pa.uint8(),
    **dict.fromkeys(NUMERICALS, pa.int64()),
    **dict.fromkeys(CATEGORICALS, pa.string()),
}
STAGED_SCHEMA = pa.schema(list(_TYPES.items()))


def stage_lines(plain: Path, target: Path) -> dict[str, int]:
    """Parses a plain copy of a log (`raw_lines.write_plain_copy`) into a Parquet file.

    Its columns: label (uint8), num_0.. (int64: x + 3, and 0 where missing or undefined), cat_0..
    (string, null where missing); its rows: the good lines, in input order.

    Returns:
        rows; bad_lines and first_bad_line (the first line is 1; 0 if there is none).
    """
    rows = lines = last = first_bad = 0
    with pq.ParquetWriter(target, STAGED_SCHEMA) as writer:
        for block in _blocks(plain):
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _LINE_FEED)
            texts = _lines(block, ends)
            good = pc.match_substring_regex(texts, _WHOLE_LINE).to_numpy(zero_copy_only=False)
            if not good.all():
                first_bad = first_bad or lines + 1 + int(np.argmin(good))
                texts = texts.filter(pa.array(good))
            # Empty lines count unless no other line comes behind them.
            not_empty = np.flatnonzero(np.diff(ends, prepend=-1) > 1)
            if len(not_empty):
                last = lines + 1 + int(not_empty[-1])
            lines += len(ends)
            if len(texts):
                rows += len(texts)
                writer.write_table(_columns(texts))
    bad_lines = last - rows
    return {
        "rows": rows,
        "bad_lines": bad_lines,
        "first_bad_line": first_bad if bad_lines else 0,
    }


def _blocks(plain: Path) -> Iterator[bytes]:
    """Whole lines, each with its line feed, about `_BLOCK_BYTES` of them at a time."""
    with open(plain, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block + (b"" if block.endswith(b"\n") else file.readline())


def _lines(block: bytes, ends: np.ndarray) -> pa.StringArray:
    """The lines with their line feeds, which are at `ends`, without copying them."""
    offsets = np.concatenate([[0], ends + 1]).astype(np.int32)
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(block))


def _columns(texts: pa.StringArray) -> pa.Table:
    """Good lines -> their columns."""
    # One line stands behind the other in the array's buffer: it is text as a file has it.
    text = texts.buffers()[2]
    table = pa_csv.read_csv(
        pa.BufferReader(text),
        pa_csv.ReadOptions(column_names=list(_TYPES), block_size=text.size + 1),
        pa_csv.ParseOptions(delimiter="\t", quote_char=False, double_quote=False),
        pa_csv.ConvertOptions(
            check_utf8=False,  # the regular expression has looked at every character
            column_types=_TYPES,
            null_values=[""],
            strings_can_be_null=True,
        ),
    )
    lowest = MIN_NUMERICAL - 1  # undefined and missing values are alike from here on
    for name in NUMERICALS:
        shifted = pc.subtract(pc.max_element_wise(table[name], lowest), lowest)
        table = table.set_column(table.schema.get_field_index(name), name, shifted)
    return table
