"""The preparation in titled stages, each of them skipped where an earlier run finished it."""

import contextlib
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path

from pyarrow.parquet import read_metadata

from dataloading.spec.data_set_files import ENCODER_FOLDER, SPEC_FILE
from dataloading.spec.feature_spec import TEST, TRAIN, FeatureSpec
from preproc.checks.report import Report
from preproc.criteo.column_encodings import (
    BINS,
    CATEGORICALS,
    MISSING_VALUES,
    NUM_BINS,
    all_encodings,
)
from preproc.criteo.engines import open_engine
from preproc.criteo.engines.engine_interface import CategoricalColumn, CriteoEngine, DayFile
from preproc.criteo.known_values import KnownValues
from preproc.criteo.log_checks import check_log
from preproc.criteo.log_files import LogFile, find_log_files, fingerprint
from preproc.criteo.options import TRAINING_ROWS, CriteoOptions
from preproc.criteo.output import data_set
from preproc.criteo.output.binary_files import ColumnFiles, SplitLayout
from preproc.criteo.output.output_order import OutputOrder, output_order
from preproc.criteo.output.splits import Split, split_by_day, split_by_fraction
from preproc.criteo.raw_lines import explain, has_labels, read_line
from preproc.encoding.encoder_folder import complete, vocabulary_file
from preproc.engines.bad_lines import BadLine, BadLines, check_bad_lines
from runtime.files.outputs import DATA_SET, check_folder
from runtime.files.staging import Staging, stage_key

TOOL = "preproc.criteo"
# Name, key and files of a stage, see `Staging`.
_Stage = tuple[str, str, list[Path]]


@dataclass(frozen=True)
class ParsedLog:
    """A log whose lines have been parsed: its days, and what else later stages depend on."""

    days: tuple[DayFile, ...]
    splits: tuple[Split, ...]
    order: OutputOrder
    vocabulary_days: tuple[DayFile, ...]
    vocabulary_rows: int  # only values among this number of the log's first rows get ids
    vocabulary_key: str
    rows_key: str
    bad_lines: int


def prepare(options: CriteoOptions) -> FeatureSpec:
    """Makes the data set `options.output`, under that name only when it is whole.

    Raises:
        ValueError: options, input files or lines are wrong, or the memory limit is too small.
        OSError: no space left, among others. What finished stages made is kept for the next run.
    """
    started = time.perf_counter()
    read = list(filter(None, (options.input, options.vocabulary)))
    check_folder(options.output, DATA_SET, options.overwrite, read)
    files = find_log_files(options.input, options.days)
    _check_vocabulary_days(options, files)
    known = KnownValues.from_data_set(options.vocabulary) if options.encode_only else None
    with_bins = options.bin_numericals if known is None else known.with_bins
    # Whether labels are there is read off the first line: of new rows they may be unknown.
    with_labels = known is None or has_labels([file.path for file in files])
    with (
        Staging(options.output, TOOL, DATA_SET, options.overwrite, read) as staging,
        open_engine(
            options, staging.temp_folder(options.temp_dir), staging.scratch, with_labels
        ) as engine,
        engine.explained_errors(),
    ):
        if staging.num_finished:
            print(
                f"resuming in {staging.folder}: {staging.num_finished} stages were finished there; "
                "those that other files or options have changed are done again",
                file=sys.stderr,
            )
        num_stages = len(files) + (1 if known else len(CATEGORICALS))
        if not options.vocabulary_only:
            num_stages += 1 + len(CATEGORICALS)  # numerical features, ids
        stages = _Stages(options, staging, engine, known, with_labels, with_bins, num_stages)
        log = stages.parse(files)
        clicks = None if options.vocabulary_only else stages.write_numericals(log)
        columns = stages.make_vocabularies(log)
        digest, cardinalities = stages.complete_encoder(columns)
        if not options.vocabulary_only:
            stages.write_ids(log, columns, cardinalities)
        metadata = _metadata(stages, files, log, clicks) | {ENCODER_FOLDER: digest}
        splits = () if options.vocabulary_only else log.splits
        spec = data_set.feature_spec(
            staging.data, splits, cardinalities, metadata, with_labels=with_labels
        )
        spec.to_yaml(staging.data / SPEC_FILE)
        spec.validate_files()
        report = Report()
        if not options.vocabulary_only:
            report = Report(tuple(check_log(spec, known and known.spec, with_labels)))
        report.refuse_warnings(options.strict)
        report.write(staging.data)
        staging.publish(data_set.all_files(splits, with_labels=with_labels, with_bins=with_bins))
    elapsed_s = time.perf_counter() - started
    if options.vocabulary_only:
        print(f"{options.output} has the vocabulary of {sum(metadata['rows'].values()):,} rows")
    else:
        print(data_set.summary(options.output, spec, elapsed_s), report.text(), sep="\n")
    return FeatureSpec.from_yaml(options.output / SPEC_FILE)


