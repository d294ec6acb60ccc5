"""Fields of lines of JSON, found by compiled code that accepts plain JSON and nothing else.

What other parsers may take or refuse (NaN, a comma at an end, half a character, Python's literals)
makes a line odd, and so do an escape in a wanted text and a key that is there twice: callers then
have the parser decide that defines what is allowed.
"""

import ctypes
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dataloading import compiled

# Contents of a field; numbers of the compiled code.
TEXT = 0  # not empty
INTEGER = 1  # of 64 bits
ANY = 2  # any value, or none
_LEAST_LINE_BYTES = 8  # lines are as many as are this long, at first


class FieldScanner:
    """Finds fields of objects; can be used by several threads.

    Args:
        fields: name -> content.
    """

    def __init__(self, fields: Mapping[str, int]):
        self._names = (ctypes.c_char_p * len(fields))(*(name.encode() for name in fields))
        self._kinds = np.array(list(fields.values()), np.int32)

    @staticmethod
    def is_available() -> bool:
        """Returns whether the compiled code is installed."""
        return compiled.library() is not None

    def scan(self, lines: np.ndarray, begin: int, stop: int) -> list[pa.Array] | None:
        """Returns the fields of the lines that begin in lines[begin:stop]; None if one is odd.

        Blank lines are left out. Texts are strings, integers int64; of `ANY` value the JSON is
        returned as binary, empty without a value.

        Args:
            lines: uint8, whole ones, the last one possibly without its end; arrays are copies.
        """
        spans = self._spans(lines, begin, stop)
        if spans is None:
            return None
        return [
            pa.array(spans[:, i, 0]) if kind == INTEGER else _texts(lines, spans[:, i], kind)
            for i, kind in enumerate(self._kinds.tolist())
        ]

    def _spans(self, content: np.ndarray, begin: int, stop: int) -> np.ndarray | None:
        """Returns int64 [lines, fields, 2]: offset and length, or a number; None for odd lines."""
        next_line = np.array([begin])
        parts = [np.empty((0, len(self._kinds), 2), np.int64)]
        max_lines = 1 + (stop - begin) // (_LEAST_LINE_BYTES * (1 + 2 * len(self._kinds)))
        while next_line[0] < stop:
            spans = np.empty((max_lines, len(self._kinds), 2), np.int64)
            is_odd = np.empty(max_lines, np.uint8)
            num_lines = compiled.library().scan_json_lines(
                compiled.address(content, np.uint8),
                *(len(content), int(next_line[0]), stop),
                *(ctypes.addressof(self._names), compiled.address(self._kinds, np.int32)),
                *(len(self._kinds), max_lines),
                compiled.address(spans, np.int64),
                compiled.address(is_odd, np.uint8),
                compiled.address(next_line, np.int64),
            )
            if is_odd[:num_lines].any():
                return None
            parts.append(spans[:num_lines])
        return parts[1] if len(parts) == 2 else np.concatenate(parts)


def _texts(content: np.ndarray, spans: np.ndarray, kind: int) -> pa.Array:
    """Returns the bytes of spans [n, 2] as strings, or as binary."""
    num_bytes = int(np.maximum(spans[:, 1], 0).sum())
    offsets, values = np.empty(len(spans) + 1, np.int32), np.empty(num_bytes, np.uint8)
    compiled.library().copy_spans(
        compiled.address(content, np.uint8),
        spans.ctypes.data,  # every `fields` spans, one
        len(spans),
        spans.strides[0] // spans.itemsize if len(spans) else 2,
        compiled.address(offsets, np.int32),
        compiled.address(values, np.uint8),
    )
    arrow_type = pa.string() if kind == TEXT else pa.binary()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(arrow_type, len(spans), buffers)
