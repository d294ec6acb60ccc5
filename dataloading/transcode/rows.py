"""From raw files to a data set of split binaries, a block of rows at a time.

The raw files are read once: every value is checked, and the rows of each split are staged as a
Parquet file of numbers and texts. Then the staged rows are encoded by what follows from all of
them: cardinalities, vocabularies, fill values and scales.
"""

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataloading.interactions.stored import check_channels
from dataloading.keys.vocabulary import text_file
from dataloading.spec.feature_spec import LABEL_CHANNEL, NUMERICAL_CHANNEL, FeatureSpec
from dataloading.spec.output_folder import METADATA, data_set_folder
from dataloading.table_input import values as table_values
from dataloading.table_input.files import Block, split_blocks
from dataloading.table_input.values import BadValue
from dataloading.transcode import stored_files
from dataloading.transcode.candidate_lists import CandidateListCheck
from dataloading.transcode.encode.numericals import (
    NumericalFeature,
    numerical_metadata,
    with_indicators,
)
from dataloading.transcode.encode.texts import TextIds, float_integers, without_point
from dataloading.transcode.encode.vocabulary import (
    TextColumn,
    Vocabularies,
    bucket_ids,
)
from dataloading.transcode.encoding import Encoding
from dataloading.transcode.progress import progress_bar
from dataloading.transcode.raw_spec import RawSpec
from dataloading.transcode.split import Route, SplitRequest, routes_of
from dataloading.transcode.stored_files import StagedRows, stored_layout

