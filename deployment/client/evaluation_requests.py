"""Evaluation samples of a model as requests with labels."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from dataloading.pipeline.batch import InteractionInputs
from deployment.model.served_model import interface_of, request_arrays
from deployment.model.trained_model import TrainedModel


class LabelledRequest(NamedTuple):
    """Request by name, with labels float32 [rows] and items of interactions [rows] or None."""

    arrays: Mapping[str, np.ndarray]
    labels: np.ndarray
    items: np.ndarray | None


def labelled_requests(
    trained: TrainedModel, rows, max_rows: int | None = None
) -> Iterator[LabelledRequest]:
    """Yields a request per batch of `evaluation_rows`, without padding.

    `max_rows` is rounded up to whole candidate lists; None: all.

    Raises:
        ValueError: a row breaks a rule of its data set.
    """
    interface = interface_of(trained)
    left = rows.num_samples
    if max_rows is not None:
        length = getattr(rows, "list_length", 1)
        left = min(left, -(-max_rows // length) * length)
    try:
        for batch in rows.dataset():
            real = np.flatnonzero(np.asarray(batch.weights).reshape(-1) > 0)[:left]
            arrays = request_arrays(trained, interface, batch.inputs)
            items = None
            if isinstance(batch.inputs, InteractionInputs):
                items = np.asarray(batch.inputs.item)[real]
            labels = np.asarray(batch.labels).reshape(-1)[real]
            yield LabelledRequest({k: v[real] for k, v in arrays.items()}, labels, items)
            left -= len(real)
            if not left:
                return
    except Exception as error:
        # tf.data wraps the error of a bad row in a stack trace; the loader keeps the message.
        if rows.failure:
            raise ValueError(rows.failure) from error
        raise
