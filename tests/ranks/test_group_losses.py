"""Listwise and pairwise losses and metrics of groups: N ranks equal one."""

import numpy as np
import pytest

from tests.ranks.test_entry_scripts import NUM_RANKS, SMALL, same_losses, summary
from tests.tables import arrays_of

LOSSES = ("listwise", "pairwise")


def trainings(rows, folder):
    """Returns the command line of a training with each loss; groups are larger than a share."""
    flags = ("--dataset_path", rows, *SMALL, "--group_column", "cat_2", "--group_cutoffs", "3")
    return {
        loss: (
            *("dlrm.py", *flags, "--loss", loss, "--evals_per_epoch", "2"),
            *("--save_checkpoint_path", folder / loss / "model", "--run_dir", folder / loss),
        )
        for loss in LOSSES
    }


@pytest.fixture(scope="module")
def one_rank(rows, run_recipes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    run_recipes(1, trainings(rows, folder))
    return folder


@pytest.mark.parametrize("num_ranks", NUM_RANKS)
def test_training(rows, one_rank, run_recipes, tmp_path, num_ranks):
    run_recipes(num_ranks, trainings(rows, tmp_path))
    for loss in LOSSES:
        same_losses(one_rank / loss, tmp_path / loss)
        one, many = summary(one_rank / loss), summary(tmp_path / loss)
        for name in ("auc", "gauc", "ndcg@3", "mrr@3", "hr@3"):
            assert many[name] == pytest.approx(one[name], abs=1e-3), name
        expected, actual = (
            arrays_of(one_rank / loss / "model"),
            arrays_of(tmp_path / loss / "model"),
        )
        for name, array in expected.items():
            np.testing.assert_allclose(actual[name], array, rtol=1e-3, atol=1e-4, err_msg=name)
