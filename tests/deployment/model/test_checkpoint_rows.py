"""Rows read directly from the files of a checkpoint, cut into any pieces."""

import numpy as np
import pytest

from deployment.model.checkpoint_rows import CheckpointRows
from runtime.checkpoint import Box, DamagedCheckpoint
from tests.deployment.artifacts.saved_tables import save_tables

VALUES = np.random.default_rng(3).normal(size=(90, 10)).astype(np.float32)
CUTS = {
    "whole": [[Box(0, 90, 0, 10)]],
    "by rows": [[Box(0, 30, 0, 10)], [Box(30, 90, 0, 10)]],
    "by columns": [[Box(0, 90, 0, 4)], [Box(0, 90, 4, 10)]],
    "by both": [[Box(0, 30, 0, 10), Box(30, 90, 0, 4)], [Box(30, 90, 4, 10)]],
}


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_rows_of_ids(tmp_path, cuts):
    rows = CheckpointRows(save_tables(tmp_path, {"t": VALUES}, {"t": cuts}), "t")
    assert (rows.rows, rows.dim) == (90, 10)
    for shape in ((50,), (7, 3), (0,)):
        ids = np.random.default_rng(1).integers(0, 90, shape)
        result = rows.take(ids)
        assert result.dtype == np.float32 and result.shape == (*shape, 10)
        np.testing.assert_array_equal(result, VALUES[ids])


@pytest.mark.parametrize("fault", ["missing", "cut"])
def test_missing_or_short_file(tmp_path, fault):
    trained = save_tables(tmp_path, {"t": VALUES})
    file = next(trained.path.rglob("t.npy"))
    data = file.read_bytes()
    file.unlink()
    if fault == "cut":
        file.write_bytes(data[:-1])
    with pytest.raises(DamagedCheckpoint, match=r"t\.npy is missing or damaged: "):
        CheckpointRows(trained, "t")
