"""Rows to measure a served model with: of a data set, or drawn within what its interface allows."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from deployment.client.drawn_requests import drawn_request
from deployment.serving import interface as interfaces
from deployment.serving.hps_keys import ROLE as KEYS
from deployment.serving.interface import CHECKS, SCORER, SPARSE, Interface

Rows = Mapping[str, np.ndarray]  # tensors by name, [rows, ...] each


def rows_of_data_set(checkpoint_dir: str, dataset_path: str | None, num_rows: int) -> Rows:
    """The first rows that the model is evaluated on, from the first again where there are fewer.

    Raises:
      ValueError: checkpoint or data set are wrong.
    """
    from deployment.client.evaluation_requests import labelled_requests
    from deployment.model.trained_model import evaluation_rows, open_checkpoint

    trained = open_checkpoint(checkpoint_dir, dataset_path)
    rows = evaluation_rows(trained, min(num_rows, 65_536))
    parts = [request.arrays for request in labelled_requests(trained, rows, num_rows)]
    return {name: _first(np.concatenate([p[name] for p in parts]), num_rows) for name in parts[0]}


def drawn_rows(interface: Interface, num_rows: int, seed: int = 0) -> Rows:
    """Rows of random values, see `drawn_request`.

    Uniform ids are the hardest on caches: rows of a data set, where few ids are frequent, are
    looked up faster.
    """
    return drawn_request(interface, num_rows, np.random.default_rng(seed))


def interface_in(repository: str | Path, model_name: str) -> Interface:
    """What a model of a repository takes; of an ensemble, what its first part says of it.

    Raises:
      ValueError: there is no such model, or it was not made by deployment.deploy.
    """
    # Which part is the first depends on the backend: local, tensorflow, hps.
    for folder in (model_name, *(f"{model_name}_{role}" for role in (SPARSE, CHECKS, KEYS))):
        versions = [
            path.parent
            for path in Path(repository, folder).glob(f"*/{interfaces.FILE}")
            if path.parent.name.isdecimal()
        ]
        if versions:
            # The one that Triton serves.
            found = interfaces.read(max(versions, key=lambda version: int(version.name)))
            if found.role in (SCORER, SPARSE, CHECKS, KEYS):
                return found
    raise ValueError(
        f"{repository} has no {interfaces.FILE} of {model_name}, which says what ids are allowed: "
        "name another --model_repository, or take rows of a data set (--checkpoint_dir)"
    )


def _first(rows: np.ndarray, num_rows: int) -> np.ndarray:
    return np.take(rows, np.arange(num_rows), axis=0, mode="wrap")
