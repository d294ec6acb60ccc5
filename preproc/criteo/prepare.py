"""The preparation in titled stages, each of them skipped where an earlier run finished it."""

import sys
import time
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from dataloading.feature_spec import TRAIN, FeatureSpec
from preproc.criteo import data_set
from preproc.criteo.arguments import TRAINING_ROWS, Options
from preproc.criteo.binary_files import NUM_BINS, bin_ids, encode_numericals, sync
from preproc.criteo.duckdb_engine import DayFile, DuckDBEngine, explained_errors
from preproc.criteo.log_files import LogFile, find_log_files
from preproc.criteo.progress import Progress
from preproc.criteo.raw_lines import explain, read_line
from preproc.criteo.splits import Split, split_by_day, split_by_fraction
from preproc.criteo.staging import SPEC_FILE, Staging, check_output, stage_key


@dataclass(frozen=True)
class ParsedLog:
    """A log whose lines have been parsed: its days, and what else later stages depend on."""

    days: tuple[DayFile, ...]
    splits: tuple[Split, ...]
    vocabulary_days: tuple[DayFile, ...]
    vocabulary_rows: int  # only values among the log's first so many rows get ids
    vocabulary_key: str
    rows_key: str
    bad_lines: int


def prepare(options: Options) -> FeatureSpec:
    """Makes the data set `options.output`, under that name only when it is whole.

    Returns:
        the data set's feature spec.

    Raises:
        ValueError: options, input files or lines are wrong, or the memory limit is too small.
        OSError: no space left, among others. What finished stages made is kept for the next run.
    """
    started = time.perf_counter()
    check_output(options.output, options.input, options.overwrite)
    files = find_log_files(options.input, options.days)
    _check_vocabulary_days(options, files)
    with (
        Staging(options.output) as staging,
        DuckDBEngine(
            options.memory_limit_bytes, options.threads, staging.temp_folder(options.temp_dir)
        ) as engine,
        explained_errors(options.memory_limit_bytes),
        Progress(len(files) + 1 + 2 * len(data_set.CATEGORICALS)) as progress,
    ):
        if staging.num_finished:
            print(
                f"going on in {staging.folder}: {staging.num_finished} stages were finished there; "
                "those that other files or options have changed are done again",
                file=sys.stderr,
            )
        stages = _Stages(options, staging, engine, progress)
        log = stages.parse(files)
        clicks = stages.write_numericals(log)
        cardinalities = {
            column: stages.write_categorical(log, column) for column in data_set.CATEGORICALS
        }
        if options.bin_numericals:
            cardinalities |= dict.fromkeys(data_set.BINS, NUM_BINS)
        metadata = _metadata(options, files, log, clicks)
        spec = data_set.feature_spec(staging.data, log.splits, cardinalities, metadata)
        spec.to_yaml(staging.data / SPEC_FILE)
        spec.validate_files()
        staging.publish(data_set.all_files(log.splits, options.bin_numericals))
    print(data_set.summary(options.output, spec, time.perf_counter() - started))
    return FeatureSpec.from_yaml(options.output / SPEC_FILE)


