"""Rows of a data set in split binaries as requests to a served model, some rows at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dataloading.spec.feature_spec import FeatureSpec
from dataloading.spec.output_folder import SPEC_FILE
from dataloading.spec.rules import listing
from deployment.predict.columns import ENCODED
from deployment.predict.rows import Rows, request
from deployment.serving.checks import unknown_ids_way_out
from deployment.serving.interface import UNKNOWN_IS_ZERO, Interface, ServedFeature

_STORED = "split_binary"


class _Stored(NamedTuple):
    """Where a feature's values are.

    parts: of each file the values [rows, values of a row of its chunk], mapped into memory.
    columns: of the feature in such a row.
    """

    parts: list[np.ndarray]
    columns: slice


class RowFolder:
    """The rows of a mapping of a data set whose features have the names of a model's.

    Args:
      folder: has a feature spec; every feature of the model is stored in split_binary chunks, with
        the model's cardinality and as many values a row.
      mapping: e.g. `test`; None: the only one that there is.
      interface: of the model.

    Attributes:
      paths: the files that are read.
      ignored: features of the mapping that the model does not have.

    Raises:
      ValueError: a file, a mapping or a feature is missing or of another kind, or there are no
        rows.
    """

    def __init__(self, folder: str | Path, mapping: str | None, interface: Interface):
        self._folder, self._interface = Path(folder), interface
        self._spec = self._read_spec()
        mapping = self._chosen(mapping)
        self._where = f"--input {self._folder}: mapping '{mapping}'"
        chunks = self._spec.source_spec[mapping]
        chunk_of = {name: i for i, chunk in enumerate(chunks) for name in chunk.features}
        names = [feature.name for feature in interface.features]
        lacking = [name for name in names if name not in chunk_of]
        if lacking:
            raise ValueError(
                f"{self._where}: lacks the features {listing(lacking)}; needed: all of the model. "
                f"It has {listing(chunk_of)}"
            )
        for feature in interface.features:
            self._check_kind(feature)
        used = sorted({chunk_of[name] for name in names})
        for chunk in (chunks[index] for index in used):
            if chunk.type != _STORED:
                raise ValueError(
                    f"{self._where}: {listing(chunk.files)} is stored as {chunk.type}; needed: "
                    f"{_STORED}. {ENCODED}"
                )
        self._num_rows = self._spec.num_rows(mapping, used)
        if not self._num_rows:
            raise ValueError(f"{self._where}: has no rows")
        self._stored = {}
        self.paths = [self._folder / SPEC_FILE]
        for chunk in (chunks[index] for index in used):
            self._stored |= self._mapped(chunk)
            self.paths += [self._folder / file for file in chunk.files]
        self.ignored = [name for name in chunk_of if name not in names]

    def num_rows(self) -> int:
        """Rows of the mapping."""
        return self._num_rows

    def requests(self, batch_size: int) -> Iterator[Rows]:
        """All rows in order, `batch_size` of them or fewer at a time.

        Raises:
          ValueError: a value is not allowed; the message has row and feature.
        """
        for start in range(0, self._num_rows, batch_size):
            stop = min(start + batch_size, self._num_rows)
            values = {
                feature.name: self._values(feature, start, stop)
                for feature in self._interface.features
            }
            yield Rows(start + 1, request(self._interface, values, start + 1, self.where))

    def where(self, row: int) -> str:
        """A row, counted from 1, as messages call it."""
        return f"{self._where}: row {row}"

    def _read_spec(self) -> FeatureSpec:
        if not (self._folder / SPEC_FILE).is_file():
            raise ValueError(
                f"--input {self._folder}: is a folder without {SPEC_FILE}; allowed: a .csv, "
                f".csv.gz or .parquet file, or the folder of a data set. {ENCODED}"
            )
        try:
            return FeatureSpec.from_yaml(self._folder / SPEC_FILE)
        except ValueError as error:
            raise ValueError(
                f"--input {self._folder}: is no folder of a data set: {error}. {ENCODED}"
            ) from None

    def _chosen(self, mapping: str | None) -> str:
        there = list(self._spec.source_spec)
        if mapping is None and len(there) == 1:
            return there[0]
        if mapping not in there:
            found = f"has {len(there)} mappings"
            if mapping is not None:
                found = f"has no mapping '{mapping}'"
            raise ValueError(
                f"--input {self._folder}: {found}; name one by --mapping: {listing(there)}"
            )
        return mapping

    def _check_kind(self, feature: ServedFeature) -> None:
        """Raises ValueError where a feature is of another kind, or its ids are others."""
        name = feature.name
        count = self._spec.hotness(name)
        if count != feature.count:
            raise ValueError(
                f"{self._where}: feature '{name}' has {count} values a row; needed: "
                f"{feature.count}, as the model"
            )
        cardinality = self._spec.feature_spec[name].get("cardinality")
        if cardinality != feature.cardinality:
            found, needed = (
                "is a numerical" if number is None else f"has {number:,} different ids"
                for number in (cardinality, feature.cardinality)
            )
            raise ValueError(
                f"{self._where}: feature '{name}' {found}, in the model it {needed}; needed: the "
                f"same. {ENCODED}"
            )

    def _mapped(self, chunk) -> dict[str, _Stored]:
        """The features of a chunk."""
        dtype = self._spec.dtype(chunk.features[0])
        # A stored bool is a byte that NumPy trusts to be 0 or 1; here it is looked at.
        dtype = np.dtype("u1") if dtype.kind == "b" else dtype.newbyteorder("<")
        width = self._spec.row_bytes(chunk) // dtype.itemsize
        paths = [self._folder / file for file in chunk.files]
        parts = [
            np.memmap(path, dtype, "r").reshape(-1, width)
            for path in paths
            if path.stat().st_size  # an empty file cannot be mapped
        ]
        stored, start = {}, 0
        for name in chunk.features:
            stop = start + self._spec.hotness(name)
            stored[name] = _Stored(parts, slice(start, stop))
            start = stop
        return stored

    def _values(self, feature: ServedFeature, start: int, stop: int) -> np.ndarray:
        """Float32 numericals or int64 ids of the rows start to stop - 1, [rows, count]."""
        stored, first_row, pieces = self._stored[feature.name], 0, []
        for part in stored.parts:
            in_part = slice(max(start - first_row, 0), max(stop - first_row, 0))
            pieces.append(part[in_part, stored.columns])
            first_row += len(part)
        found = np.concatenate(pieces)
        if feature.cardinality is None:
            with np.errstate(over="ignore"):
                values = found.astype(np.float32)
            allowed = np.isfinite(values)
            needed = f"a finite number; float32 holds up to {np.finfo(np.float32).max:g}"
        else:
            values = found.astype(np.int64)
            allowed = (values >= 0) & (values < feature.cardinality)
            needed = f"ids as in training, from 0 to {feature.cardinality - 1}"
            if self._interface.unknown_ids == UNKNOWN_IS_ZERO:
                allowed = values >= 0
                needed = "ids as in training, of 0 or more"
                values[values >= feature.cardinality] = 0
        if not allowed.all():
            row, column = np.argwhere(~allowed)[0]
            if feature.cardinality is not None and found[row, column] >= feature.cardinality:
                needed += unknown_ids_way_out(self._interface)
            raise ValueError(
                f"{self.where(start + int(row) + 1)}: feature '{feature.name}': found "
                f"{found[row, column]}; needed: {needed}"
            )
        return values
