"""Scores of raw rows in Arrow batches."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataloading.spec.rules import listing
from deployment.serving.checks import BadRequest
from deployment.serving.scorer import RequestScorer
from deployment.triton.model_folders import ModelFolders
from preproc.checks.report import Finding
from preproc.checks.unknown_values import SCORED, unknown_share
from preproc.encoding.arrow_columns import texts
from preproc.encoding.encoder import Encoder
from preproc.encoding.lists import flatten
from preproc.encoding.vocabulary import Vocabulary


class BadRow(ValueError):
    """Row that cannot be scored.

    Attributes:
        row: its number in the batch, from 0.
        column: of the value; None: of no column.
        problem: what was received, and what was expected.
    """

    def __init__(self, row: int, column: str | None, problem: str):
        super().__init__(row, column, problem)
        self.row, self.column, self.problem = row, column, problem

    def at(self, place: str) -> ValueError:
        """Returns the error of the row in a file."""
        column = "" if self.column is None else f", column '{self.column}'"
        return ValueError(f"{place}{column}: {self.problem}")


@dataclass
class ValueCounts:
    """Counts of the values of rows.

    Attributes:
        values: by source column.
        unknown: those that the vocabulary of the column lacks.
        long_lists: by feature, lists longer than those of the training, which are truncated.
    """

    values: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    long_lists: Counter[str] = field(default_factory=Counter)

    def remarks(self, ignored: Sequence[str]) -> list[str]:
        """Returns what a report states about values, truncated lists and ignored columns."""
        shares = {name: count / self.values[name] for name, count in self.unknown.items() if count}
        texts = {
            "unknown values: ": ", ".join(f"{name} {share:.2%}" for name, share in shares.items()),
            "truncated lists: ": ", ".join(f"{name} {n:,}" for name, n in self.long_lists.items()),
            "ignored columns: ": listing(ignored),
        }
        return [name + text for name, text in texts.items() if text not in ("", "none")]


def unknown_checks(counts: ValueCounts, encoder: Encoder) -> list[Finding]:
    """Returns the shares of unknown values against those of the training."""
    checks = []
    for column, num_values in counts.values.items():
        profile = encoder.profile.get(column)
        if profile is not None and num_values:
            share = counts.unknown[column] / num_values
            facts = (share, profile.unknown or 0.0, num_values)
            checks.append(unknown_share(column, column, "the input", *facts, SCORED))
    return checks


class RowScorer:
    """Scores of raw rows by a deployed model.

    Args:
        model: version folders.
        threads: see `RequestScorer`.
        batch_size: rows that are scored together; 0: the model's maximum.

    Attributes:
        scorer: of encoded rows.
        batch_size: see above.
        columns: source columns.
        encoder: of raw rows.
        counts: of the values of all rows so far.
    """

    def __init__(self, model: ModelFolders, threads: int = 0, batch_size: int = 0):
        self.scorer = RequestScorer(model.folder, threads, model.dense_folder)
        self.batch_size = batch_size or self.scorer.interface.max_batch_size
        self._rows = self.scorer.raw_rows
        self.columns = tuple(column.name for column in self._rows.columns)
        self.encoder = self._rows.encoder
        self.counts = ValueCounts()

    def scores(self, batch: pa.RecordBatch) -> NDArray[np.float32]:
        """Returns the scores of rows with these columns, [rows].

        Raises:
            BadRow: a value breaks a rule.
            ValueError: a whole column does.
        """
        first = 0
        scores = np.empty(batch.num_rows, np.float32)
        try:
            arrays = self._rows.encode(batch, self.counts.long_lists)
            for first in range(0, batch.num_rows, self.batch_size):
                rows = slice(first, first + self.batch_size)
                request = {name: array[rows] for name, array in arrays.items()}
                scores[rows] = self.scorer.score(request)[:, 0]
        except BadRequest as error:
            if error.row is None:
                raise
            problem = f"got {error.value}; {error.rule}"
            raise BadRow(first + error.row, error.feature, problem) from None
        self._count(batch, arrays)
        return scores

    def _count(self, batch: pa.RecordBatch, arrays: Mapping[str, NDArray]) -> None:
        encoder = self._rows.encoder
        missing = pa.array(encoder.missing_values)
        for feature in self.scorer.interface.features:
            encoding = self._rows.encoding(feature.name)
            if not isinstance(encoding, Vocabulary) or not encoding.first_id:
                continue
            if encoding.name != feature.name:  # a history, or what follows from another feature
                continue
            tensor = arrays[feature.input].reshape(batch.num_rows, -1)
            ids = tensor[:, feature.start : feature.start + feature.count]
            num_known = num_values = int(np.count_nonzero(ids > 0))
            if num_known < ids.size:  # padding, missing values or unknown ones
                values = flatten(batch[encoding.column], feature.count, missing).values
                num_values = len(values) - texts(values, missing).null_count
            self.counts.values[encoding.column] += num_values
            self.counts.unknown[encoding.column] += num_values - num_known