@dataclass(frozen=True)
class _Stages:
    options: Options
    staging: Staging
    engine: DuckDBEngine
    progress: Progress

    def _run(self, name: str, key: str, work, note) -> dict:
        self.progress.start(name)
        result, is_new = self.staging.run(name, key, work)
        self.progress.finish(name, note(result) if is_new else "finished before")
        return result

    def parse(self, files: list[LogFile]) -> ParsedLog:
        """Raw lines -> one Parquet file a day, in input order."""
        keys, counts, paths = [], [], []
        for file in files:
            keys.append(stage_key(file.fingerprint()))
            paths.append(self.staging.days / f"{keys[-1]}.parquet")
            counts.append(self._parse_day(file, keys[-1], paths[-1]))
            if counts[-1]["bad_lines"] and self.options.on_bad_line == "error":
                raise ValueError(_bad_lines_message(file, counts[-1]))
        rows = [count["rows"] for count in counts]
        if not sum(rows):
            raise ValueError(f"--input {self.options.input} holds no rows: every file is empty")
        starts = accumulate(rows[:-1], initial=0)
        days = tuple(DayFile(*day) for day in zip(paths, rows, starts, strict=True))
        splits = tuple(self._split(rows))
        chosen, vocabulary_rows = self._vocabulary_rows(files, rows, splits)
        return ParsedLog(
            days=days,
            splits=splits,
            vocabulary_days=tuple(days[i] for i in chosen),
            vocabulary_rows=vocabulary_rows,
            vocabulary_key=stage_key(
                [keys[i] for i in chosen],
                vocabulary_rows - days[chosen[0]].first_row,
                self.options.frequency_threshold,
            ),
            rows_key=stage_key(keys, [[s.name, s.start, s.stop] for s in splits]),
            bad_lines=sum(count["bad_lines"] for count in counts),
        )

    def _parse_day(self, file: LogFile, key: str, target: Path) -> dict:
        return self._run(
            f"parse {file.name}",
            key,
            lambda: self.engine.parse_day(file.path, target, self.staging.scratch),
            lambda result: f"{result['rows']:,} rows, {result['bad_lines']:,} malformed lines",
        )

    def _split(self, rows: list[int]) -> list[Split]:
        options = self.options
        if options.holdout_fraction is None:
            return split_by_day(rows)
        return split_by_fraction(sum(rows), options.holdout_fraction, options.validation_fraction)

    def _vocabulary_rows(self, files, rows, splits) -> tuple[list[int], int]:
        """Which files' values get ids, and among how many of the log's first rows."""
        days = self.options.vocabulary_days
        if days == TRAINING_ROWS:
            training_rows = next(split.stop for split in splits if split.name == TRAIN)
            starts = accumulate(rows[:-1], initial=0)
            return [i for i, start in enumerate(starts) if start < training_rows], training_rows
        chosen = [i for i, file in enumerate(files) if days is None or file.day in days]
        return chosen, sum(rows[: chosen[-1] + 1])

    def write_numericals(self, log: ParsedLog) -> dict[str, int]:
        """Labels, numericals and their bins -> files; returns the clicks of each split."""
        labels = data_set.label_files(self.staging.data, log.splits)
        numericals = data_set.numerical_files(self.staging.data, log.splits)
        with_bins = self.options.bin_numericals
        bins = data_set.bin_files(self.staging.data, log.splits) if with_bins else []
        files = [labels, numericals, *bins]

        def work() -> dict[str, int]:
            for file in files:
                file.create()
            clicks = dict.fromkeys((split.name for split in log.splits), 0)
            for day in log.days:
                for rows, label, values in self.engine.numerical_blocks(day):
                    labels.write(rows, label.astype(bool))
                    numericals.write(rows, encode_numericals(values))
                    for i, file in enumerate(bins):
                        file.write(rows, bin_ids(values[:, i]))
                    for split in log.splits:
                        inside = (rows >= split.start) & (rows < split.stop)
                        clicks[split.name] += int(np.sum(label, where=inside, dtype=np.int64))
            for file in files:
                file.sync()
            return clicks

        return self._run(
            "write labels and numericals",
            stage_key(log.rows_key, "bins") if with_bins else log.rows_key,
            work,
            lambda clicks: f"{sum(clicks.values()):,} clicks",
        )

    def write_categorical(self, log: ParsedLog, column: str) -> int:
        """One column: values -> vocabulary -> ids in its files; returns the cardinality."""
        vocabulary = self.staging.vocabulary / f"{column}.parquet"

        def count() -> dict[str, int]:
            kept = self.engine.count_values(
                column,
                log.vocabulary_days,
                log.vocabulary_rows,
                self.options.frequency_threshold,
                vocabulary,
            )
            return {"values": kept}

        counted = self._run(
            f"count {column}", log.vocabulary_key, count, lambda r: f"{r['values']:,} values kept"
        )
        cardinality = counted["values"] + 1
        files = data_set.categorical_files(self.staging.data, log.splits, column, cardinality)

        def encode() -> dict[str, int]:
            text = self.staging.data / data_set.vocabulary_file(column)
            text.parent.mkdir(exist_ok=True)
            self.engine.write_vocabulary(vocabulary, text)
            sync(text)
            files.create()
            known = 0
            for rows, ids in self.engine.known_ids(column, log.days, vocabulary):
                files.write(rows, ids)
                known += len(rows)
            files.sync()
            return {"known": known}

        self._run(
            f"write {column}",
            stage_key(log.rows_key, log.vocabulary_key),
            encode,
            lambda result: f"{result['known']:,} values known",
        )
        return cardinality


def _check_vocabulary_days(options: Options, files: list[LogFile]) -> None:
    if not isinstance(options.vocabulary_days, tuple):
        return
    there = [file.day for file in files]
    missing = [day for day in options.vocabulary_days if day not in there]
    if missing:
        raise ValueError(
            f"--vocabulary_days names day {missing[0]}, for which --input {options.input} has no "
            f"file; days there: {', '.join(map(str, there))}"
        )


def _bad_lines_message(file: LogFile, counts: dict) -> str:
    number = counts["first_bad_line"]
    reason = explain(read_line(file.path, number))
    lines = "1 malformed line"
    if counts["bad_lines"] > 1:
        lines = f"{counts['bad_lines']:,} malformed lines, the first"
    return (
        f"{lines}: {file.path}, line {number}: {reason}. Mend the file, or leave such lines out "
        "with --on_bad_line skip"
    )


def _metadata(
    options: Options, files: list[LogFile], log: ParsedLog, clicks: dict[str, int]
) -> dict:
    """What the data set was made from; nothing of engines, machines or times, so that every
    engine writes the same."""
    days = options.vocabulary_days
    bins = {"bin_numericals": "1 + floor(2 * log(x + 3))"} if options.bin_numericals else {}
    rows = {split.name: split.num_rows for split in log.splits}
    return {
        "source": "criteo click logs",
        "frequency_threshold": options.frequency_threshold,
        "days": [file.day for file in files if file.day is not None],
        "vocabulary_days": "all" if days is None else list(days) if days != TRAINING_ROWS else days,
        "rows": rows,
        "clicks": clicks,
        "click_rate": {name: round(clicks[name] / rows[name], 6) for name in rows},
        "bad_lines": log.bad_lines,
        **bins,
    }
