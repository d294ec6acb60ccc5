"""From raw files to a data set of split binaries, a block of rows at a time.

The raw files are read once: every value is checked, and all that is known by then is written as it
will stay. Ids whose cardinality the data says are written as int64 first and narrowed afterwards;
texts are set aside, counted, and looked up.
"""

import contextlib
import functools
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataloading import transcode_binary, transcode_values, vocabulary, vocabulary_hash
from dataloading.feature_spec import (
    LABEL_CHANNEL,
    NUMERICAL_CHANNEL,
    TRAIN,
    Chunk,
    FeatureSpec,
)
from dataloading.interactions import check_channels
from dataloading.output_folder import appears_whole
from dataloading.transcode_files import Block, mapping_blocks
from dataloading.transcode_layout import UNKNOWN_CARDINALITY, stored_layout
from dataloading.transcode_series import SeriesCheck
from dataloading.transcode_spec import RawSpec
from dataloading.transcode_values import BadValue
from dataloading.vocabulary import Vocabularies

METADATA = "transcode"  # the key of what a transcoded data set says of itself


@dataclass(frozen=True)
class Encoding:
    """Which features of ids are not ids yet, and how they become some.

    categorify: features whose values get ids by falling count in the mapping `train`.
    frequency_threshold: values that occur there less often become `vocabulary.UNKNOWN`.
    hash_buckets: feature -> cardinality N; the id is the value's XXH64 modulo N.
    vocabularies: features of `categorify` -> the text file that has their values already.
    """

    categorify: tuple[str, ...] = ()
    frequency_threshold: int = 0
    hash_buckets: dict[str, int] = field(default_factory=dict)
    vocabularies: dict[str, Path] = field(default_factory=dict)


