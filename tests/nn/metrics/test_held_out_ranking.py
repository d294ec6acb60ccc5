"""Ranking of held-out items against all orders of equal scores, on one rank and on several."""

import itertools

import numpy as np
import pytest
from embedding_testing.fake_world import run_threads

from nn.metrics.classification import NonFiniteScores
from nn.metrics.held_out_ranking import HeldOutRanking
from nn.top_items import Pairs

USERS, ITEMS, K = 23, 7, 3


def drawn():
    """Returns integer scores, held-out and left-out items, both bool [users, items].

    The last user has no held-out item; some held-out items are left out, too.
    """
    rng = np.random.default_rng(0)
    held_out = rng.random([USERS, ITEMS]) < 0.3
    held_out[:, 0], held_out[-1] = True, False
    left_out = rng.random([USERS, ITEMS]) < 0.2
    return rng.integers(4, size=[USERS, ITEMS]).astype(np.float32), held_out, left_out


def expected(scores, held_out, left_out):
    """Returns HR, NDCG and recall: means over all permutations that keep the order of scores."""
    values = []
    for user in range(USERS - 1):
        items = np.flatnonzero(~left_out[user] | held_out[user])
        orders = [np.array(order) for order in itertools.permutations(items)]
        orders = [order for order in orders if (np.diff(scores[user, order]) <= 0).all()]
        gains = 1 / np.log2(np.arange(K) + 2)
        own = np.array([np.resize(held_out[user, order], ITEMS)[:K] for order in orders])
        number = held_out[user].sum()
        ndcg = (own * gains).sum(axis=1) / gains[: min(number, K)].sum()
        values.append([own.any(axis=1).mean(), ndcg.mean(), own.sum(axis=1).mean() / number])
    return dict(zip(("hr@3", "ndcg@3", "recall@3"), np.mean(values, axis=0), strict=True))


def pairs_of(mask):
    return lambda numbers: Pairs(*np.nonzero(mask[numbers]))


def ranking(world, scores, popularity, held_out, left_out):
    return HeldOutRanking(
        prefix="",
        k=K,
        num_users=USERS,
        block=4,
        world=world,
        logits=scores.__getitem__,
        popularity=popularity.__getitem__,
        held_out=pairs_of(held_out),
        left_out=pairs_of(left_out),
    )


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_against_all_orders(size):
    scores, held_out, left_out = drawn()
    popularity = np.random.default_rng(1).integers(3, size=[USERS, ITEMS])
    rounds = []

    def run(world):
        own = ranking(world, scores, popularity, held_out, left_out)
        return own.names, own.measure(lambda: rounds.append(world.rank))

    results = run_threads(size, run)
    names, values = results[0]
    assert all(result == results[0] for result in results) and list(values) == list(names)
    one = ranking(_One(), scores, popularity, held_out, left_out).measure()
    assert values == one  # to the last bit
    assert len(rounds) == size * -(-6 // size)
    for end, order in (("", scores), ("_popularity", popularity)):
        for name, value in expected(order, held_out, left_out).items():
            assert values[name + end] == pytest.approx(value, abs=1e-13), name


class _One:
    rank, size = 0, 1

    def gather_objects(self, value, name):
        return [value]


def test_a_logit_that_is_not_finite():
    scores, *masks = drawn()
    scores[20, 3] = np.nan
    with pytest.raises(NonFiniteScores, match="ranking: logits are NaN"):
        ranking(_One(), scores, scores * 0, *masks).measure()
