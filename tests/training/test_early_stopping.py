"""The rules of the best evaluation and of early stopping, by hand."""

import math

import pytest

from recipes.recipe import Goal
from training.state import Best, Position

NAN = math.nan
GOAL = Goal()


@pytest.mark.parametrize(
    ("value", "best", "expected"),
    [
        (0.5, None, True),
        (NAN, None, True),
        (0.5 + 1e-12, 0.5, True),
        (0.5, 0.5, False),
        (0.4, 0.5, False),
        (NAN, 0.5, False),
        (0.1, NAN, True),
    ],
)
def test_improvements(value, best, expected):
    position = Position(step=6, best=None if best is None else Best(best, 4))
    position.add_evaluation(GOAL, {"auc": value, "log_loss": 0.7}, 2.5)
    assert (position.best.step == 6) is expected
    assert position.evaluated_step == 6
    assert position.history["validation_loss"] == [(6, 0.7)]


@pytest.mark.parametrize(
    ("value", "best", "expected"),
    [
        (0.4, 0.5, True),
        (0.5, 0.5, False),
        (0.6, 0.5, False),
        (NAN, 0.5, False),
        (0.9, NAN, True),
        (NAN, NAN, False),
    ],
)
@pytest.mark.parametrize("metric", ["log_loss", "normalized_entropy"])
def test_lower_is_better(metric, value, best, expected):
    assert Goal(metric).is_better(value, best) is expected


def test_comparison_by_log_loss():
    """The AUC rises while the log loss does; the threshold remains one of the AUC."""
    goal, position = Goal("log_loss", threshold=0.8), Position()
    for step, (log_loss, auc) in enumerate([(0.6, 0.7), (0.5, 0.75), (0.7, 0.8), (0.8, 0.79)], 1):
        position.step = step
        position.add_evaluation(goal, {"log_loss": log_loss, "auc": auc}, float(step))
        assert position.has_reached(goal) is (step >= 3)
    assert position.best == Best(0.5, 2, 0, 2.0)
    assert position.stale_evaluations(goal) == 2
    assert position.goal_reached_s == 3.0
    assert position.best_values(goal) == {
        "best_log_loss": 0.5,
        "best_log_loss_step": 2,
        "time_to_auc_threshold_s": 3.0,
    }


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], 0),
        ([0.5], 0),
        ([0.5, 0.5], 1),
        ([0.5, 0.4, 0.45], 2),  # a rise that stays below the best value does not count
        ([0.5, 0.4, 0.6], 0),
        ([0.5, 0.6, 0.4, 0.6, 0.3], 3),
        ([NAN, NAN, NAN], 3),
        ([NAN, 0.5, NAN], 1),
    ],
)
def test_stale_evaluations(values, expected):
    position = Position(history={"validation_auc": list(enumerate(values))})
    assert position.stale_evaluations(GOAL) == expected