def transcode(
    spec: RawSpec,
    encoding: Encoding,
    output: Path,
    *,
    spec_file: str = "feature_spec.yaml",
    chunk_size: int = 65_536,
    memory_limit_bytes: int = 1 << 30,
    overwrite: bool = False,
) -> FeatureSpec:
    """Writes the data set; its folder appears when it is whole.

    Args:
        spec: the raw data.
        output: new or empty, or with `overwrite` a data set to replace.
        spec_file: name of the YAML file in it.
        chunk_size: the most rows to work on at a time.
        memory_limit_bytes: for counting and looking up texts.

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
    with appears_whole(output, overwrite, spec_file) as folder:
        with tempfile.TemporaryDirectory(prefix=".scratch.", dir=folder) as scratch:
            written = _Transcoding(spec, encoding, folder, Path(scratch), chunk_size)
            for mapping in spec.sources:
                written.read(mapping)
            final = written.finish(memory_limit_bytes)
        for mapping in spec.sources if spec.is_interactions else ():
            check_channels(final, mapping)
        final.validate_files()
        final.to_yaml(folder / spec_file)
    return FeatureSpec.from_yaml(output / spec_file)


class _Transcoding:
    """One run: what it found so far."""

    def __init__(
        self, spec: RawSpec, encoding: Encoding, folder: Path, scratch: Path, chunk_size: int
    ):
        self._spec, self._encoding = spec, encoding
        self._folder, self._scratch = folder, scratch
        self._chunk_size = chunk_size
        self._rows: dict[str, int] = {}
        self._clicks: dict[str, int] = {}
        self._unknown: dict[str, dict[str, int]] = {mapping: {} for mapping in spec.sources}
        self._largest = {
            name: -1
            for name in spec.ids
            if name not in (*encoding.categorify, *encoding.hash_buckets)
            and "cardinality" not in spec.features[name]
        }
        # The layout is final; ids of unknown cardinality are int64 in it.
        unknown = (*self._largest, *encoding.categorify)
        self._layout = self._stored(dict.fromkeys(unknown, UNKNOWN_CARDINALITY))
        self._convert = {name: self._conversion(name) for name in spec.features}

    def _stored(self, cardinalities: dict[str, int], metadata: dict | None = None) -> FeatureSpec:
        """The data set's spec: the raw one's features with these cardinalities."""
        cardinalities = {**cardinalities, **self._encoding.hash_buckets}
        return stored_layout(self._spec, cardinalities, self._folder, metadata or {})

    def _conversion(self, feature: str) -> Callable[[pa.Array], np.ndarray | pa.Array]:
        """How the values of a feature, one behind the other, become what is written."""
        if feature in self._spec.channels.get(NUMERICAL_CHANNEL, ()):
            dtype = self._layout.dtype(feature)
            return functools.partial(transcode_values.numericals, dtype=dtype)
        if feature in self._spec.channels[LABEL_CHANNEL]:
            return functools.partial(transcode_values.labels, dtype=self._layout.dtype(feature))
        if feature in self._encoding.categorify:
            return transcode_values.texts
        if feature in self._encoding.hash_buckets:
            buckets = self._encoding.hash_buckets[feature]
            return lambda values: vocabulary_hash.bucket_ids(
                transcode_values.texts(values), buckets
            )
        cardinality = None if feature in self._largest else self._layout.cardinality(feature)
        return functools.partial(transcode_values.ids, cardinality=cardinality)

    def read(self, mapping: str) -> None:
        """Reads the raw rows of a mapping and writes what is known by now."""
        chunks = self._layout.source_spec[mapping]
        labels = self._spec.channels[LABEL_CHANNEL]
        check = SeriesCheck(self._spec, mapping) if self._spec.is_interactions else None
        self._rows[mapping] = self._clicks[mapping] = 0
        (self._folder / mapping).mkdir()
        with contextlib.ExitStack() as stack:
            write = {chunk.features: self._appender(stack, mapping, chunk) for chunk in chunks}
            for blocks in mapping_blocks(self._spec, mapping, self._chunk_size):
                block_of = {name: block for block in blocks for name in block.columns}
                values = {}
                for names, append in write.items():
                    columns = [self._values(name, block_of[name]) for name in names]
                    append(columns)
                    if names == labels:
                        self._clicks[mapping] += int(np.count_nonzero(columns[0]))
                    if check:
                        values.update(zip(names, columns, strict=True))
                if check:
                    check.add(values, block_of)
                self._rows[mapping] += blocks[0].num_rows
        if check:
            check.end()

    def _appender(self, stack, mapping: str, chunk: Chunk) -> Callable:
        """A function that appends values of a chunk's features; its files close with `stack`."""
        if chunk.features[0] in self._encoding.categorify:
            path = self._text_path(mapping, chunk.features[0])
            writer = stack.enter_context(pq.ParquetWriter(path, vocabulary.VALUES_SCHEMA))
            return lambda columns: writer.write_batch(
                pa.record_batch(columns, schema=vocabulary.VALUES_SCHEMA)
            )
        path = self._folder / chunk.files[0]
        dtype = self._layout.dtype(chunk.features[0]).newbyteorder("<")
        widths = [self._layout.hotness(name) for name in chunk.features]

        def append(columns: list[np.ndarray]) -> None:
            arrays = [
                column.reshape(-1, width) for column, width in zip(columns, widths, strict=True)
            ]
            with path.open("ab") as stream:
                transcode_binary.put(
                    stream, np.concatenate(arrays, axis=1).astype(dtype, copy=False)
                )

        return append

    def _text_path(self, mapping: str, feature: str) -> Path:
        """Where the texts of a feature wait to be looked up."""
        number = self._spec.ids.index(feature)
        return self._scratch / f"{mapping}_{number}.parquet"

    def _values(self, feature: str, block: Block) -> np.ndarray | pa.Array:
        hotness = self._layout.hotness(feature)
        values_per_index = 1
        try:
            flat = transcode_values.flat(block.columns[feature], hotness)
            values_per_index = hotness
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
        with contextlib.ExitStack() as stack:
            vocabularies = None
            if self._encoding.categorify:
                made = Vocabularies(self._scratch, memory_limit_bytes)
                vocabularies = stack.enter_context(made)
            for feature in self._encoding.categorify:
                cardinalities[feature] = self._make_vocabulary(feature, vocabularies)
            final = self._stored(cardinalities)
            for mapping, chunks in final.source_spec.items():
                for chunk in chunks:
                    self._finish_file(mapping, chunk, final, vocabularies)
        return self._stored(cardinalities, self._metadata())

    def _finish_file(self, mapping: str, chunk: Chunk, final: FeatureSpec, vocabularies) -> None:
        feature, path = chunk.features[0], self._folder / chunk.files[0]
        dtype = final.dtype(feature).newbyteorder("<")
        if feature in self._encoding.categorify:
            texts = self._text_path(mapping, feature)
            known = vocabularies.look_up(texts, self._table_path(feature))
            self._unknown[mapping][feature] = transcode_binary.write_ids(path, known, dtype)
            texts.unlink()
        elif feature in self._largest and dtype != np.int64:
            wide = path.with_suffix(".wide")
            path.rename(wide)
            transcode_binary.write_ids(path, transcode_binary.stored_ids(wide), dtype)
            wide.unlink()

    def _table_path(self, feature: str) -> Path:
        """The vocabulary as a table, while texts are looked up."""
        return self._text_path(TRAIN, feature).with_suffix(".vocabulary")

    def _make_vocabulary(self, feature: str, vocabularies: Vocabularies) -> int:
        """Makes the vocabulary, as a table and as text; returns the feature's cardinality."""
        table, text = self._table_path(feature), self._folder / vocabulary.text_file(feature)
        known = self._encoding.vocabularies.get(feature)
        if known is None:
            texts = self._text_path(TRAIN, feature)
            kept = vocabularies.count(texts, self._encoding.frequency_threshold, table)
            vocabulary.write_text(table, text)
            return kept + 1
        cardinality = vocabulary.read_text(known, table) + 1
        twice = vocabularies.repeated(table)
        if twice is not None:
            raise ValueError(
                f"{known}: has the value {twice!r:.100} on more than one line; allowed: each value "
                "once, line N has id N. Take the file that belongs to the data set"
            )
        expected = self._spec.features[feature]["cardinality"]
        if cardinality != expected:
            raise ValueError(
                f"{known}: has {cardinality - 1} lines; cardinality {expected} of feature "
                f"'{feature}' needs {expected - 1}: take the file that belongs to the data set"
            )
        text.parent.mkdir(exist_ok=True)
        shutil.copyfile(known, text)
        return cardinality

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
            "unknown_share": {
                mapping: {
                    name: count / (self._rows[mapping] * self._layout.hotness(name))
                    for name, count in counts.items()
                }
                for mapping, counts in self._unknown.items()
            },
            "vocabulary": files,
            "hash_buckets": self._encoding.hash_buckets,
        }
        return {**self._spec.metadata, METADATA: own}