@dataclass(frozen=True)
class _Stages:
    options: CriteoOptions
    staging: Staging
    engine: CriteoEngine
    known: KnownValues | None  # where ids are given already
    with_labels: bool
    with_bins: bool
    num_stages: int
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))  # of stages

    def _run(self, stage: _Stage, work, note) -> dict:
        """Returns the result of a stage; reports it on stderr."""
        return self._run_all([stage], lambda _: [work()], note)[0]

    def _run_all(self, stages: list[_Stage], work, note) -> list[dict]:
        """Returns the results of stages that run together (`run_all`); reports each."""
        started = time.perf_counter()
        results = self.staging.run_all(stages, work)
        num_new = sum(is_new for _, is_new in results)
        elapsed = f"{time.perf_counter() - started:.1f} s"
        if num_new > 1:
            elapsed = f"{num_new} stages in {elapsed}"
        for (name, *_), (result, is_new) in zip(stages, results, strict=True):
            progress = f"{next(self.numbers)}/{self.num_stages}"
            text = note(result) if is_new else "finished before"
            print(f"[{progress}] {name}: {text}, {elapsed}", file=sys.stderr, flush=True)
        return [result for result, _ in results]

    def parse(self, files: list[LogFile]) -> ParsedLog:
        keys, counts, paths = [], [], []
        for file in files:
            unlabelled = [] if self.with_labels else ["no labels"]
            keys.append(stage_key(self.engine.name, fingerprint(file.path), *unlabelled))
            paths.append(self.staging.part("days") / f"{keys[-1]}.parquet")
            counts.append(
                self._run(
                    (f"parse {file.name}", keys[-1], [paths[-1]]),
                    partial(self.engine.parse_day, file.path, paths[-1], self.staging.scratch),
                    lambda day: f"{day['rows']:,} rows, {day['bad_lines']:,} malformed lines",
                )
            )
            count = counts[-1]
            if line := count["first_bad_line"]:
                rule = explain(read_line(file.path, line), self.with_labels)
                bad = BadLines(count["bad_lines"], (BadLine(0, line, line, str(rule)),))
                names = [str(file.path)]
                check_bad_lines(bad, count["rows"], names, self.options.on_bad_line)
        rows = [count["rows"] for count in counts]
        bad_lines = sum(count["bad_lines"] for count in counts)
        if not sum(rows):
            raise ValueError(
                f"--input {self.options.input} holds no rows: expected at least one line that is "
                "not blank"
            )
        starts = accumulate(rows[:-1], initial=0)
        days = tuple(DayFile(*day) for day in zip(paths, rows, starts, strict=True))
        splits = tuple(self._split(rows))
        order = output_order(self.options.output_ordering, self.options.seed, splits, rows)
        chosen, vocabulary_rows = self._vocabulary_rows(files, rows, splits)
        return ParsedLog(
            days=days,
            splits=splits,
            order=order,
            vocabulary_days=tuple(days[i] for i in chosen),
            vocabulary_rows=vocabulary_rows,
            vocabulary_key=stage_key(
                [keys[i] for i in chosen], vocabulary_rows - days[chosen[0]].first_row
            ),
            rows_key=stage_key(
                keys, [[s.name, s.start, s.stop] for s in splits], order.runs, order.seed
            ),
            bad_lines=bad_lines,
        )

    def _split(self, rows: list[int]) -> list[Split]:
        options = self.options
        if self.known is not None:
            return [Split(TEST, 0, sum(rows))]
        if options.vocabulary_only:
            return [Split(TRAIN, 0, sum(rows))]
        if options.holdout_fraction is None:
            return split_by_day(rows)
        return split_by_fraction(sum(rows), options.holdout_fraction, options.validation_fraction)

    def _vocabulary_rows(self, files, rows, splits) -> tuple[list[int], int]:
        """Returns the files whose values get ids, and the number of rows to count."""
        days = self.options.vocabulary_days
        if days == TRAINING_ROWS:
            training_rows = next(split.stop for split in splits if split.name == TRAIN)
            starts = accumulate(rows[:-1], initial=0)
            return [i for i, start in enumerate(starts) if start < training_rows], training_rows
        chosen = [i for i, file in enumerate(files) if days is None or file.day in days]
        return chosen, sum(rows[: chosen[-1] + 1])

    def write_numericals(self, log: ParsedLog) -> dict[str, int]:
        """Labels, numerical features and their bins -> files; returns the clicks of each split."""
        encoded = data_set.numerical_files(
            SplitLayout(self.staging.data, log.splits, log.order),
            with_labels=self.with_labels,
            with_bins=self.with_bins,
        )

        def work() -> dict[str, int]:
            with self._created(encoded.files):
                nonzero = self.engine.write_numericals(log.days, encoded)
            return {s.name: nonzero.get(s.name, 0) for s in log.splits if self.with_labels}

        return self._run(
            (
                "write labels and numerical features",
                stage_key(log.rows_key, "bins") if self.with_bins else log.rows_key,
                [path for file in encoded.files for path in file.paths],
            ),
            work,
            lambda clicks: f"{sum(clicks.values()):,} clicks",
        )

    @contextlib.contextmanager
    def _created(self, files: Sequence[ColumnFiles]) -> Iterator[None]:
        """Creates files, which are on the disk afterwards."""
        for file in files:
            file.create()
        yield
        for file in files:
            file.sync()

    def make_vocabularies(self, log: ParsedLog) -> list[CategoricalColumn]:
        """Counts values, or takes over known ones; returns the columns, without files."""
        folder = self.staging.data / ENCODER_FOLDER
        columns = [
            CategoricalColumn(name, self._threshold(i), vocabulary_file(folder, name))
            for i, name in enumerate(CATEGORICALS)
        ]
        columns[0].vocabulary.parent.mkdir(parents=True, exist_ok=True)
        if self.known is not None:
            self._run(
                (
                    "copy the vocabularies",
                    stage_key([fingerprint(path) for path in self.known.vocabularies]),
                    [column.vocabulary for column in columns],
                ),
                lambda: self.known.copy(self.staging.data) or {},
                lambda _: f"{len(columns)} columns",
            )
            return columns
        stages = [
            (f"count {c.name}", stage_key(log.vocabulary_key, c.threshold), [c.vocabulary])
            for c in columns
        ]

        def count(places: list[int]) -> list[dict[str, int]]:
            chosen = [columns[i] for i in places]
            sizes = self.engine.count_columns(chosen, log.vocabulary_days, log.vocabulary_rows)
            return [{"values": size} for size in sizes]

        self._run_columns(stages, count, lambda result: f"{result['values']:,} values kept")
        return columns

    def _threshold(self, column: int) -> int:
        if self.known is not None:
            return self.known.threshold(CATEGORICALS[column])
        return self.options.threshold(column)

    def complete_encoder(self, columns: list[CategoricalColumn]) -> tuple[str, dict[str, int]]:
        """Writes what the encoder has apart from vocabularies; returns its digest, and the
        cardinalities of the categorical features."""
        sizes = {column.name: read_metadata(column.vocabulary).num_rows for column in columns}
        thresholds = {column.name: column.threshold for column in columns}
        encodings = all_encodings(sizes, thresholds, with_bins=self.with_bins)
        folder = self.staging.data / ENCODER_FOLDER
        digest = complete(folder, encodings, MISSING_VALUES, {})
        if self.known is not None and digest != self.known.digest:
            raise self.known.damaged(f"the encoder {self.known.digest or 'of its spec'}", digest)
        bins = dict.fromkeys(BINS if self.with_bins else (), NUM_BINS)
        return digest, {name: 1 + size for name, size in sizes.items()} | bins

    def write_ids(
        self, log: ParsedLog, columns: list[CategoricalColumn], cardinalities: dict[str, int]
    ) -> None:
        """Writes the ids of the categorical columns."""
        layout = SplitLayout(self.staging.data, log.splits, log.order)
        columns = [
            replace(c, files=data_set.categorical_files(layout, c.name, cardinalities[c.name]))
            for c in columns
        ]

        def encode(places: list[int]) -> list[dict[str, int]]:
            chosen = [columns[i] for i in places]
            with self._created([column.files for column in chosen]):
                known = self.engine.write_columns(chosen, log.days)
            return [{"known": num_rows} for num_rows in known]

        keys = log.vocabulary_key if self.known is None else self.known.digest
        stages = [
            (f"write {c.name}", stage_key(log.rows_key, keys, c.threshold), c.files.paths)
            for c in columns
        ]
        self._run_columns(stages, encode, lambda result: f"{result['known']:,} values known")

    def _run_columns(self, stages: list[_Stage], work, note) -> None:
        """Runs a stage for each column, all of them together if the engine has them in one pass."""
        size = len(stages) if self.engine.columns_at_once else 1
        for start in range(0, len(stages), size):

            def work_from(places: list[int], start: int = start) -> list[dict]:
                return work([start + i for i in places])

            self._run_all(stages[start : start + size], work_from, note)


