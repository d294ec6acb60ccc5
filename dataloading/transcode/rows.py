"""From raw files to a data set of split binaries, a block of rows at a time.

The raw files are read once: every value is checked, and all that is known by then is written as it
will stay. Ids whose cardinality follows from the data are written as int64 first and narrowed
afterwards; texts are set aside, counted, and looked up; missing numerical values are NaN until all
are known.
"""

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from dataloading.interactions.stored import check_channels
from dataloading.spec.feature_spec import LABEL_CHANNEL, NUMERICAL_CHANNEL, Chunk, FeatureSpec
from dataloading.spec.output_folder import data_set_folder
from dataloading.table_input import values as transcode_values
from dataloading.table_input.duckdb_session import DuckDBSession
from dataloading.table_input.files import Block, mapping_blocks
from dataloading.table_input.values import BadValue
from dataloading.transcode import stored_files
from dataloading.transcode.candidate_lists import SeriesCheck
from dataloading.transcode.encode import vocabulary
from dataloading.transcode.encode.missing import MissingValues
from dataloading.transcode.encode.standardize import Standardization
from dataloading.transcode.encode.texts import TextIds, float_integers, without_point
from dataloading.transcode.encode.vocabulary import Vocabularies
from dataloading.transcode.encoding import METADATA, Encoding
from dataloading.transcode.progress import progress_bar
from dataloading.transcode.raw_spec import RawSpec
from dataloading.transcode.split import Route, SplitRequest, routes_of
from dataloading.transcode.stored_files import UNKNOWN_CARDINALITY, stored_layout


def transcode(
    spec: RawSpec,
    encoding: Encoding,
    output: Path,
    *,
    split: SplitRequest | None = None,
    spec_file: str = "feature_spec.yaml",
    chunk_size: int = 65_536,
    memory_limit_bytes: int = 1 << 30,
    overwrite: bool = False,
) -> FeatureSpec:
    """Writes the data set; its folder appears when it is whole.

    Args:
        spec: the raw data; with `split` its only mapping is `train`.
        split: divides the rows into train, validation and test.
        output: new or empty, or with `overwrite` a data set to replace.
        spec_file: name of the YAML file in it.
        chunk_size: the most rows to work on at a time.
        memory_limit_bytes: for counting and looking up texts, and for sorting times.

    Returns:
        The spec as written. Its metadata is that of `spec` and, under `transcode`, the rows and, of
        clicks, the click rate of each mapping, the share of the values of each feature of
        `categorify` that have the id `vocabulary.UNKNOWN`, and the encoding.

    Raises:
        ValueError: a rule of the raw data is broken; the message names file and row.
        OSError: a file cannot be written; the message names it.
    """
    if METADATA in spec.metadata:
        raise ValueError(f"{spec.origin}: metadata: '{METADATA}' is written here; rename the key")
    with data_set_folder(output, overwrite, spec_file) as folder:
        with tempfile.TemporaryDirectory(prefix=".scratch.", dir=folder) as scratch:
            session = DuckDBSession(Path(scratch) / "duckdb", memory_limit_bytes)
            routes = routes_of(spec, split, session, Path(scratch), chunk_size)
            written = _Transcoding(spec, routes, encoding, folder, Path(scratch), chunk_size)
            for route in routes:
                written.read(route)
            final = written.finish(memory_limit_bytes)
        for mapping in final.source_spec if spec.is_interactions else ():
            check_channels(final, mapping)
        final.validate_files()
        final.to_yaml(folder / spec_file)
    return FeatureSpec.from_yaml(output / spec_file)


