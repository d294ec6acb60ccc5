"""Samples of a data set in split binaries as requests."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dataloading.formats.open_chunk import FIXED_TYPES, open_chunks
from dataloading.spec.data_set_files import ENCODER_FOLDER, SPEC_FILE
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.spec.rules import listing
from dataloading.spec.spans import spans_of
from deployment.serving.interface import Interface, ServedFeature
from deployment.serving.raw.encoded_rows import request_tensors
from deployment.serving.scorer import RequestScorer
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import FeatureEncoding
from preproc.encoding.vocabulary import Vocabulary

_ADVICE = (
    "Possible solutions: the raw table as --input, or its rows encoded by `python -m "
    "preproc.transcode --vocabulary DATA`, with the training's data set DATA"
)


class FolderInput:
    """Samples of a split of a data set whose features have the names of a model's.

    Every feature of the model is stored in split_binary chunks, with the model's cardinality and
    number of values. `split` may be None if there is only one.
    """

    def __init__(self, folder: str | Path, split: str | None, interface: Interface):
        self._folder, self._interface = Path(folder), interface
        self._spec = self._read_spec()
        split = self._chosen(split)
        self._where = f"--input {self._folder}: split '{split}'"
        chunk_of = {name: c for c in self._spec.source_spec[split] for name in c.features}
        names = [feature.name for feature in interface.features]
        missing = [name for name in names if name not in chunk_of]
        if missing:
            raise ValueError(
                f"{self._where}: lacks the features {listing(missing)}; expected all of the "
                f"model. It has {listing(chunk_of)}"
            )
        for feature in interface.features:
            self._check_kind(feature)
        used = [
            number
            for number, chunk in enumerate(self._spec.source_spec[split])
            if not set(names).isdisjoint(chunk.features)
        ]
        self.paths = [self._folder / SPEC_FILE]
        chunks = [self._spec.source_spec[split][number] for number in used]
        for chunk in chunks:
            if chunk.type not in FIXED_TYPES:
                raise ValueError(
                    f"{self._where}: expected chunks of the type {' or '.join(FIXED_TYPES)}, got "
                    f"{chunk.type} for {listing(chunk.files)}. {_ADVICE}"
                )
            self.paths += [self._folder / file for file in chunk.files]
        opened, self.num_rows = open_chunks(self._spec, split, used)
        if not self.num_rows:
            raise ValueError(f"{self._where}: has no rows")
        self._chunks = list(opened.values())
        self._spans = spans_of(self._spec, chunks)
        self.ignored = [name for name in chunk_of if name not in names]

    def check_encoding(self, scorer: RequestScorer) -> None:
        """Raises ValueError if values were encoded otherwise than those of the model's training."""
        folder, own = self._folder / ENCODER_FOLDER, self._spec.metadata.get(ENCODER_FOLDER)
        if not own or own == self._interface.encoder or not self._interface.encoder:
            return
        encoder = Encoder.load(folder)
        for feature in self._interface.features:
            expected = scorer.raw_rows.encoding(feature.name)
            if not _encode_equally(encoder.maker(expected.name), expected):
                raise ValueError(
                    f"{self._where}: feature '{feature.name}': expected the encoding of the "
                    f"model's training, got other ids or another scale in {folder}. {_ADVICE}"
                )

    def requests(self, batch_size: int) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """Yields all samples in order as (first row, from 1, tensors of a request), at most
        `batch_size` per request; refuses negative ids."""
        for start in range(0, self.num_rows, batch_size):
            stop = min(start + batch_size, self.num_rows)
            samples = [chunk.read(range(start, stop)) for chunk in self._chunks]
            values = {f.name: self._values(f, samples, start) for f in self._interface.features}
            yield start + 1, request_tensors(self._interface, values)

    def where(self, row: int) -> str:
        return f"{self._where}: row {row}"

    def _read_spec(self) -> FeatureSpec:
        try:
            return FeatureSpec.from_yaml(self._folder / SPEC_FILE)
        except ValueError as error:
            raise ValueError(
                f"--input {self._folder}: is not a data set: {error}. {_ADVICE}"
            ) from None

    def _chosen(self, split: str | None) -> str:
        splits = list(self._spec.source_spec)
        if split is None and len(splits) == 1:
            return splits[0]
        if split not in splits:
            raise ValueError(
                f"--input {self._folder}: expected one of its splits by --mapping, "
                f"{listing(splits)}, got {split or 'none'}"
            )
        return split

    def _check_kind(self, feature: ServedFeature) -> None:
        hotness = self._spec.hotness(feature.name)
        if hotness != feature.count:
            raise ValueError(
                f"{self._where}: feature '{feature.name}': expected {feature.count} values per "
                f"row as in the model, got {hotness}. {_ADVICE}"
            )
        cardinality = self._spec.feature_spec[feature.name].get("cardinality")
        if cardinality != feature.cardinality:
            actual, expected = (
                "a numerical feature" if number is None else f"{number:,} different ids"
                for number in (cardinality, feature.cardinality)
            )
            raise ValueError(
                f"{self._where}: feature '{feature.name}': expected {expected} as in the model, "
                f"got {actual}. {_ADVICE}"
            )

    def _values(self, feature: ServedFeature, samples: list[np.ndarray], start: int):
        """Returns the values [rows, count] of a feature.

        Args:
            samples: values [rows, sum of hotness] of each chunk.
            start: the first row.
        """
        span = self._spans[feature.name]
        values = samples[span.chunk][:, span.begin : span.end]
        if feature.cardinality is None:
            with np.errstate(over="ignore"):  # the request's checks refuse infinity
                return values.astype(np.float32)
        ids = values.astype(np.int64)
        if ids.min() < 0:
            row, column = np.argwhere(ids < 0)[0]
            raise ValueError(
                f"{self.where(start + int(row) + 1)}: feature '{feature.name}': found "
                f"{ids[row, column]}; expected ids of 0 or more, as in training"
            )
        return ids


def _encode_equally(one: FeatureEncoding, other: FeatureEncoding) -> bool:
    """Returns whether two encodings map the same values to the same numbers or ids; a deployment
    may fill missing values otherwise."""
    if isinstance(one, Vocabulary) and isinstance(other, Vocabulary):
        return bool(one.values.equals(other.values))
    settings = [{**encoding.to_json(), "fill": None} for encoding in (one, other)]
    return settings[0] == settings[1]
