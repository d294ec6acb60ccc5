"""Fits an encoder to the training rows: Ibis expressions on the different values of each column."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import ibis
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import FeatureEncoding, HashBuckets, Label
from preproc.encoding.numbers import MEAN, Bins, Number
from preproc.encoding.profile import MAX_VALUES, ColumnProfile
from preproc.encoding.vocabulary import Vocabulary
from preproc.engines.engine import Engine, count_rows, fetch_row
from preproc.fitting import distribution
from preproc.fitting.expressions import lists, number, text
from preproc.fitting.infer import COUNT, VALUE, ColumnFacts, count_values
from preproc.fitting.transformation import (
    AUTO,
    BINS,
    LOG,
    NONE,
    NUM_STEPS,
    QUANTILE,
    STANDARDIZE,
    Scale,
    scale_of,
)  # fmt: skip

_NUM_QUANTILES = 1000
_NUM_BINS = 64
_MOST_FREQUENT = 20
_LEAST, _MOST = 2, 10  # thresholds of automatic vocabularies
_VALUES_PER_OCCURRENCE = 500  # in train, for each occurrence that a value needs
_MANY_SINGLE = 0.1  # from this share of values that occur once on, new values are common


@dataclass(frozen=True)
class NumberRequest:
    """Number to fit, of the column of its name.

    Attributes:
        dtype: stored dtype; of `BINS`, the smallest that holds the ids.
        hotness: values per row.
        transformation: one of `TRANSFORMATIONS`.
        fill: replaces missing numbers: `MEAN` or a number; None: they are errors. The mean is the
            median where `AUTO` chooses another transformation than `STANDARDIZE`.
        indicator: name of the feature that marks missing values, if train has some.
    """

    name: str
    dtype: str
    hotness: int
    transformation: str
    fill: str | float | None
    indicator: str | None


@dataclass(frozen=True)
class VocabularyRequest:
    """Vocabulary to fit, of the column of its name.

    Attributes:
        dtype: stored dtype; empty: the smallest that holds the ids.
        hotness: values per row.
        threshold: occurrences that a value needs for an id; None: `automatic_threshold`.
    """

    name: str
    dtype: str
    hotness: int
    threshold: int | None


Request = NumberRequest | VocabularyRequest | FeatureEncoding


@dataclass
class Fit:
    """Fits encodings.

    Attributes:
        counts, facts: see `infer`, by column.
        rows, sample: training rows, and those of `infer.sample_of`.
        profiles, scales: of the columns and features that were fitted.
    """

    engine: Engine
    missing: tuple[str, ...]
    counts: Callable[[str], ir.Table]
    facts: Mapping[str, ColumnFacts]
    rows: ir.Table
    sample: ir.Table
    profiles: dict[str, ColumnProfile] = field(default_factory=dict)
    scales: dict[str, Scale] = field(default_factory=dict)

    def encoder(self, requests: Sequence[Request]) -> Encoder:
        """Returns the encoder of all features, in order; encodings are those that need no fitting.

        Raises:
            ValueError: a feature has no value in train that a mean or a scale could be taken of.
        """
        features = tuple(map(self._feature, requests))
        return Encoder(features, self.missing, self.profiles)

    def _feature(self, request: Request) -> FeatureEncoding:
        if isinstance(request, NumberRequest):
            return self._number(request)
        if isinstance(request, VocabularyRequest):
            return self._vocabulary(request)
        if not isinstance(request, Label):
            self.profiles[request.column] = ColumnProfile(self._num_values(request), 0)
        if isinstance(request, HashBuckets):
            return replace(request, is_integer=self._is_integer(request.column))
        return request

    def _number(self, request: NumberRequest) -> Number | Bins:
        numbers, ranked = self._numbers(request.name)
        transformation = request.transformation
        moments = distribution.moments(self.engine, numbers)
        if not moments.count and (request.fill == MEAN or transformation != NONE):
            raise ValueError(
                f"column '{request.name}': expected a number in train, got missing values only: "
                f"leave it out with --drop {request.name}"
            )
        num_values = self._num_values(request)
        missing = max(0, num_values - moments.count)
        quantiles = functools.partial(distribution.quantiles, self.engine, ranked)
        steps = quantiles(NUM_STEPS)
        self.profiles[request.name] = ColumnProfile(
            num_values,
            missing,
            mean=moments.mean,
            deviation=moments.deviation,
            quantiles=tuple(steps),
            values=distribution.few_values(self.engine, ranked, MAX_VALUES),
        )
        common = {"name": request.name, "column": request.name, "hotness": request.hotness}
        if transformation == BINS:
            least, *inner, _ = quantiles(_NUM_BINS) or (0, 0)
            # No bin below the least value, whose vector would not be trained.
            edges = tuple(float(edge) for edge in np.unique(inner) if edge > least)
            return Bins(**common, edges=edges)
        log_moments = functools.cache(
            functools.partial(distribution.moments, self.engine, numbers, log=True)
        )
        scale = scale_of(transformation, steps, moments, log_moments)
        self.scales[request.name] = scale
        own = log_moments() if scale.transformation == LOG else moments
        ranks = []
        if scale.transformation == QUANTILE:
            ranks = quantiles(min(_NUM_QUANTILES, max(moments.count, 2)) - 1)
        fill = request.fill
        if fill == MEAN:
            is_mean = transformation != AUTO or scale.transformation == STANDARDIZE
            fill = moments.mean if is_mean else steps[NUM_STEPS // 2]
        return Number(
            **common,
            dtype=request.dtype,
            transformation=scale.transformation,
            mean=own.mean,
            deviation=own.deviation,
            quantiles=tuple(ranks),
            fill=None if fill is None else float(fill),
            indicator=request.indicator if missing else None,
        )

    def _vocabulary(self, request: VocabularyRequest) -> Vocabulary:
        counts = self.text_counts(request.name, self._is_integer(request.name))
        rows, is_single = self._num_values(request), counts.n == 1
        sums = fetch_row(
            self.engine,
            counts.agg(
                single=is_single.cast("int64").sum(),
                present=ibis.ifelse(counts.value.notnull(), counts.n, 0).sum(),
            ),
        )
        threshold = request.threshold
        if threshold is None:
            threshold = automatic_threshold(rows, sums["single"] or 0)
        kept = counts.filter((counts.n >= max(threshold, 1)) & counts.value.notnull())
        table = self.fetch_texts(kept.order_by([ibis.desc("n"), "value"]))
        values, numbers = table["value"].combine_chunks(), table["count"].combine_chunks()
        known = int(pa.compute.sum(numbers).as_py() or 0)
        frequent = table.slice(0, _MOST_FREQUENT).to_pylist()
        self.profiles[request.name] = ColumnProfile(
            rows,
            rows - (sums["present"] or 0),
            unknown=(rows - known) / max(rows, 1),
            frequent=tuple(tuple(row.values()) for row in frequent),
        )
        return Vocabulary(
            name=request.name,
            column=request.name,
            hotness=request.hotness,
            dtype=request.dtype,
            values=values,
            counts=numbers,
            is_integer=self._is_integer(request.name),
            threshold=threshold,
        )

    def text_counts(self, column: str, is_integer: bool) -> ir.Table:
        """Returns the texts of a column (`value`, null for missing) and their counts (`n`).

        Args:
            is_integer: texts such as `7.0` become `7`.
        """
        facts, counts = self.facts[column], self.counts(column)
        value = counts[VALUE]
        if value.type().is_string() and not facts.list_form and not facts.has_point:
            return counts.select(value=value, n=counts[COUNT])
        if facts.list_form:
            value = lists(value, facts.list_form, self.missing).unnest()
        rows = counts.select(raw=value, n=counts[COUNT])
        rows = rows.select(value=text(rows.raw, self.missing, is_integer), n=rows.n)
        return self.engine.store_table(rows.group_by("value").agg(n=rows.n.sum()), "texts")

    def _numbers(self, column: str) -> tuple[ir.Table, ir.Table]:
        """Returns numbers for moments, and some for quantiles, see `distribution.numbers_of`."""
        if self.facts[column].is_continuous:
            counts = count_values(self.engine, self.sample, column, self.missing, "sampled")
            sampled = distribution.numbers_of(self.engine, counts, self.missing)
            x = number(self.rows[column], self.missing)
            every = distribution.finite(self.rows.select(x=x, n=ibis.literal(1, "int64")))
            return every, sampled
        is_list = self.counts(column)[VALUE].type().is_array()
        form = "list" if is_list else self.facts[column].list_form
        numbers = distribution.numbers_of(self.engine, self.counts(column), self.missing, form)
        return numbers, numbers

    def _is_integer(self, column: str) -> bool:
        facts = self.facts.get(column)
        return facts is not None and facts.is_whole and not facts.is_code

    @functools.cached_property
    def _num_rows(self) -> int:
        return count_rows(self.engine, self.rows)

    def _num_values(self, request: Request) -> int:
        return self._num_rows * request.hotness

    def fetch_texts(self, texts: ir.Table) -> pa.Table:
        """Returns `value` and `count` of a table of texts with counts."""
        schema = pa.schema([("value", pa.string()), ("count", pa.int64())])
        batches = self.engine.batches(texts.select("value", count=texts.n))
        return pa.Table.from_batches([batch.cast(schema) for batch in batches], schema)


def largest_id(
    engine: Engine, table: ir.Table, column: str, list_form: str, missing: tuple[str, ...]
) -> int:
    """Returns the largest plain id of a column, at most 2^63 - 2; -1 without any.

    Args:
        list_form: of texts, see `expressions.lists`.
    """
    value, kind = table[column], table[column].type()
    list_form = "list" if kind.is_array() else list_form
    if not (kind.is_array() or kind.is_string() or kind.is_numeric() or kind.is_boolean()):
        return -1  # an error when it is encoded
    rows = table.select(value=lists(value, list_form, missing).unnest() if list_form else value)
    rows = distribution.finite(rows.select(x=number(rows.value, missing)))
    largest = fetch_row(engine, rows.agg(largest=rows.x.max()))["largest"]
    return -1 if largest is None else min(int(largest), (1 << 63) - 2)


def automatic_threshold(num_values: int, num_single: int) -> int:
    """Returns how often a value must occur in training to get an id of its own.

    The share of values that occur once in training is the Good-Turing estimate of the share of new
    values in later rows. With a threshold of 2, id 0 is therefore as frequent in training as it is
    later, and its vector is trained. Where a tenth of the values or more occur once, a model learns
    rare ids by heart and meets new ones all the time: a 500th of the values, at most 10.
    Measured in benchmarks/results/frequency_threshold_xeon_202611.md.

    Args:
        num_values: values of the feature in the training rows.
        num_single: those of them that occur once.
    """
    if num_single < _MANY_SINGLE * num_values:
        return _LEAST
    return min(max(num_values // _VALUES_PER_OCCURRENCE, _LEAST), _MOST)