class _Transcoding:
    """One run: what it found so far."""

    def __init__(
        self,
        raw: RawSpec,
        routes: list[Route],
        encoding: Encoding,
        folder: Path,
        scratch: Path,
        chunk_size: int,
    ):
        self._raw = raw
        sources = {target: raw.sources[r.source] for r in routes for target in r.targets}
        self._spec = spec = dataclasses.replace(raw, sources=sources)
        self._encoding = encoding
        self._folder, self._scratch = folder, scratch
        self._chunk_size = chunk_size
        self._rows: dict[str, int] = {}
        self._clicks: dict[str, int] = {}
        self._texts = TextIds(spec, encoding, folder, scratch)
        self._largest = {
            name: -1
            for name in spec.ids
            if name not in (*encoding.categorify, *encoding.hash_buckets)
            and "cardinality" not in spec.features[name]
        }
        # The layout is final; ids of unknown cardinality are int64 in it.
        unknown = (*self._largest, *encoding.categorify)
        self._layout = self._stored(dict.fromkeys(unknown, UNKNOWN_CARDINALITY))
        self._standardization = Standardization(spec, self._layout, encoding.standardize)
        self._missing = MissingValues(spec, self._layout, encoding.fill, self._standardization)
        self._convert = {name: self._conversion(name) for name in spec.features}
        texts = (*encoding.categorify, *encoding.hash_buckets)
        self._float_integers = float_integers(raw, texts, encoding.vocabularies)

    def _stored(self, cardinalities: dict[str, int], metadata: dict | None = None) -> FeatureSpec:
        """The data set's spec: the raw one's features with these cardinalities."""
        cardinalities = {**cardinalities, **self._encoding.hash_buckets}
        return stored_layout(self._spec, cardinalities, self._folder, metadata or {})

    def _conversion(self, feature: str) -> Callable[[pa.Array], np.ndarray | pa.Array]:
        """Returns the function that converts the values of a feature for its file."""
        if feature in self._spec.channels.get(NUMERICAL_CHANNEL, ()):
            dtype = self._standardization.raw_dtype([feature])
            fills = self._missing.fills(feature)
            return functools.partial(transcode_values.numericals, dtype=dtype, may_miss=fills)
        if feature in self._spec.channels[LABEL_CHANNEL]:
            return functools.partial(transcode_values.labels, dtype=self._layout.dtype(feature))
        if feature in self._encoding.categorify:
            return transcode_values.texts
        if feature in self._encoding.hash_buckets:
            buckets = self._encoding.hash_buckets[feature]
            return lambda values: vocabulary.bucket_ids(transcode_values.texts(values), buckets)
        cardinality = None if feature in self._largest else self._layout.cardinality(feature)
        return functools.partial(transcode_values.ids, cardinality=cardinality)

    def read(self, route: Route) -> None:
        """Reads the raw rows of a mapping and writes what is known by now."""
        check = None
        if self._spec.is_interactions:
            check = SeriesCheck(self._raw, route.source)
        with contextlib.ExitStack() as stack:
            write = {target: self._appenders(stack, target) for target in route.targets}
            advance = stack.enter_context(progress_bar(f"reading {route.source}", " rows"))
            first_row = 0
            for blocks in mapping_blocks(self._raw, route.source, self._chunk_size):
                block_of = {name: block for block in blocks for name in block.columns}
                columns = {
                    name: self._values(name, block_of[name]) for name in self._stored_in(route)
                }
                for target, rows in route.parts(first_row, block_of):
                    self._append(target, write[target], columns, rows)
                if check:
                    check.add(columns, block_of)
                first_row += blocks[0].num_rows
                advance(blocks[0].num_rows)
        if check:
            check.end()
        for target in route.targets:
            if not self._rows[target]:
                raise ValueError(
                    f"the split '{target}' has none of the {first_row:,} rows; possible solutions: "
                    + route.split.why_empty(target)
                )

    def _stored_in(self, route: Route) -> list[str]:
        """The features that the rows of a mapping store, in the order of the files."""
        chunks = self._layout.source_spec[route.targets[0]]
        return [name for chunk in chunks for name in chunk.features]

    def _appenders(self, stack, mapping: str) -> dict[tuple[str, ...], Callable]:
        """For each file of a mapping, by its features, the function that appends values to it."""
        self._rows[mapping] = self._clicks[mapping] = 0
        (self._folder / mapping).mkdir()
        chunks = self._layout.source_spec[mapping]
        return {chunk.features: self._appender(stack, mapping, chunk) for chunk in chunks}

    def _append(self, mapping: str, write: dict, columns: dict, rows: np.ndarray | None) -> None:
        """Writes the rows of a block that a mapping has; None: all."""
        num_rows = None
        for names, append in write.items():
            values = [self._of_rows(name, columns[name], rows) for name in names]
            append(values)
            num_rows = len(values[0]) // self._layout.hotness(names[0])
            if names == self._spec.channels[LABEL_CHANNEL]:
                self._clicks[mapping] += int(np.count_nonzero(values[0]))
            for name, column in zip(names, values, strict=True):
                if name in self._spec.channels.get(NUMERICAL_CHANNEL, ()):
                    self._missing.add(mapping, name, column)
        self._rows[mapping] += num_rows

    def _of_rows(self, feature: str, values, rows: np.ndarray | None):
        """The values of some rows, given as a mask, of those of a block."""
        if rows is None:
            return values
        mask = np.repeat(rows, self._layout.hotness(feature))
        return values[mask] if isinstance(values, np.ndarray) else values.filter(pa.array(mask))

    def _appender(self, stack, mapping: str, chunk: Chunk) -> Callable:
        """A function that appends values of a chunk's features; its files close with `stack`."""
        if chunk.features[0] in self._encoding.categorify:
            return self._texts.appender(stack, mapping, chunk.features[0])
        path = self._folder / chunk.files[0]
        dtype = self._standardization.raw_dtype(chunk.features).newbyteorder("<")
        widths = [self._layout.hotness(name) for name in chunk.features]

        def append(columns: list[np.ndarray]) -> None:
            arrays = [
                column.reshape(-1, width) for column, width in zip(columns, widths, strict=True)
            ]
            with path.open("ab") as stream:
                stored_files.put(stream, np.concatenate(arrays, axis=1).astype(dtype, copy=False))

        return append

    def _values(self, feature: str, block: Block) -> np.ndarray | pa.Array:
        hotness = self._layout.hotness(feature)
        values_per_index = 1
        try:
            flat = transcode_values.flat(block.columns[feature], hotness)
            values_per_index = hotness
            if feature in self._float_integers.get(block.where, ()):
                flat = without_point(flat)
            values = self._convert[feature](flat)
        except BadValue as bad:
            row = block.first_row + bad.index // values_per_index
            raise ValueError(
                f"{block.where}: feature '{feature}': found {bad.found} in row {row} (rows are "
                f"counted from 1, a header is not); {bad.rule}"
            ) from None
        if feature in self._largest:
            self._largest[feature] = max(self._largest[feature], int(values.max(initial=-1)))
        return values

    def finish(self, memory_limit_bytes: int) -> FeatureSpec:
        """Writes what depends on all rows, and returns the final spec."""
        cardinalities = {name: largest + 1 for name, largest in self._largest.items()}
        self._spec = self._missing.complete()
        with contextlib.ExitStack() as stack:
            vocabularies = None
            if self._encoding.categorify:
                session = Vocabularies(self._scratch / "duckdb", memory_limit_bytes)
                vocabularies = stack.enter_context(session)
            for feature in self._encoding.categorify:
                cardinalities[feature] = self._texts.make_vocabulary(feature, vocabularies)
            final = self._stored(cardinalities)
            sources = final.source_spec.items()
            files = [(mapping, chunk) for mapping, chunks in sources for chunk in chunks]
            advance = stack.enter_context(progress_bar("encoding ids", " files", len(files)))
            for mapping, chunk in files:
                self._finish_file(mapping, chunk, final, vocabularies)
                advance(1)
            self._texts.look_for_unknown(vocabularies)
        return self._stored(cardinalities, self._metadata())

    def _finish_file(self, mapping: str, chunk: Chunk, final: FeatureSpec, vocabularies) -> None:
        feature, path = chunk.features[0], self._folder / chunk.files[0]
        dtype = final.dtype(feature).newbyteorder("<")
        if feature in self._encoding.categorify:
            self._texts.write_ids(mapping, feature, vocabularies, path, dtype)
        elif feature in self._largest and dtype != np.int64:
            wide = path.with_suffix(".wide")
            path.rename(wide)
            stored_files.write_ids(path, stored_files.stored_ids(wide), dtype)
            wide.unlink()
        else:
            self._missing.rewrite(path, chunk.features)

    def _metadata(self) -> dict:
        labels = self._spec.channels[LABEL_CHANNEL]
        labelled = [
            mapping for mapping in self._rows if labels and self._spec.has(mapping, labels[0])
        ]
        files = {name: vocabulary.text_file(name) for name in self._encoding.categorify}
        rates = {name: self._clicks[name] / self._rows[name] for name in labelled}
        own = {
            "rows": self._rows,
            **({} if self._spec.is_interactions else {"click_rate": rates}),
            "unknown_share": self._texts.unknown_shares,
            "vocabulary": files,
            "hash_buckets": self._encoding.hash_buckets,
            **self._texts.metadata(),
            **self._missing.metadata(self._rows),
        }
        return {**self._spec.metadata, METADATA: own}
