"""Lookups one id at a time: the reference for every faster implementation."""

from collections.abc import Mapping

import numpy as np

from deployment.model.trained_model import TrainedModel, table_name
from deployment.serving.interface import Interface
from runtime.checkpoint.reader import rows_of


def whole_tables(trained: TrainedModel) -> dict[str, np.ndarray]:
    """Every table of a checkpoint, [rows, columns]."""
    return {
        name: np.concatenate([*rows_of(trained.path, trained.index.weights[table_name(name)])])
        for name in (weight.removeprefix("sparse/") for weight in trained.index.weights)
        if table_name(name) in trained.index.weights
    }


def looked_up(
    interface: Interface, tables: Mapping[str, np.ndarray], arrays: Mapping[str, np.ndarray]
) -> np.ndarray:
    """float32 [rows, width]: the vectors of a request."""
    result = []
    for row in range(len(next(iter(arrays.values())))):
        vectors = []
        for lookup in interface.lookups:
            ids = arrays[lookup.input][row].reshape(-1)[lookup.start :][: lookup.count]
            zeros = np.zeros(tables[lookup.table].shape[1], np.float32)
            of_ids = [zeros if i == -1 else tables[lookup.table][i] for i in ids]
            vectors += [sum(of_ids, zeros)] if lookup.combiner == "sum" else of_ids
        result.append(np.concatenate(vectors))
    return np.array(result, np.float32)
