"""One run of transcode, apart from the engine that reads, counts and writes."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from dataloading.interactions.stored import check_channels
from dataloading.keys.growth import id_space_of
from dataloading.keys.vocabulary import text_file
from dataloading.spec.data_set_files import METADATA
from dataloading.spec.feature_spec import LABEL_CHANNEL, NUMERICAL_CHANNEL, TRAIN, FeatureSpec
from dataloading.transcode.encode.numericals import (
    NumericalFeature,
    numerical_metadata,
    with_indicators,
)
from dataloading.transcode.encode.row_values import RowFacts, RowValues
from dataloading.transcode.encode.texts import TextIds
from dataloading.transcode.encoding import Encoding
from dataloading.transcode.raw_spec import RawSpec
from dataloading.transcode.split import Route
from dataloading.transcode.stored_files import stored_layout


class Transcoding:
    """Facts about the rows of a run, and what follows from them.

    Attributes:
        spec: the same with the splits of the data set; `complete` adds indicators.
        facts: of all rows.
        values: the staged columns of raw rows.
    """

    def __init__(
        self,
        raw: RawSpec,
        routes: list[Route],
        encoding: Encoding,
        folder: Path,
        float_integers: Mapping[str, set[str]],
    ):
        self.raw, self.routes, self.encoding, self.folder = raw, routes, encoding, folder
        sources = {target: raw.sources[r.source] for r in routes for target in r.targets}
        self.spec = spec = dataclasses.replace(raw, sources=sources)
        self.numericals = {
            name: NumericalFeature(name, spec, encoding.numericals)
            for name in spec.channels.get(NUMERICAL_CHANNEL, ())
        }
        largest = {
            name: encoding.growth.cardinalities[name] - 1 if encoding.growth else -1
            for name in spec.ids
            if name not in (*encoding.categorify, *encoding.hash_buckets)
            and "cardinality" not in spec.features[name]
        }
        self.facts = RowFacts(largest=largest)
        # Raises errors before hours of reading.
        unknown = dict.fromkeys((*largest, *encoding.categorify), 1)
        stored_layout(spec, unknown | encoding.hash_buckets, folder)
        self.values = RowValues(raw, encoding, self.numericals, float_integers)

    def check_targets(self, route: Route, num_rows: int) -> None:
        """Raises ValueError if a split of the data set has none of the rows of a raw one."""
        for target in route.targets:
            if not self.facts.rows[target]:
                raise ValueError(
                    f"the split '{target}' has none of the {num_rows:,} rows; possible solutions: "
                    + route.remedy
                )

    def complete(self, texts: TextIds, scratch: Path) -> FeatureSpec:
        """Returns the layout of the files when all rows are read; makes the vocabularies."""
        for name, feature in self.numericals.items():
            feature.complete(self.facts.missing[TRAIN, name] > 0)
        self.spec = with_indicators(self.spec, self.numericals.values())
        cardinalities = {name: largest + 1 for name, largest in self.facts.largest.items()}
        cardinalities |= texts.make_vocabularies(self.spec, scratch)
        cardinalities |= self.encoding.hash_buckets
        return stored_layout(self.spec, cardinalities, self.folder)

    def metadata(self, texts: TextIds) -> dict:
        """Returns the metadata of the data set when all rows are encoded."""
        labels, facts = self.spec.channels[LABEL_CHANNEL], self.facts
        rows = {split: facts.rows[split] for split in self.spec.sources}
        rates = {
            split: facts.clicks[split] / num_rows
            for split, num_rows in rows.items()
            if labels and self.spec.has(split, labels[0])
        }
        missing_share = {
            split: {
                name: facts.missing[split, name] / (num_rows * self.spec.hotness(name))
                for name in self.numericals
            }
            for split, num_rows in rows.items()
        }
        own = {
            "rows": rows,
            **({} if self.spec.is_interactions else {"click_rate": rates}),
            "unknown_share": {name: texts.unknown_shares.get(name, {}) for name in rows},
            "vocabulary": {name: text_file(name) for name in self.encoding.categorify},
            "hash_buckets": self.encoding.hash_buckets,
            **texts.metadata(),
            **self._lineage(texts),
            **numerical_metadata(self.numericals.values(), missing_share),
        }
        return {**self.spec.metadata, METADATA: own}

    def _lineage(self, texts: TextIds) -> dict:
        """Returns the day of the rows, and the ids that those of this data set continue."""
        encoding, known = self.encoding, list(self.encoding.id_spaces)
        date, growth = encoding.date, encoding.growth
        own: dict = {} if date is None else {"date": str(date)}
        if growth is not None:
            own["grown_from"] = list(growth.ancestors[: 1 if texts.evicted else None])
        if growth is None and encoding.vocabularies:
            id_spaces = known
        else:
            files = [self.folder / text_file(name) for name in sorted(encoding.categorify)]
            id_spaces = [id_space_of(files)] if files else []
            if texts.evicted:
                own |= {"evicted_from": known[0]} if known else {}
            else:
                id_spaces += [known_ids for known_ids in known if known_ids not in id_spaces]
        return own | ({"id_spaces": id_spaces} if id_spaces else {})


def check_metadata(spec: RawSpec) -> None:
    """Raises ValueError where the metadata of raw data would be replaced."""
    if METADATA in spec.metadata:
        raise ValueError(f"{spec.origin}: metadata: '{METADATA}' is written here; rename the key")


def write_spec(final: FeatureSpec, is_interactions: bool, file: Path) -> None:
    """Checks the files of a data set and writes its feature spec."""
    for split in final.source_spec if is_interactions else ():
        check_channels(final, split)
    final.validate_files()
    final.to_yaml(file)
