"""The rows that a model is evaluated on, as requests with their labels."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from dataloading.pipeline.batch import InteractionInputs
from deployment.model.served_model import request_arrays, serving_spec_of
from deployment.model.trained_model import TrainedModel


class LabelledRequest(NamedTuple):
    """Rows as a served model gets them, and what is known of them.

    arrays: tensors by name, [rows, ...] each.
    labels: float32 [rows].
    items: of interactions, integers [rows]; None of other rows.
    """

    arrays: Mapping[str, np.ndarray]
    labels: np.ndarray
    items: np.ndarray | None


def labelled_requests(
    trained: TrainedModel, rows, max_rows: int | None = None
) -> Iterator[LabelledRequest]:
    """Yields a request for each batch, without the padding of the last one.

    Args:
        trained: the model.
        rows: `deployment.model.trained_model.evaluation_rows` of it.
        max_rows: stop behind so many rows; series of interactions stay whole, so that there may be a
            part of a series more.

    Raises:
        ValueError: a row breaks a rule of its data set.
    """
    serving_spec = serving_spec_of(trained)
    left = rows.num_rows
    if max_rows is not None:
        length = getattr(rows, "series_length", 1)
        left = min(left, -(-max_rows // length) * length)
    try:
        for batch in rows.dataset():
            real = np.flatnonzero(np.asarray(batch.weights).reshape(-1) > 0)[:left]
            arrays = request_arrays(serving_spec, batch.inputs)
            items = None
            if isinstance(batch.inputs, InteractionInputs):
                items = np.asarray(batch.inputs.item)[real]
            labels = np.asarray(batch.labels).reshape(-1)[real]
            yield LabelledRequest({k: v[real] for k, v in arrays.items()}, labels, items)
            left -= len(real)
            if not left:
                return
    except Exception as error:
        # A bad row arrives here as a stack trace of tf.data; the loader remembers what it was.
        if rows.failure:
            raise ValueError(rows.failure) from error
        raise
