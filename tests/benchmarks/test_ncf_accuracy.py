"""Held-out interactions of the accuracy benchmark of NCF."""

import numpy as np
import pytest

from benchmarks.ncf_accuracy import hold_out, popularity_of
from dataloading.interactions.stored import read_candidate_lists, read_interactions
from dataloading.spec.feature_spec import FeatureSpec
from tests.interaction_data import write_interactions

USERS, ITEMS, EACH = 400, 300, 25


@pytest.fixture
def rows(tmp_path):
    """Interactions with skewed popularity; the data set has only a training split."""
    rng = np.random.default_rng(0)
    liking = rng.gumbel(size=[USERS, ITEMS]) - 0.8 * np.log(1 + np.arange(ITEMS))
    items = np.argsort(-liking, axis=1)[:, :EACH]
    columns = {"user": np.repeat(np.arange(USERS), EACH), "item": items.ravel()}
    spec = write_interactions(tmp_path / "rows", USERS, ITEMS, {"train": columns})
    spec.to_yaml(tmp_path / "rows/feature_spec.yaml")
    return tmp_path / "rows", columns


@pytest.mark.parametrize("popular", [0.3, 0.4])
def test_popularity_of_held_out_interactions(popular, rows, tmp_path):
    folder, columns = rows
    hold_out(folder, tmp_path / "out", popular)
    spec = FeatureSpec.from_yaml(tmp_path / "out/feature_spec.yaml")
    users, items = read_interactions(spec, "train")
    lists = read_candidate_lists(spec, "validation")
    counts = np.bincount(columns["item"], minlength=ITEMS)
    hits, _ = popularity_of(counts, lists.items, lists.labels)
    assert hits == pytest.approx(popular, abs=0.02)
    positives = lists.items[:, 0]
    pairs = {*zip(users.tolist(), items.tolist(), strict=True)}
    pairs |= {*zip(lists.users.tolist(), positives.tolist(), strict=True)}
    assert pairs == {*zip(columns["user"].tolist(), columns["item"].tolist(), strict=True)}
    assert len(users) == USERS * (EACH - 1) and len(positives) == USERS
    untouched = {*zip(np.repeat(lists.users, 99), lists.items[:, 1:].ravel(), strict=True)}
    assert not untouched & pairs and len(untouched) == USERS * 99
