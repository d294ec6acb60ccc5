"""Reading of the raw rows of a run: their description, tables, splits and label."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from dataloading.spec import rules
from dataloading.spec.data_set_files import ENCODER_FOLDER, METADATA, SPEC_FILE
from dataloading.spec.feature_spec import LABEL_CHANNEL, TEST, TRAIN
from preproc.checks.report import PASSED, Finding
from preproc.checks.telling_columns import SAMPLE_ROWS, dates, telling_columns, useless_columns
from preproc.checks.text_columns import mixed_texts, unsplit_lists
from preproc.encoding.encodings import Label
from preproc.engines.engine import PART, ROW, SPLIT, Engine
from preproc.fitting.infer import IDS, NUMBERS, OTHER, ColumnFacts
from preproc.sources.part_files import find_table
from preproc.transcode.known import KnownData
from preproc.transcode.layout import binned
from preproc.transcode.raw.labels import fit_label
from preproc.transcode.raw.raw_tables import RawTables
from preproc.transcode.raw.roles import (
    column_reasons,
    column_roles,
    inferred_content,
    known_spec,
    read_columns,
)
from preproc.transcode.raw.spec import RawSpec
from preproc.transcode.raw.split import SplitRequest, split_numbers
from preproc.transcode.requested_encodings import categorified
from preproc.transcode.transcode_flags import ROLES, TranscodeOptions


class RawReader:
    """Reads raw rows as the flags request.

    Args:
        known: the earlier data set of --vocabulary.
        missing: spellings of missing values.

    Attributes:
        is_table: whether the input is a table without a feature spec.
        num_columns: of a table without a header; None for others.
        checks: of the columns of a table.
    """

    def __init__(
        self,
        flags: TranscodeOptions,
        engine: Engine,
        known: KnownData | None,
        missing: tuple[str, ...],
    ):
        self._flags, self._engine, self._known = flags, engine, known
        self._missing, self._request = missing, flags.split_request
        spec_file = Path(flags.input) / flags.feature_spec_in
        self.is_table = flags.feature_spec_in == SPEC_FILE and not spec_file.is_file()
        self.num_columns = None if known is None else known.num_columns
        self.checks: list[Finding] = []

    def read(self) -> tuple[RawSpec, RawTables, dict[str, str]]:
        """Returns the description of the rows, their tables, and what was seen of each column whose
        type was inferred, or why a column was left out.

        Raises:
            ValueError: flags, description or rows break a rule.
        """
        return self._read_table() if self.is_table else self._read_spec()

    def _read_spec(self) -> tuple[RawSpec, RawTables, dict[str, str]]:
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
        spec = RawSpec.from_yaml(path)
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
        self._divide(raw, spec.origin, spec.pair)
        if self._known is None:
            self._fit_label(raw, () if spec.is_interactions else spec.channels[LABEL_CHANNEL])
        return spec, raw, {}

    def _read_table(self) -> tuple[RawSpec, RawTables, dict[str, str]]:
        flags, known, origin = self._flags, self._known, self._flags.input
        chunk = find_table(origin, self._engine.store, not flags.no_header)
        if known is not None and flags.no_header:
            known.check_num_columns(len(chunk.columns or ()), origin)
        # The columns of JSON lines are known when they are read.
        table = None if chunk.columns else self._engine.read([chunk], flags.on_bad_line)
        if flags.no_header:
            self.num_columns = len(chunk.columns)
        columns = chunk.columns or tuple(n for n in table.columns if n not in (PART, ROW))
        split, spec, by_role = TRAIN, None, {}
        roles = {role: getattr(flags, role) for role in ROLES}
        if known is None:
            by_role = column_roles(roles, columns, origin)
            pair = (*by_role["user"], *by_role["item"])
        else:
            if role := next((role for role in ROLES if roles[role] is not None), None):
                raise ValueError(
                    f"--{role} and --vocabulary: the columns are those of {known.path}"
                )
            split = TEST if self._request is None and not flags.grow else TRAIN
            spec = known_spec(columns, known.spec, known.derived, split, origin)
            pair = spec.pair
        table = self._engine.read([chunk], flags.on_bad_line) if table is None else table
        raw = RawTables(self._engine, {split: table}, self._missing)
        if not raw.num_rows[split]:
            raise ValueError(
                f"{origin}: has the names of columns and no rows: add rows, or export the table "
                "again"
            )
        self._divide(raw, origin, pair)
        if spec is not None:
            return spec, raw, {}
        self._fit_label(raw, by_role["label"])
        content, inferred = self._infer(raw, by_role, read_columns(by_role, columns))
        return RawSpec.from_content(content, Path(), origin), raw, inferred

    def _infer(
        self, raw: RawTables, by_role: Mapping[str, tuple[str, ...]], names: Sequence[str]
    ) -> tuple[dict, dict[str, str]]:
        """Returns the sections of the feature spec of a table, and what was seen of each column."""
        stated = {*by_role["categorical"], *by_role["numerical"]}
        time = None if self._request is None else self._request.column
        raw.refuse_near_numbers([n for n in names if n not in (*by_role["categorical"], time)])
        choices = raw.choices([n for n in names if n not in stated and n != time])
        facts = {name: raw.facts(names)[name] for name in names}
        free = {n: own for n, own in facts.items() if n not in (*stated, *by_role["keep"], time)}
        kinds = {name: own.kind for name, own in facts.items()}
        kinds |= {name: IDS if own.is_id else NUMBERS for name, own in choices.items()}
        kinds |= dict.fromkeys(by_role["categorical"], IDS)
        kinds |= dict.fromkeys(by_role["numerical"], NUMBERS)
        checks = _useless_columns(raw, free, kinds) if raw.label is not None else []
        self.checks += [*checks, mixed_texts(free), unsplit_lists(free)]
        left_out = {
            name: f"{finding.check}, see the checks"
            for finding in checks
            if finding.level != PASSED
            for name in finding.columns
        }
        reasons = column_reasons(by_role, facts, choices) | left_out
        unused = {name for name, kind in kinds.items() if kind == OTHER} | left_out.keys()
        if time is not None and time not in stated:
            unused.add(time)
            reasons[time] = "divides the rows"
        used = {name: own for name, own in facts.items() if name not in unused}
        return inferred_content(by_role, used, kinds, time), reasons

    def _fit_label(self, raw: RawTables, labels: Sequence[str]) -> None:
        """Fits the label of clicks; that of interactions is 0 or 1."""
        flags = self._flags.positive, self._flags.label_above
        if not labels and flags != (None, None):
            raise ValueError("--positive and --label_above: expected a label of clicks, got none")
        for name in labels:
            raw.label = fit_label(raw, Label(name=name, column=name), *flags)

    def _divide(self, raw: RawTables, origin: str, pair: Sequence[str]) -> None:
        request, table = self._request, raw.tables.get(TRAIN)
        if request is None:
            return
        numbers = split_numbers(self._engine, table, request, self._missing, origin, pair)
        divided = table.mutate(**{SPLIT: numbers})
        # Otherwise each query of a column would group pairs or parse times again.
        is_drawn = request.column is None
        is_costly = bool(pair) if is_drawn else not table[request.column].type().is_integer()
        raw.tables[TRAIN] = self._engine.store_table(divided, "divided") if is_costly else divided


def _useless_columns(
    raw: RawTables, facts: Mapping[str, ColumnFacts], kinds: Mapping[str, str]
) -> list[Finding]:
    """Returns the checks of columns that may be left out, at most one that fails for each."""
    own = {n: facts[n] for n in facts if kinds[n] != OTHER and not facts[n].are_dates}
    rows = raw.tables[TRAIN], own, kinds, raw.missing, raw.most_rows
    checks = useless_columns(raw.engine, *rows)
    failed = {name for check in checks if check.level != PASSED for name in check.columns}
    others = {n: kinds[n] for n in own if n not in failed and not facts[n].list_form}
    sample = raw.train_sample(SAMPLE_ROWS)
    telling = telling_columns(raw.engine, sample, others, raw.label, raw.missing)
    return checks + dates(facts) + telling


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
