"""What smaller tables and half precision cost: the AUC as trained, and as served."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from deployment.artifacts.table_files import INT8, NONE, check_finite, to_float16, to_int8
from deployment.client.evaluation_requests import LabelledRequest, labelled_requests
from deployment.model.checkpoint_rows import CheckpointRows
from deployment.model.served_model import DenseModel
from deployment.model.serving_spec import ServingSpec
from deployment.model.trained_model import TrainedModel, evaluation_rows
from deployment.serving.interface import ServedLookup
from nn.metrics.classification import ExactMetrics

# A dense part: from embeddings float32 [batch, width] and a request's tensors to scores [batch, 1].
Score = Callable[[np.ndarray, Mapping[str, np.ndarray]], np.ndarray]

# Rows that are scored together: some megabytes of vectors.
_BATCH_ROWS = 4096


class AucChange(NamedTuple):
    """The exact ROC AUC of one model over the same rows, from probabilities.

    Attributes:
        trained: with the rows of tables as the checkpoint has them, in float32.
        served: with the rows as they are stored, and the dense part as `served_as` says.
        num_rows: how many rows were scored.
        note: why an AUC is NaN; empty otherwise.
        served_as: what was scored the second time.
    """

    trained: float
    served: float
    num_rows: int
    note: str
    served_as: str

    def report(self) -> str:
        """One line."""
        change = self.served - self.trained
        return (
            f"AUC over {self.num_rows:,} rows: {self.trained:.6f} as trained, "
            f"{self.served:.6f} {self.served_as}, difference {change:+.6f}"
            f"{f' ({self.note})' if self.note else ''}"
        )


def auc_change(
    trained: TrainedModel,
    serving_spec: ServingSpec,
    dense: DenseModel,
    quantize: str,
    num_rows: int | None = None,
    served: Score | None = None,
    served_as: str = "as served",
) -> AucChange:
    """Scores the rows that `--mode eval` evaluates on, twice.

    Rows of tables are read where the checkpoint has them, as the batches name them: no table is
    loaded.

    Args:
        trained: the model.
        parts: of it.
        dense: of it, in float32.
        quantize: how tables are stored: "none", "fp16" or "int8".
        num_rows: only so many of the first rows, and of interactions those of the last one's series,
            too; None: all.
        served: the dense part as it is served; None: `dense`.
        served_as: what `quantize` and `served` are, for the report.

    Raises:
        ValueError: there are no rows to evaluate on, or a bad one; a value of a table is not finite,
            or too large for float16.
    """
    tables = {name: CheckpointRows(trained, name) for name, _, _ in serving_spec.tables}
    as_trained = score_by(dense, serving_spec)
    exact, changed = ExactMetrics(), ExactMetrics()
    sides = ((exact, NONE, as_trained), (changed, quantize, served or as_trained))
    for arrays, labels, _ in _rows_to_compare(trained, num_rows):
        for metrics, how, score in sides:
            # Only their order counts. Large logits have equal scores, as they have when served.
            scores = score(embeddings(tables, serving_spec, arrays, how), arrays)
            metrics.update(labels, np.asarray(scores)[:, 0])
    found, changed = exact.result(), changed.result()
    return AucChange(found.auc, changed.auc, found.num_rows, found.note, served_as)


def _rows_to_compare(trained: TrainedModel, num_rows: int | None) -> Iterator[LabelledRequest]:
    """The rows to evaluate on.

    Raises:
        ValueError: there are none, or a bad one; it says what they are for.
    """
    try:
        rows = evaluation_rows(trained, _BATCH_ROWS)
        yield from labelled_requests(trained, rows, num_rows)
    except (ValueError, OSError) as error:
        raise ValueError(
            f"{error}. On the rows to evaluate on, the AUC as served is compared with that as "
            "trained: give a data set that has them with --dataset_path, or deploy without "
            "comparing with --check_rows 0"
        ) from None


def score_by(dense: DenseModel, serving_spec: ServingSpec) -> Score:
    """The dense part in TensorFlow."""

    def score(vectors: np.ndarray, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        of_request = [arrays[name] for name in serving_spec.dense_inputs]
        return dense.score(*([vectors] if serving_spec.width else []), *of_request).numpy()

    return score


def embeddings(
    tables: Mapping[str, CheckpointRows],
    serving_spec: ServingSpec,
    arrays: Mapping[str, np.ndarray],
    quantize: str = NONE,
) -> np.ndarray:
    """float32 [batch, width]: the vectors of a request, side by side.

    Args:
        tables: by name.
        parts: of the model.
        arrays, quantize: see `lookup`.
    """
    vectors = [lookup(tables[of.table], of, arrays, quantize) for of in serving_spec.lookups]
    batch = len(arrays[serving_spec.inputs[0].name])
    vectors.append(np.empty((batch, 0), np.float32))  # of a model without tables
    return np.concatenate(vectors, axis=1)


def lookup(
    table: CheckpointRows, what: ServedLookup, arrays: Mapping[str, np.ndarray], quantize: str
) -> np.ndarray:
    """The vectors float32 [batch, columns] of a lookup; -1 is zeros.

    Args:
        table: its table.
        what: the lookup.
        arrays: the tensors of a request.
        quantize: how rows are stored; "none": as they are.

    Raises:
        ValueError: a value is not finite, or too large for float16.
    """
    columns = arrays[what.input].reshape(len(arrays[what.input]), -1)
    ids = columns[:, what.start : what.start + what.count]
    numbers = np.maximum(ids, 0).reshape(-1)
    vectors = table.take(numbers)
    check_finite(vectors, what.table, numbers)
    if quantize != NONE:
        vectors = stored(vectors, what.table, numbers, quantize)
    vectors = vectors.reshape(*ids.shape, table.dim)
    vectors[ids < 0] = 0
    return vectors.sum(axis=1) if what.combiner == "sum" else vectors.reshape(len(ids), -1)


def stored(rows: np.ndarray, table: str, numbers: np.ndarray, quantize: str) -> np.ndarray:
    """Rows float32 [n, columns] after their way through the stored form, "fp16" or "int8".

    Args:
        rows: of the table, finite.
        table: its name.
        numbers: which rows they are, [n].
        quantize: the form.
    """
    if quantize == INT8:
        values, scales = to_int8(rows)
        return values * scales[:, None]
    return to_float16(rows, table, numbers).astype(np.float32)
