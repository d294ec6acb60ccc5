"""Checkpoints of tables alone, cut into any pieces."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from deployment.model.trained_model import TrainedModel, table_name
from deployment.serving.interface import ServedTable
from runtime import checkpoint
from runtime.checkpoint import Box
from tests.runtime.checkpoint.array_weights import ArrayWeight, save_on_ranks


def save_tables(
    folder: Path,
    tables: Mapping[str, np.ndarray],
    cuts: Mapping[str, Sequence[Sequence[Box]]] | None = None,
) -> TrainedModel:
    """Saves tables; of what was trained there is the checkpoint alone.

    `cuts`: of a table the boxes that each rank saves; without, rank 0 saves all of it.
    """
    cuts = cuts or {}
    ranks = max((len(entry) for entry in cuts.values()), default=1)

    def weights(rank: int) -> list[ArrayWeight]:
        return [
            ArrayWeight(table_name(name), values, cuts.get(name), rank)
            for name, values in tables.items()
        ]

    path = save_on_ranks(folder, ranks, weights)
    return TrainedModel(path, checkpoint.describe(path), None, None, None)


def sizes(tables: Mapping[str, np.ndarray]) -> list[ServedTable]:
    return [ServedTable(name, *values.shape) for name, values in tables.items()]