def _check_vocabulary_days(options: CriteoOptions, files: list[LogFile]) -> None:
    days = options.vocabulary_days if isinstance(options.vocabulary_days, tuple) else ()
    there = [file.day for file in files]
    for day in days:
        if day not in there:
            names = ", ".join(file.name for file in files)
            raise ValueError(
                f"--vocabulary_days names day {day}, which is not among the files to prepare: "
                f"{names}; add it there (of a single file, use --vocabulary_days {TRAINING_ROWS})"
            )


def _metadata(
    stages: _Stages, files: list[LogFile], log: ParsedLog, clicks: dict[str, int] | None
) -> dict:
    options = stages.options
    rows = {split.name: split.num_rows for split in log.splits}
    if stages.known is None:
        days = options.vocabulary_days
        columns = {CATEGORICALS[i]: limit for i, limit in options.column_thresholds}
        vocabulary = {
            "frequency_threshold": options.frequency_threshold,
            **({"column_thresholds": columns} if columns else {}),
            "vocabulary_days": list(days) if isinstance(days, tuple) else days or "all",
        }
    else:
        vocabulary = stages.known.metadata()
    metadata = {
        "source": "criteo click logs",
        **vocabulary,
        "days": [file.day for file in files if file.day is not None],
        "rows": rows,
        "bad_lines": log.bad_lines,
    }
    if stages.with_labels and clicks is not None:
        metadata["clicks"] = clicks
        metadata["click_rate"] = {name: round(clicks[name] / rows[name], 6) for name in rows}
    if stages.with_bins:
        metadata["bin_numericals"] = "1 + floor(2 * log(x + 3))"
    if not log.order.is_sequential:
        metadata["output_ordering"] = options.output_ordering
        metadata["seed"] = options.seed
    return metadata
