"""What smaller tables cost: the AUC with rows as they were trained, and as they are stored."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from deployment.checkpoint_rows import CheckpointRows
from deployment.parts import Parts
from deployment.served_model import DenseModel, request_arrays
from deployment.serving.interface import LookUp
from deployment.table_files import INT8, to_float16, to_int8
from deployment.trained_model import Trained, evaluation_rows
from nn.metrics import ExactMetrics

# Rows that are scored together: some megabytes of vectors.
_BATCH_ROWS = 4096


class AucChange(NamedTuple):
    """The exact ROC AUC of one model over the same rows, from probabilities.

    Attributes:
      trained: with the rows of tables as the checkpoint has them.
      quantized: with the rows as they are stored.
      num_rows: how many rows were scored.
      note: why an AUC is NaN; empty otherwise.
    """

    trained: float
    quantized: float
    num_rows: int
    note: str

    def report(self) -> str:
        """One line."""
        change = self.quantized - self.trained
        return (
            f"AUC over {self.num_rows:,} rows: {self.trained:.6f} as trained, "
            f"{self.quantized:.6f} quantized, difference {change:+.6f}"
            f"{f' ({self.note})' if self.note else ''}"
        )


def auc_change(
    trained: Trained, parts: Parts, dense: DenseModel, quantize: str, num_rows: int | None = None
) -> AucChange:
    """Scores the rows that `--mode eval` evaluates on, twice.

    Rows of tables are read where the checkpoint has them, as the batches name them: no table is
    loaded. The dense part is the same, in float32.

    Args:
      trained: the model.
      parts: of it.
      dense: of it.
      quantize: "fp16" or "int8".
      num_rows: only so many of the first rows; None: all.

    Raises:
      ValueError: there are no rows to evaluate on, or a bad one; a value is too large for float16.
    """
    rows = evaluation_rows(trained, _BATCH_ROWS)
    tables = {name: CheckpointRows(trained, name) for name, _, _ in parts.tables}
    exact, stored = ExactMetrics(), ExactMetrics()
    left = rows.num_rows if num_rows is None else min(num_rows, rows.num_rows)
    try:
        for batch in rows.dataset():
            inputs, labels = batch.inputs, np.asarray(batch.labels)[:left]
            arrays = {name: of[:left] for name, of in request_arrays(parts, inputs).items()}
            beside = [arrays[name] for name in parts.dense_inputs]
            for metrics, how in ((exact, None), (stored, quantize)):
                vectors = [look_up(tables[of.table], of, arrays, how) for of in parts.lookups]
                scores = dense.score(np.concatenate(vectors, axis=1), *beside)
                # Only their order counts, which is that of the logits.
                metrics.update(labels, np.asarray(scores))
            left -= len(labels)
            if not left:
                break
    except Exception as error:
        # A bad row arrives here as a stack trace of tf.data; the loader remembers what it was.
        if rows.failure:
            raise ValueError(rows.failure) from error
        raise
    found, changed = exact.result(), stored.result()
    return AucChange(found.auc, changed.auc, found.num_rows, found.note)


def look_up(
    table: CheckpointRows, what: LookUp, arrays: Mapping[str, np.ndarray], quantize: str | None
) -> np.ndarray:
    """The vectors float32 [batch, columns] of a look-up; -1 is zeros.

    Args:
      table: its table.
      what: the look-up.
      arrays: the tensors of a request.
      quantize: how rows are stored; None: as they are.
    """
    columns = arrays[what.input].reshape(len(arrays[what.input]), -1)
    ids = columns[:, what.start : what.start + what.count]
    vectors = table.take(np.maximum(ids, 0))
    if quantize:
        vectors = stored(vectors.reshape(-1, table.dim), what.table, quantize)
        vectors = vectors.reshape(*ids.shape, table.dim)
    vectors[ids < 0] = 0
    return vectors.sum(axis=1) if what.combiner == "sum" else vectors.reshape(len(ids), -1)


def stored(rows: np.ndarray, table: str, quantize: str) -> np.ndarray:
    """Rows float32 [n, columns] after their way through the stored form, "fp16" or "int8"."""
    if quantize == INT8:
        values, scales = to_int8(rows)
        return values * scales[:, None]
    return to_float16(rows, table, 0).astype(np.float32)
