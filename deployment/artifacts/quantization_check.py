"""AUC before and after quantizing tables or computing in half precision."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from deployment.artifacts.table_files import FP16, INT8, NONE, check_finite, to_float16, to_int8
from deployment.client.evaluation_requests import LabelledRequest, labelled_requests
from deployment.model.checkpoint_rows import CheckpointRows
from deployment.model.served_model import DenseModel
from deployment.model.trained_model import TrainedModel, evaluation_rows
from deployment.serving.interface import Interface, ServedLookup
from nn.metrics.classification import ExactMetrics

# Dense part: embeddings float32 [batch, width] and tensors of a request -> scores [batch, 1].
Score = Callable[[np.ndarray, Mapping[str, np.ndarray]], np.ndarray]

# Batch size: some megabytes of vectors.
_BATCH_ROWS = 4096


def auc_change(
    trained: TrainedModel,
    interface: Interface,
    dense: DenseModel,
    quantize: str,
    num_rows: int | None = None,
    served: Score | None = None,
    served_as: str = "as served",
) -> str:
    """Scores the samples of `--mode eval` as trained and as served; returns a line for the report.

    Rows of tables are read from the checkpoint as batches need them: no table is loaded.

    Args:
        dense: the dense part, in float32.
        quantize: storage of tables: "none", "fp16" or "int8".
        num_rows: number of rows, rounded up to whole candidate lists; None: all.
        served: dense part as served; None: `dense`.
        served_as: description of `quantize` and `served`.
    """
    tables = {t.name: CheckpointRows(trained, t.name) for t in interface.tables}
    as_trained = score_by(dense, interface)
    exact, changed = ExactMetrics(), ExactMetrics()
    sides = ((exact, NONE, as_trained), (changed, quantize, served or as_trained))
    for arrays, labels, _ in _samples(trained, num_rows):
        for metrics, how, score in sides:
            # Only their order counts. Scores of large logits are equal, as when served.
            scores = score(embeddings(tables, interface, arrays, how), arrays)
            metrics.update(labels, np.asarray(scores)[:, 0])
    before, after = exact.result(), changed.result()
    notes = "".join(f" ({note})" for note in before.notes.values())  # such as the reason of a NaN
    return (
        f"AUC over {before.num_rows:,} rows: {before.auc:.6f} as trained, {after.auc:.6f} "
        f"{served_as}, difference {after.auc - before.auc:+.6f}{notes}"
    )


def _samples(trained: TrainedModel, num_rows: int | None) -> Iterator[LabelledRequest]:
    """Yields the evaluation samples; errors explain their purpose."""
    try:
        yield from labelled_requests(trained, evaluation_rows(trained, _BATCH_ROWS), num_rows)
    except (ValueError, OSError) as error:
        raise ValueError(
            f"{error}. The AUC as served is compared with that as trained on evaluation samples: "
            "give a data set that has them with --dataset_path, or deploy without comparing with "
            "--check_rows 0"
        ) from None


def score_by(dense: DenseModel, interface: Interface) -> Score:
    """Returns a function that runs the dense part in TensorFlow."""

    def score(vectors: np.ndarray, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        inputs = [arrays[name] for name in interface.dense_inputs]
        return dense.score(*([vectors] if interface.width else []), *inputs).numpy()

    return score


def embeddings(
    tables: Mapping[str, CheckpointRows],
    interface: Interface,
    arrays: Mapping[str, np.ndarray],
    quantize: str = NONE,
) -> np.ndarray:
    """Returns the concatenated vectors of a request, float32 [batch, width]."""
    vectors = [lookup(tables[each.table], each, arrays, quantize) for each in interface.lookups]
    batch = len(arrays[interface.inputs[0].name])
    vectors.append(np.empty((batch, 0), np.float32))  # for a model without tables
    return np.concatenate(vectors, axis=1)


def lookup(
    table: CheckpointRows, spec: ServedLookup, arrays: Mapping[str, np.ndarray], quantize: str
) -> np.ndarray:
    """Returns the vectors float32 [batch, columns] of a lookup, as stored; zeros for -1."""
    columns = arrays[spec.input].reshape(len(arrays[spec.input]), -1)
    ids = columns[:, spec.start : spec.start + spec.count]
    numbers = np.maximum(ids, 0).reshape(-1)
    vectors = table.take(numbers)
    check_finite(vectors, spec.table, numbers)
    if quantize == INT8:
        values, scales = to_int8(vectors)
        vectors = values * scales[:, None]
    elif quantize == FP16:
        vectors = to_float16(vectors, spec.table, numbers).astype(np.float32)
    vectors = vectors.reshape(*ids.shape, table.dim)
    vectors[ids < 0] = 0
    return vectors.sum(axis=1) if spec.combiner == "sum" else vectors.reshape(len(ids), -1)
