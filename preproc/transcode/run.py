"""One run of transcode: raw rows to a data set with its encoder, on any engine."""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from dataloading.interactions.stored import check_channels
from dataloading.spec import rules, yaml_io
from dataloading.spec.data_set_files import ENCODER_FOLDER, METADATA, SPEC_FILE
from dataloading.spec.feature_spec import (
    ITEM_CHANNEL,
    LABEL_CHANNEL,
    TEST,
    TRAIN,
    USER_CHANNEL,
    FeatureSpec,
)
from preproc.arguments import parse_missing
from preproc.checks.drift import moved_columns
from preproc.checks.left_out import left_out_columns
from preproc.checks.mixed_texts import mixed_texts
from preproc.checks.one_class import one_class
from preproc.checks.repeated_rows import repeated_rows
from preproc.checks.report import PASSED, Check, Report
from preproc.checks.scale import scales
from preproc.checks.telling_columns import telling_columns
from preproc.checks.unknown_values import GROWN, KNOWN, OWN, unknown_values
from preproc.checks.unsplit_lists import unsplit_columns
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import Identity, Label
from preproc.encoding.lists import SEPARATOR
from preproc.encoding.vocabulary import Vocabulary
from preproc.engines.engine import PART, ROW, Engine
from preproc.fitting.continuous import sample_of
from preproc.fitting.fit import Fit, largest_id
from preproc.fitting.infer import IDS, NUMBERS
from preproc.fitting.scale import Scale
from preproc.sources.files import find_table
from preproc.transcode.arguments import ROLES, parse_label, parse_threshold
from preproc.transcode.growth import dated, grown_encoder, lineage
from preproc.transcode.known import NUM_COLUMNS, KnownData
from preproc.transcode.layout import binned, stored_layout, with_encoder
from preproc.transcode.raw.interactions import check_interactions
from preproc.transcode.raw.labels import fit_label
from preproc.transcode.raw.roles import column_roles, inferred_content, known_content, read_columns
from preproc.transcode.raw.spec import RawSpec
from preproc.transcode.raw.split import SplitRequest, parse_split, split_numbers
from preproc.transcode.raw.tables import RawTables
from preproc.transcode.requests import categorified, feature_requests
from preproc.transcode.summary import summary
from preproc.transcode.write import SPLIT, SplitFacts, write_rows