_BLOCK_ROWS = 1 << 16  # encoded at a time


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
        spec: the raw data; if its rows are divided, it has the split `train` only.
        output: new or empty, or with `overwrite` a data set to replace.
        split: divides the rows into train, validation and test.
        spec_file: name of the YAML file in `output`.
        chunk_size: the most rows to work on at a time.
        memory_limit_bytes: for counting and looking up texts, and for sorting times.

    Returns:
        The spec as written. Its metadata is that of `spec` and, under `transcode`, the encoding and
        rows, click rate and shares of unknown and missing values of each split.

    Raises:
        ValueError: a rule of the raw data is broken; the message names file and row.
        OSError: a file cannot be written; the message names it.
    """
    if METADATA in spec.metadata:
        raise ValueError(f"{spec.origin}: metadata: '{METADATA}' is written here; rename the key")
    with data_set_folder(output, overwrite, spec_file) as folder:
        with tempfile.TemporaryDirectory(prefix=".scratch.", dir=folder) as scratch:
            session = Vocabularies(Path(scratch) / "duckdb", memory_limit_bytes)
            routes = routes_of(spec, split, session, chunk_size)
            work = _Transcoding(spec, routes, encoding, folder, Path(scratch))
            for route in routes:
                work.stage(route, chunk_size)
            final = work.finish(session)
        for name in final.source_spec if spec.is_interactions else ():
            check_channels(final, name)
        final.validate_files()
        final.to_yaml(folder / spec_file)
    return FeatureSpec.from_yaml(output / spec_file)


class _Transcoding:
    """One run, and its facts about the rows read so far."""

    def __init__(
        self, raw: RawSpec, routes: list[Route], encoding: Encoding, folder: Path, scratch: Path
    ):
        self._raw, self._encoding = raw, encoding
        self._folder, self._scratch = folder, scratch
        sources = {target: raw.sources[r.source] for r in routes for target in r.targets}
        self._spec = spec = dataclasses.replace(raw, sources=sources)
        self._staged = {name: f"c{number}" for number, name in enumerate(spec.features)}
        self._rows: dict[str, int] = dict.fromkeys(sources, 0)
        self._clicks: dict[str, int] = dict.fromkeys(sources, 0)
        self._numericals = {
            name: NumericalFeature(name, spec, encoding.numericals)
            for name in spec.channels.get(NUMERICAL_CHANNEL, ())
        }
        self._largest = {
            name: encoding.growth.cardinalities[name] - 1 if encoding.growth else -1
            for name in spec.ids
            if name not in (*encoding.categorify, *encoding.hash_buckets)
            and "cardinality" not in spec.features[name]
        }
        # Raises errors before hours of reading.
        unknown = dict.fromkeys((*self._largest, *encoding.categorify), 1)
        stored_layout(spec, unknown | encoding.hash_buckets, folder)
        texts = (*encoding.categorify, *encoding.hash_buckets)
        self._float_integers = float_integers(raw, texts, encoding.vocabularies)

    def stage(self, route: Route, chunk_size: int) -> None:
        """Reads the raw rows of a split, and stages them by split of the data set."""
        names = [name for name in self._spec.features if self._raw.has(route.source, name)]
        check = CandidateListCheck(self._raw, route.source) if self._spec.is_interactions else None
        with ExitStack() as stack:
            staged = {
                target: stack.enter_context(closing(StagedRows(self._path(target))))
                for target in route.targets
            }
            bar = stack.enter_context(progress_bar(f"reading {route.source}", " rows"))
            first_row = 0
            for blocks in split_blocks(self._raw, route.source, chunk_size):
                block_of = {name: block for block in blocks for name in block.columns}
                values = {name: self._values(name, block_of[name]) for name in names}
                if check:
                    check.add(values, block_of)
                columns = {self._staged[name]: self._rows_of(name, values[name]) for name in names}
                batch = pa.record_batch(columns)
                for target, mask in route.parts(first_row, block_of):
                    part = batch if mask is None else batch.filter(pa.array(mask))
                    self._add(target, part)
                    staged[target].append(part)
                first_row += batch.num_rows
                bar.update(batch.num_rows)
        if check:
            check.end()
        for target in route.targets:
            if not self._rows[target]:
                raise ValueError(
                    f"the split '{target}' has none of the {first_row:,} rows; possible solutions: "
                    + route.remedy
                )

    def _path(self, split: str) -> Path:
        return self._scratch / f"{split}.parquet"

    def _values(self, feature: str, block: Block) -> pa.Array:
        """Returns the values of all rows of a block, checked, `hotness` per row."""
        hotness = self._spec.hotness(feature)
        values_per_index = 1
        try:
            flat = table_values.flat(block.columns[feature], hotness)
            values_per_index = hotness
            if feature in self._float_integers.get(block.where, ()):
                flat = without_point(flat)
            values = self._converted(feature, flat)
        except BadValue as bad:
            row = block.first_row + bad.index // values_per_index
            raise ValueError(
                f"{block.where}: feature '{feature}': found {bad.found} in row {row} (rows are "
                f"counted from 1, a header is not); {bad.rule}"
            ) from None
        return values if isinstance(values, pa.Array) else pa.array(values)

    def _converted(self, feature: str, values: pa.Array) -> np.ndarray | pa.Array:
        if feature in self._numericals:
            return self._numericals[feature].read(values)
        if feature in self._spec.channels[LABEL_CHANNEL]:
            return table_values.labels(values, np.int64)
        if feature in self._encoding.categorify:
            return table_values.texts(values)
        if feature in self._encoding.hash_buckets:
            buckets = self._encoding.hash_buckets[feature]
            return bucket_ids(table_values.texts(values), buckets)
        ids = table_values.ids(values, self._spec.features[feature].get("cardinality"))
        if feature in self._largest:
            self._largest[feature] = max(self._largest[feature], int(ids.max(initial=-1)))
        return ids

    def _rows_of(self, feature: str, values: pa.Array) -> pa.Array:
        hotness = self._spec.hotness(feature)
        return values if hotness == 1 else pa.FixedSizeListArray.from_arrays(values, hotness)

    def _add(self, split: str, rows: pa.RecordBatch) -> None:
        """Takes the statistics of rows of a split."""
        self._rows[split] += rows.num_rows
        for name, feature in self._numericals.items():
            feature.add(split, _numbers(rows, self._staged[name]))
        for name in self._spec.channels[LABEL_CHANNEL]:
            if self._staged[name] in rows.schema.names:
                clicks = np.count_nonzero(_numbers(rows, self._staged[name]))
                self._clicks[split] += int(clicks)

    def finish(self, vocabularies: Vocabularies) -> FeatureSpec:
        """Encodes the staged rows; returns the spec of the data set."""
        for feature in self._numericals.values():
            feature.complete()
        self._spec = with_indicators(self._spec, self._numericals.values())
        texts = TextIds(self._encoding, self._folder, vocabularies, self._texts)
        with ExitStack() as stack:
            if self._encoding.categorify:
                stack.enter_context(vocabularies)
            cardinalities = {name: largest + 1 for name, largest in self._largest.items()}
            cardinalities |= texts.make_vocabularies(self._spec, self._scratch)
            cardinalities |= self._encoding.hash_buckets
            layout = stored_layout(self._spec, cardinalities, self._folder)
            sources = layout.source_spec.items()
            files = [(split, chunk) for split, chunks in sources for chunk in chunks]
            bar = stack.enter_context(progress_bar("encoding ids", " files", len(files)))
            for split, chunk in files:
                path = self._folder / chunk.files[0]
                path.parent.mkdir(exist_ok=True)
                dtype = layout.dtype(chunk.features[0]).newbyteorder("<")
                with path.open("wb") as stream:
                    for values in self._encoded(split, chunk.features, texts):
                        stored_files.put(stream, values.astype(dtype))
                bar.update()
            texts.look_for_unknown()
        return dataclasses.replace(layout, metadata=self._metadata(texts))

    def _texts(self, split: str, feature: str) -> TextColumn:
        return TextColumn(self._path(split), self._staged[feature], self._spec.hotness(feature))

    def _encoded(self, split: str, features: Sequence[str], texts: TextIds) -> Iterator[np.ndarray]:
        """Yields the values of the features of a file, in the order of its rows."""
        if features[0] in self._encoding.categorify:
            yield from texts.ids(split, features[0])
            return
        names, first_row = [name for name in features if name in self._staged], 0
        with pq.ParquetFile(self._path(split)) as file:
            columns = [self._staged[name] for name in names]
            for batch in file.iter_batches(_BLOCK_ROWS, columns=columns, use_threads=False):
                arrays = []
                for name in names:
                    values = _numbers(batch, self._staged[name])
                    values = values.reshape(-1, self._spec.hotness(name))
                    if name in self._numericals:
                        arrays += self._numericals[name].stored(values, split, first_row)
                    else:
                        arrays.append(values)
                yield np.concatenate(arrays, axis=1)
                first_row += batch.num_rows

    def _metadata(self, texts: TextIds) -> dict:
        labels = self._spec.channels[LABEL_CHANNEL]
        rates = {
            split: self._clicks[split] / num_rows
            for split, num_rows in self._rows.items()
            if labels and self._spec.has(split, labels[0])
        }
        own = {
            "rows": self._rows,
            **({} if self._spec.is_interactions else {"click_rate": rates}),
            "unknown_share": {name: texts.unknown_shares.get(name, {}) for name in self._rows},
            "vocabulary": {name: text_file(name) for name in self._encoding.categorify},
            "hash_buckets": self._encoding.hash_buckets,
            **texts.metadata(),
            **self._lineage(texts),
            **numerical_metadata(self._numericals.values(), self._rows),
        }
        return {**self._spec.metadata, METADATA: own}

    def _lineage(self, texts: TextIds) -> dict:
        """Returns the day of the rows, and the data sets whose ids this one continues."""
        date, growth = self._encoding.date, self._encoding.growth
        own: dict = {} if date is None else {"date": str(date)}
        if growth is not None:
            own["grown_from"] = list(growth.ancestors[: 1 if texts.evicted else None])
        return own


def _numbers(rows: pa.RecordBatch, column: str) -> np.ndarray:
    """Returns the values of all rows of a staged column."""
    values = rows.column(column)
    values = values.flatten() if pa.types.is_fixed_size_list(values.type) else values
    return values.to_numpy()
