"""Scores of Arrow batches in a Spark task; no PySpark here."""

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from deployment.predict.input import batch_arrays
from deployment.serving.checks import BadRequest
from deployment.serving.interface import SCORES
from deployment.serving.scorer import RequestScorer

SCORE = SCORES.removesuffix("s")  # the column


@dataclass(frozen=True)
class PartitionScorer:
    """Scores a partition of a table, batch by batch; for `DataFrame.mapInArrow`.

    Attributes:
        folder, dense_folder: version folders of the model, which all workers see.
        columns: names of the columns of the batches.
        kept: columns of the answer, before the scores.
        is_csv: whether features are texts of a CSV file.
        batch_size: maximum number of rows that are scored together.
    """

    folder: str
    dense_folder: str | None
    columns: tuple[str, ...]
    kept: tuple[str, ...]
    is_csv: bool
    batch_size: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the kept columns and `score`, float32, of each batch.

        Raises:
            ValueError: a worker does not see the model, or a value breaks a rule of its feature.
        """
        scorer = _open_model(self.folder, self.dense_folder)
        for columns in batches:
            batch = pa.RecordBatch.from_arrays(columns.columns, names=self.columns)
            kept = [batch.column(name) for name in self.kept]
            scores = pa.array(self._scores(scorer, batch), pa.float32())
            yield pa.RecordBatch.from_arrays([*kept, scores], names=[*self.kept, SCORE])

    def _scores(self, scorer: RequestScorer, batch: pa.RecordBatch) -> np.ndarray:
        columns = {f.name: batch.column(f.name) for f in scorer.interface.features}
        if self.is_csv:
            # An empty field is null.
            columns = {
                name: column.fill_null("").cast(pa.binary()) for name, column in columns.items()
            }

        def where(row: int) -> str:
            keys = (f"{name} {batch.column(name)[row].as_py()!r}" for name in self.kept)
            return f"--input: the row with {', '.join(keys)}"

        arrays = batch_arrays(columns, scorer.interface, where)
        scores = np.empty(batch.num_rows, np.float32)
        for start in range(0, batch.num_rows, self.batch_size):
            rows = slice(start, start + self.batch_size)
            try:
                request = {name: array[rows] for name, array in arrays.items()}
                scores[rows] = scorer.score(request)[:, 0]
            except BadRequest as error:
                name = "" if error.feature is None else f": column '{error.feature}'"
                raise ValueError(
                    f"{where(start + error.row)}{name}: found {error.value}; {error.rule}"
                ) from None
        return scores


@functools.lru_cache(1)
def _open_model(folder: str, dense_folder: str | None) -> RequestScorer:
    """Returns the model of this process, which Spark keeps for its later tasks.

    Tables are mapped, so that all processes of a machine share one copy of them.
    """
    for path in filter(None, (folder, dense_folder)):
        if not Path(path).is_dir():
            raise ValueError(
                f"a Spark worker on {os.uname().nodename} does not see {path}: --model must lie "
                "on a file system that all workers share, under the same path, or be sent with "
                "--archives of spark-submit"
            )
    try:
        return RequestScorer(folder, threads=1, dense_folder=dense_folder)
    except ImportError as error:
        raise ValueError(
            f"a Spark worker on {os.uname().nodename} cannot load the model ({error}); its Python "
            "needs the packages of requirements/engines.txt"
        ) from None