class Run:
    """A run of transcode.

    Attributes:
        folder: of the data set while it is written.
    """

    def __init__(self, flags: argparse.Namespace, engine: Engine, folder: Path):
        self._flags, self._engine, self._folder = flags, engine, folder
        self._known = None if flags.vocabulary is None else KnownData.read(flags)
        self._missing = parse_missing(flags.missing_values)
        if self._known is not None:
            self._missing = self._known.encoder.missing_values
        self._request = parse_split(flags)
        self._label_flags = parse_label(flags)
        parse_threshold(flags.frequency_threshold)  # before hours of reading
        self._checks: list[Check] = []
        self._scales: Mapping[str, Scale] = {}
        self._num_columns = None if self._known is None else self._known.num_columns
        spec_file = Path(flags.input) / flags.feature_spec_in
        self._is_table = flags.feature_spec_in == SPEC_FILE and not spec_file.is_file()

    def transcode(self) -> str:
        """Writes the data set; returns a report for people.

        Raises:
            ValueError: a rule of the raw data is broken, and the message names file and row; or a
                check warns, with --strict.
            OSError: a file cannot be written; the message names it.
        """
        spec, raw, inferred = self._read_table() if self._is_table else self._read_spec()
        for split, num_rows in raw.num_rows.items():
            if not num_rows:
                raise ValueError(f"{spec.origin}: source_spec: split '{split}' has no rows")
        for split, table in raw.tables.items() if spec.is_interactions else ():
            check_interactions(self._engine, spec, split, table, self._missing)
        self._check_repetitions(spec, raw)
        self._check_listed(spec, raw)
        if self._known is not None:
            for table in raw.tables.values():
                self._checks += moved_columns(self._engine, table, self._known.encoder)
        encoder, grown = self._encoder(spec, raw)
        final = self._write(spec, raw, encoder, grown)
        self._check_classes(final, encoder)
        report = Report(tuple(self._checks))
        report.refuse_warnings(self._flags.strict)
        report.write(self._folder)
        done = summary(spec, encoder, final, self._scales)
        done += f"\n{report.text()}\nwritten: {self._flags.output}"
        return f"{inferred}\n\n{done}" if inferred else done

    def _read_spec(self) -> tuple[RawSpec, RawTables, str]:
        flags = self._flags
        for role in ROLES:
            if getattr(flags, role) is not None:
                raise ValueError(
                    f"--{role} describes a column of a table without a feature spec; the columns "
                    f"of {flags.input} are described by {flags.feature_spec_in}"
                )
        path = Path(flags.input) / flags.feature_spec_in
        if flags.no_header:
            raise ValueError(
                f"--no_header: 'header' of the chunks in {path} states it; leave it out"
            )
        spec = RawSpec.from_content(yaml_io.read_mapping(path), path.parent, str(path))
        _check_splits(spec, self._request)
        for key in (METADATA, ENCODER_FOLDER):
            if key in spec.metadata:
                raise ValueError(f"{spec.origin}: metadata: '{key}' is written here; rename it")
        if flags.grow and TRAIN not in spec.sources:
            raise ValueError(
                f"--grow counts new values in the split '{TRAIN}'; {spec.origin} has "
                f"{rules.listing(spec.sources)}"
            )
        if self._known is None:
            categorified(spec, flags, False)
        else:
            spec = spec.with_ids(binned(self._known.encoder))
            spec = spec.as_in(self._known.spec, self._known.derived)
        tables = {
            split: self._engine.read(spec.located(split), flags.on_bad_line)
            for split in spec.sources
        }
        raw = RawTables(self._engine, tables, self._missing)
        self._divide(raw, spec.origin, _pair(spec.channels))
        if self._known is None:
            self._fit_label(raw, () if spec.is_interactions else spec.channels[LABEL_CHANNEL])
        return spec, raw, ""

    def _read_table(self) -> tuple[RawSpec, RawTables, str]:
        flags, known, request = self._flags, self._known, self._request
        chunk = find_table(flags.input, self._engine.store, not flags.no_header)
        if known is not None and flags.no_header:
            known.check_num_columns(len(chunk.columns or ()), flags.input)
        # The columns of JSON lines are known when they are read.
        table = None if chunk.columns else self._engine.read([chunk], flags.on_bad_line)
        if flags.no_header:
            self._num_columns = len(chunk.columns)
        columns = chunk.columns or tuple(n for n in table.columns if n not in (PART, ROW))
        roles = {role: getattr(flags, role) for role in ROLES}
        if known is not None:
            for role in ROLES:
                if roles[role] is not None:
                    raise ValueError(
                        f"--{role} and --vocabulary: the columns are those of {known.path}"
                    )
            split = TEST if request is None and not flags.grow else TRAIN
            content = known_content(columns, known.spec, known.derived, split, flags.input)
            spec = RawSpec.from_content(content, Path(), flags.input)
            spec = spec.as_in(known.spec, known.derived)
            table = self._engine.read([chunk], flags.on_bad_line) if table is None else table
            raw = RawTables(self._engine, {split: table}, self._missing)
            self._divide(raw, flags.input, _pair(spec.channels))
            return spec, raw, ""
        by_role = column_roles(roles, columns, flags.input)
        table = self._engine.read([chunk], flags.on_bad_line) if table is None else table
        raw = RawTables(self._engine, {TRAIN: table}, self._missing)
        if not raw.num_rows[TRAIN]:
            raise ValueError(
                f"{flags.input}: has the names of columns and no rows: add rows, or export the "
                "table again"
            )
        self._divide(raw, flags.input, (*by_role["user"], *by_role["item"]))
        self._fit_label(raw, by_role["label"])
        content, inferred = self._infer(raw, by_role, read_columns(by_role, columns))
        return RawSpec.from_content(content, Path(), flags.input), raw, inferred

    def _infer(
        self, raw: RawTables, by_role: Mapping[str, tuple[str, ...]], names: Sequence[str]
    ) -> tuple[dict, str]:
        """Returns the sections of the feature spec of a table, and the spec for people."""
        stated = {*by_role["categorical"], *by_role["numerical"]}
        time = None if self._request is None else self._request.column
        raw.refuse_near_numbers([n for n in names if n not in (*by_role["categorical"], time)])
        choices = raw.choices([n for n in names if n not in stated and n != time])
        facts = {name: raw.facts(names)[name] for name in names}
        free = {n: own for n, own in facts.items() if n not in (*stated, *by_role["keep"], time)}
        checks = left_out_columns(raw, free, choices) if raw.label is not None else []
        self._checks += [*checks, mixed_texts(free), unsplit_columns(free)]
        left_out = {
            check.column: f"{check.name}, see the checks"
            for check in checks
            if check.level != PASSED
        }
        return inferred_content(by_role, facts, choices, time, left_out)

    def _fit_label(self, raw: RawTables, labels: Sequence[str]) -> None:
        """Fits the label of clicks; that of interactions is 0 or 1."""
        if not labels and any(value is not None for value in self._label_flags):
            raise ValueError("--positive and --label_above: expected a label of clicks, got none")
        for name in labels:
            raw.label = fit_label(raw, Label(name=name, column=name), self._label_flags)

    def _divide(self, raw: RawTables, origin: str, pair: Sequence[str]) -> None:
        if self._request is None:
            return
        table = raw.tables[TRAIN]
        request, missing = self._request, self._missing
        numbers = split_numbers(self._engine, table, request, missing, origin, pair)
        divided = table.mutate(**{SPLIT: numbers})
        is_by_pair = pair and request.column is None
        raw.tables[TRAIN] = self._engine.store_table(divided, "divided") if is_by_pair else divided

    def _check_listed(self, spec: RawSpec, raw: RawTables) -> None:
        """Looks for columns that predict the label alone among those that a feature spec lists."""
        label = raw.label
        if self._is_table or TRAIN not in raw.tables or label is None:
            return
        if not spec.has(TRAIN, label.name):
            return
        kinds = {
            name: IDS if name in spec.ids else NUMBERS
            for name in spec.features
            if name != label.name and spec.has(TRAIN, name) and spec.hotness(name) == 1
        }
        facts = (kinds, label, self._missing, raw.most_rows)
        self._checks += telling_columns(self._engine, raw.train_rows, *facts, is_left_out=False)

    def _check_repetitions(self, spec: RawSpec, raw: RawTables) -> None:
        """Looks for rows of train in other splits; lists of candidates repeat pairs."""
        label = next(iter(spec.channels[LABEL_CHANNEL]), None)
        request = self._request
        names = [*(spec.sources if request is None else request.shares)]
        names.sort(key=lambda name: name != TRAIN)  # train first
        in_all = set.intersection(*(set(table.columns) for table in raw.tables.values()))
        if TRAIN not in raw.tables or len(names) < 2 or (spec.is_interactions and label):
            return
        columns = _pair(spec.channels) or [n for n in spec.features if n in in_all and n != label]
        if not columns or (label is not None and label not in in_all):
            return
        rows = raw.numbered([*columns, *filter(None, [label])])
        facts = (columns, label, sum(raw.num_rows.values()), request is not None)
        self._checks.append(repeated_rows(self._engine, rows, names, *facts))

    def _check_classes(self, written: FeatureSpec, encoder: Encoder) -> None:
        """Looks for splits of clicks with one class only."""
        own = written.metadata[METADATA]
        rates = own.get("click_rate", {})
        divided_by = "" if self._request is None else "split"
        if self._request is not None and self._request.column is not None:
            divided_by = "split_by_time"
        for label in [f for f in encoder.features if isinstance(f, Label)]:
            self._checks += one_class(own["rows"], rates, label, divided_by)

    def _encoder(self, spec: RawSpec, raw: RawTables) -> tuple[Encoder, dict]:
        known = self._known
        if known is not None and known.growth is None:
            return _with_label(spec, known.encoder), {}
        if known is None:
            plain = {*spec.ids} - {*categorified(spec, self._flags, self._is_table)}
            stated = {name: spec.features[name].get("cardinality") for name in plain}
        else:
            plain = {f.name for f in known.encoder.features if isinstance(f, Identity)}
            stated = dict.fromkeys(plain)
        sizes = {name: size or self._size(spec, name, raw) for name, size in stated.items()}
        fitted = TRAIN if TRAIN in raw.tables else next(iter(raw.tables))
        labels = spec.channels[LABEL_CHANNEL]
        columns = [n for n in spec.features if n not in labels and spec.has(fitted, n)]
        lists = [name for name in columns if spec.hotness(name) > 1]
        facts = raw.facts(columns, lists)
        sample = sample_of(raw.train_rows, raw.most_rows)
        fit = Fit(self._engine, self._missing, raw.counts, facts, raw.train_rows, sample)
        if known is None:
            requests = feature_requests(spec, self._flags, self._is_table, sizes, raw.label)
            encoder = fit.encoder(requests)
            self._scales = fit.scales
            self._checks += scales(fit.scales, encoder.profile)
            return dated(encoder, self._flags.date), {}
        encoder, grown = grown_encoder(known, fit, sizes, self._flags)
        return _with_label(spec, encoder), grown

    def _size(self, spec: RawSpec, name: str, raw: RawTables) -> int:
        """Returns the largest plain id of a feature in all splits + 1, at least 1."""
        largest = 0
        for table in raw.tables.values():
            form = SEPARATOR if spec.hotness(name) > 1 else ""
            form = "list" if table[name].type().is_array() else form
            own = largest_id(self._engine, table, name, form, self._missing)
            largest = max(largest, own)
        return largest + 1

    def _write(
        self, spec: RawSpec, raw: RawTables, encoder: Encoder, grown: Mapping
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
        metadata = self._metadata(spec, raw, encoder, facts, source_of, grown)
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
        grown: Mapping,
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
        long_lists: dict[str, int] = {}
        for own in facts.values():
            for name, count in own.long_lists.items():
                long_lists[name] = long_lists.get(name, 0) + count
        num_columns = self._num_columns
        own = {
            **({} if num_columns is None else {NUM_COLUMNS: num_columns}),
            "rows": {split: facts[split].rows for split in source_of},
            **({} if spec.is_interactions else {"click_rate": rates}),
            "unknown_share": shares,
            **grown,
            **({"long_lists": long_lists} if long_lists else {}),
            **lineage(encoder, self._known, self._flags.date, "evicted" in grown),
        }
        vocabulary = OWN
        if self._known is not None:
            vocabulary = KNOWN if self._known.growth is None else GROWN
        rows = {split: own.rows for split, own in facts.items()}
        self._checks += unknown_values(
            self._engine, raw, encoder, shares, rows, source_of, vocabulary
        )
        return {**spec.metadata, METADATA: own, ENCODER_FOLDER: encoder.digest}


def _pair(channels: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the features of user and item of interactions; none of clicks."""
    return (*channels.get(USER_CHANNEL, ()), *channels.get(ITEM_CHANNEL, ()))


def _with_label(spec: RawSpec, encoder: Encoder) -> Encoder:
    """Returns an encoder that has the label; that of interactions without negatives has none."""
    known = {feature.name for feature in encoder.features}
    labels = [
        Label(name=name, column=name, dtype=spec.features[name]["dtype"])
        for name in spec.channels[LABEL_CHANNEL]
        if name not in known
    ]
    return (
        dataclasses.replace(encoder, features=(*encoder.features, *labels)) if labels else encoder
    )


def _check_splits(spec: RawSpec, split: SplitRequest | None) -> None:
    if split is None:
        return
    if tuple(spec.sources) != (TRAIN,):
        raise ValueError(
            f"--split divides the rows of '{TRAIN}': expected no other split in {spec.origin}, "
            f"got {rules.listing(spec.sources)}"
        )
    if spec.is_interactions and spec.channels[LABEL_CHANNEL]:
        raise ValueError(
            "--split: expected interactions without a label, for which negatives are drawn; "
            f"{spec.origin} has the label '{spec.channels[LABEL_CHANNEL][0]}', and rows of one "
            "candidate lists must stay together: divide them yourself"
        )
