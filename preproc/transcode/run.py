"""One run of transcode: raw rows to a data set with its encoder, on any engine."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from dataloading.interactions.stored import check_channels
from dataloading.spec.data_set_files import ENCODER_FOLDER, METADATA
from dataloading.spec.feature_spec import (
    LABEL_CHANNEL,
    TRAIN,
    FeatureSpec,
)
from preproc.checks.drift import moved_columns
from preproc.checks.report import Finding, Report
from preproc.checks.scale import scales
from preproc.checks.unknown_values import GROWN, KNOWN, OWN
from preproc.encoding.arrow_columns import MISSING_VALUES
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import Label
from preproc.encoding.lists import SEPARATOR
from preproc.encoding.vocabulary import Vocabulary
from preproc.engines.engine import Engine
from preproc.fitting.continuous import sample_of
from preproc.fitting.fit import Fit, largest_id
from preproc.transcode.grown_ids import dated, grown_encoder, lineage
from preproc.transcode.known import NUM_COLUMNS, KnownData
from preproc.transcode.layout import stored_layout, with_encoder
from preproc.transcode.per_feature import parse_threshold
from preproc.transcode.raw.interaction_checks import check_interactions
from preproc.transcode.raw.raw_tables import RawTables
from preproc.transcode.raw.spec import RawSpec
from preproc.transcode.raw_reader import RawReader
from preproc.transcode.requested_encodings import feature_requests
from preproc.transcode.row_checks import check_classes, check_listed, repetitions, unknown_values
from preproc.transcode.summary import summary
from preproc.transcode.transcode_flags import TranscodeOptions
from preproc.transcode.write import SplitFacts, write_rows


class Run:
    """A run of transcode.

    Attributes:
        folder: of the data set while it is written.
    """

    def __init__(self, flags: TranscodeOptions, engine: Engine, folder: Path):
        self._flags, self._engine, self._folder = flags, engine, folder
        self._known = None if flags.vocabulary is None else KnownData.read(flags)
        self._missing = flags.missing_values or MISSING_VALUES
        if self._known is not None:
            self._missing = self._known.encoder.missing_values
        self._request = flags.split_request
        self._reader = RawReader(flags, engine, self._known, self._missing)
        parse_threshold(flags.frequency_threshold)  # before hours of reading
        self._checks: list[Finding] = []

    def transcode(self) -> str:
        """Writes the data set; returns a report for people.

        Raises:
            ValueError: a rule of the raw data is broken, and the message names file and row; or a
                check warns, with --strict.
            OSError: a file cannot be written; the message names it.
        """
        spec, raw, seen = self._reader.read()
        self._checks += self._reader.checks
        for split, num_rows in raw.num_rows.items():
            if not num_rows:
                raise ValueError(f"{spec.origin}: source_spec: split '{split}' has no rows")
        for split, table in raw.tables.items() if spec.is_interactions else ():
            check_interactions(self._engine, spec, split, table, self._missing)
        self._checks += repetitions(spec, raw, self._request)
        if self._known is not None:
            for table in raw.tables.values():
                self._checks += moved_columns(self._engine, table, self._known.encoder)
        self._checks += [] if self._reader.is_table else check_listed(spec, raw)
        encoder, grown = self._encoder(spec, raw)
        columns = {"columns": dict(seen)} if seen else {}
        final = self._write(spec, raw, encoder, {**columns, **grown})
        self._checks += check_classes(final, encoder, self._request)
        report = Report(tuple(self._checks))
        report.refuse_warnings(self._flags.strict)
        report.write(self._folder)
        done = summary(spec, encoder, final, seen)
        return f"{done}\n{report.text()}\nwritten: {self._flags.output}"

    def _encoder(self, spec: RawSpec, raw: RawTables) -> tuple[Encoder, dict]:
        known = self._known
        if known is not None and known.ancestors is None:
            return _with_label(spec, known.encoder), {}
        tables = raw.tables.values()

        def size_of(name: str) -> int:
            """Returns the largest plain id of a feature in all splits + 1, at least 1."""
            form = SEPARATOR if spec.hotness(name) > 1 else ""
            sizes = [largest_id(self._engine, t, name, form, self._missing) for t in tables]
            return max(0, *sizes) + 1

        labels = spec.channels[LABEL_CHANNEL]
        columns = [n for n in spec.features if n not in labels and spec.has(raw.fitted, n)]
        lists = [name for name in columns if spec.hotness(name) > 1]
        facts = raw.facts(columns, lists)
        sample = sample_of(raw.train_rows, raw.most_rows)
        fit = Fit(self._engine, self._missing, raw.counts, facts, raw.train_rows, sample)
        if known is None:
            is_table, label = self._reader.is_table, raw.label
            encoder = fit.encoder(feature_requests(spec, self._flags, is_table, size_of, label))
            self._checks += scales(fit.scales, encoder.profile)
            return dated(encoder, self._flags.date), {}
        encoder, grown = grown_encoder(known, fit, size_of, self._flags)
        return _with_label(spec, encoder), grown

    def _write(
        self, spec: RawSpec, raw: RawTables, encoder: Encoder, noted: Mapping
    ) -> FeatureSpec:
        request = self._request
        spec = with_encoder(spec, encoder)
        targets = {split: [split] for split in spec.sources}
        if request is not None:
            targets = {TRAIN: [*request.shares]}
        source_of = {target: split for split, own in targets.items() for target in own}
        layout = stored_layout(spec, source_of, self._folder)
        label = next(iter(spec.channels[LABEL_CHANNEL]), "")
        ids = [f.name for f in encoder.features if isinstance(f, Vocabulary) and f.first_id]
        facts: dict[str, SplitFacts] = {}
        for split, own in targets.items():
            facts |= write_rows(self._engine, raw.tables[split], encoder, layout, own, label, ids)
            for target in own:
                if not facts[target].rows:
                    raise ValueError(
                        f"the split '{target}' has none of the {raw.num_rows[split]:,} rows; "
                        f"possible solutions: {request.remedy}"
                    )
        metadata = self._metadata(spec, raw, encoder, facts, source_of, noted)
        final = FeatureSpec(
            layout.feature_spec, layout.source_spec, layout.channel_spec, metadata,
            self._folder, layout.origin,
        )  # fmt: skip
        for split in source_of if spec.is_interactions else ():
            check_channels(final, split)
        final.validate_files()
        encoder.save(self._folder / ENCODER_FOLDER)
        final.to_yaml(self._folder / self._flags.feature_spec_out)
        return final

    def _metadata(
        self,
        spec: RawSpec,
        raw: RawTables,
        encoder: Encoder,
        facts: Mapping[str, SplitFacts],
        source_of: Mapping[str, str],
        noted: Mapping,
    ) -> dict:
        labels = spec.channels[LABEL_CHANNEL]
        rates = {
            split: own.clicks / own.rows
            for split, own in facts.items()
            if labels and spec.has(source_of[split], labels[0])
        }
        shares = {
            split: {
                name: count / (own.rows * encoder[name].hotness)
                for name, count in own.unknown.items()
            }
            for split, own in facts.items()
        }
        long_lists = dict(sum((own.long_lists for own in facts.values()), Counter()))
        num_columns = self._reader.num_columns
        own = {
            **({} if num_columns is None else {NUM_COLUMNS: num_columns}),
            "rows": {split: facts[split].rows for split in source_of},
            **({} if spec.is_interactions else {"click_rate": rates}),
            "unknown_share": shares,
            **noted,
            **({"long_lists": long_lists} if long_lists else {}),
            **lineage(encoder, self._known, self._flags.date, "evicted" in noted),
        }
        vocabulary = OWN
        if self._known is not None:
            vocabulary = KNOWN if self._known.ancestors is None else GROWN
        rows = {split: own.rows for split, own in facts.items()}
        self._checks += unknown_values(raw, encoder, shares, rows, source_of, vocabulary)
        return {**spec.metadata, METADATA: own, ENCODER_FOLDER: encoder.digest}


def _with_label(spec: RawSpec, encoder: Encoder) -> Encoder:
    """Returns an encoder that has the label; that of interactions without negatives has none."""
    known = {feature.name for feature in encoder.features}
    labels = tuple(
        Label(name=name, column=name, dtype=spec.features[name]["dtype"])
        for name in spec.channels[LABEL_CHANNEL]
        if name not in known
    )
    return dataclasses.replace(encoder, features=encoder.features + labels)
