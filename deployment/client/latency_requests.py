"""Requests for latency measurements: rows of a data set, or random values in range."""

from collections.abc import Mapping

import numpy as np

from deployment.client.drawn_requests import drawn_request
from deployment.serving.interface import Interface

RequestRows = Mapping[str, np.ndarray]  # tensors by name, [rows, ...] each


def rows_of_data_set(checkpoint_dir: str, dataset_path: str | None, num_rows: int) -> RequestRows:
    """Returns the first evaluation rows of the model, repeated if there are fewer.

    Raises:
        ValueError: checkpoint or data set are invalid.
    """
    from deployment.client.evaluation_requests import labelled_requests
    from deployment.model.trained_model import evaluation_rows, open_checkpoint

    trained = open_checkpoint(checkpoint_dir, dataset_path)
    rows = evaluation_rows(trained, min(num_rows, 65_536))
    parts = [request.arrays for request in labelled_requests(trained, rows, num_rows)]
    return {name: _first(np.concatenate([p[name] for p in parts]), num_rows) for name in parts[0]}


def drawn_rows(interface: Interface, num_rows: int, seed: int = 0) -> RequestRows:
    """Returns random rows, see `drawn_request`.

    Uniform ids are the worst case for caches: rows of a data set, in which few ids are frequent,
    are looked up faster.
    """
    return drawn_request(interface, num_rows, np.random.default_rng(seed))


def _first(rows: np.ndarray, num_rows: int) -> np.ndarray:
    return np.take(rows, np.arange(num_rows), axis=0, mode="wrap")
