"""Rows of a CSV or Parquet file as requests."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataloading.spec.rules import listing, suggestion
from dataloading.table_input import values as table_values
from dataloading.table_input.files import CSV, PARQUET, RawChunk, describe_file, file_blocks
from dataloading.table_input.values import SEPARATOR, BadValue
from deployment.serving.interface import Interface, ServedFeature

_KINDS = {".csv": CSV, ".csv.gz": CSV, ".parquet": PARQUET}  # by the end of a name
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)

ENCODING_ADVICE = (
    "`python -m preproc.transcode --vocabulary DATA`, with the training's data set DATA, "
    "encodes texts as ids of the training and writes a folder for --input"
)


class RequestBatch(NamedTuple):
    """Request with consecutive rows of an input, the first one counted from 1 without a header."""

    first_row: int
    arrays: dict[str, np.ndarray]


class FileInput:
    """File of rows whose columns are named after the features of a model.

    The name ends with .csv (with a header), .csv.gz or .parquet. Numerical features and single ids
    have one value per row. Features of several ids have lists, in CSV files separated by `;`:
    `count` ids; fewer or none where rows may differ (split TFRecords); of histories the latest
    events, the last one last. Columns that are not named after a feature are `ignored`.

    Raises:
        ValueError: the file cannot be read, has no rows, or lacks a column.
    """

    def __init__(self, path: str | Path, interface: Interface):
        path = Path(path)
        self.paths, self._interface, self._where = [path], interface, f"--input {path}"
        if not path.is_file():
            raise ValueError(f"{self._where}: the path does not exist")
        kinds = [kind for end, kind in _KINDS.items() if path.name.lower().endswith(end)]
        if not kinds:
            raise ValueError(f"{self._where}: expected a file name with {', '.join(_KINDS)}")
        self._is_csv = kinds[0] == CSV
        columns, self.num_rows = describe_file(path, kinds[0], self._where)
        features = [feature.name for feature in interface.features]
        self.ignored = check_names(self._where, columns, features, "feature of the model")
        if not self.num_rows:
            raise ValueError(f"{self._where}: has no rows")
        self._chunk = RawChunk(kinds[0], tuple(features), (), header=self._is_csv)

    def requests(self, batch_size: int) -> Iterator[RequestBatch]:
        """Yields all rows in order, at most `batch_size` per request; names the row of an invalid
        value."""
        for block in file_blocks(self.paths[0], self._chunk, batch_size, self._where):
            first_row = block.first_row
            arrays = batch_arrays(
                block.columns, self._interface, lambda row, first=first_row: self.where(first + row)
            )
            yield RequestBatch(first_row, arrays)

    def where(self, row: int) -> str:
        """Returns the name of a row, counted from 1 without the header, in messages."""
        return f"{self._where}: row {row}" + (f" (line {row + 1})" if self._is_csv else "")


def check_names(where: str, columns: Sequence[str], names: Sequence[str], what: str) -> list[str]:
    """Returns the other columns; raises ValueError if a table has not one column per name."""
    missing = [name for name in names if columns.count(name) != 1]
    others = [column for column in columns if column not in names]
    if missing:
        raise ValueError(
            f"{where}: expected one column for each {what}, got {columns.count(missing[0])} for "
            f"{listing(missing)}. It has {listing(columns)}" + suggestion(missing[0], others)
        )
    return others


def batch_arrays(
    columns: Mapping[str, pa.Array], interface: Interface, where: Callable[[int], str]
) -> dict[str, np.ndarray]:
    """Converts columns named after the features of a model to a request, [rows, *dims].

    Raises:
        ValueError: a value is not one of its feature; names its row, counted from 0, by `where`.
    """
    values = {}
    for feature in interface.features:
        is_history = feature.input in interface.histories
        try:
            values[feature.name] = feature_values(columns[feature.name], feature, is_history)
        except BadValue as bad:
            raise ValueError(
                f"{where(bad.index)}: column '{feature.name}': found {bad.value}; expected "
                f"{_expected(feature, is_history)}"
            ) from None
    return request_arrays(interface, values)


def feature_values(column: pa.Array, feature: ServedFeature, is_history: bool) -> np.ndarray:
    """Converts a column to float32 numbers, or int64 ids of 0 or more, [rows, count].

    Lists may be shorter than `count` for padded features, filled with -1 at the end, and for
    histories, filled with 0 at the start. Raises BadValue, whose `index` is the row.
    """
    if feature.padded or is_history:
        return _aligned_ids(column, feature.count, fill=0 if is_history else -1, right=is_history)
    flat = table_values.flat(column, feature.count)
    try:
        if feature.cardinality is None:
            numbers = table_values.numericals(flat, np.float32)
        else:
            numbers = table_values.ids(flat, None)
    except BadValue as bad:
        bad.index //= feature.count
        raise
    return numbers.reshape(-1, feature.count)


def request_arrays(interface: Interface, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arranges values [rows, count] by feature as the tensors of a request, [rows, *dims]."""
    num_rows = len(next(iter(values.values())))
    arrays = {
        tensor.name: np.empty((num_rows, int(np.prod(tensor.dims))), tensor.dtype)
        for tensor in interface.inputs
    }
    for feature in interface.features:
        array, columns = arrays[feature.input], slice(feature.start, feature.start + feature.count)
        numbers = values[feature.name]
        if feature.cardinality is not None:
            # A cast must not turn an id out of range into a valid one.
            numbers = np.minimum(numbers, np.iinfo(array.dtype).max)
        array[:, columns] = numbers
    return {
        tensor.name: arrays[tensor.name].reshape(-1, *tensor.dims) for tensor in interface.inputs
    }


def _aligned_ids(column: pa.Array, count: int, fill: int, right: bool) -> np.ndarray:
    """Converts lists of at most `count` ids to int64 [rows, count]; an empty CSV field is empty."""
    if pa.types.is_binary(column.type):
        texts = pc.fill_null(table_values.flat(column, 1), "")
        column = pc.split_pattern(texts, SEPARATOR)
        column = pc.if_else(pc.equal(texts, ""), pa.scalar([], column.type), column)
    if not any(is_kind(column.type) for is_kind in _LISTS):
        raise BadValue(0, f"one {column.type}", "")
    if column.null_count:
        raise BadValue(pc.index(column.is_null(), True).as_py(), "no list", "")
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    if lengths.max(initial=0) > count:
        row = np.argmax(lengths > count)
        raise BadValue(row, f"{lengths[row]} values", "")
    try:
        ids = table_values.ids(column.flatten(), None)
    except BadValue as bad:
        bad.index = int(np.searchsorted(np.cumsum(lengths), bad.index, side="right"))
        raise
    aligned = np.full((len(lengths), count), fill, np.int64)
    positions = np.arange(count)
    first = (count - lengths)[:, None] if right else 0
    aligned[(positions >= first) & (positions < first + lengths[:, None])] = ids
    return aligned


def _expected(feature: ServedFeature, is_history: bool) -> str:
    if feature.cardinality is None:
        return (
            "a finite number of at most float32's "
            f"{np.finfo(np.float32).max:g} (write 0 or a mean for a missing value)"
        )
    ids = f"as in training, integers from 0 to {feature.cardinality - 1} (17, not 17.0)"
    if feature.count == 1 and not (feature.padded or is_history):
        return f"an id {ids}; {ENCODING_ADVICE}"
    at_most = "at most " if feature.padded or is_history else ""
    return (
        f"{at_most}{feature.count} ids {ids}, as a list (in CSV with '{SEPARATOR}' between them); "
        f"{ENCODING_ADVICE}"
    )
